"""Timed messages: delivered at a time that their producers choose, kept in a wheel of seconds until then."""
