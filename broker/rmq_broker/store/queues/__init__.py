"""Consume queues: entries that say where in the log the messages of a queue are."""
