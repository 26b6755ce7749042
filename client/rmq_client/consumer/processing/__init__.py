"""Processing pulled messages: process queues, listener calls, outcomes, retries and dead letters."""
