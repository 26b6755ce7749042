"""Appending messages: to the commit log, their queue and the index."""
