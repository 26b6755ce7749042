"""Flushing the commit log and the queues to disk."""
