"""Consuming by POP in a push consumer: pop loops, listener calls and acknowledgements."""
