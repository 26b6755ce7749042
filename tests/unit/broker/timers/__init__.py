"""Timed messages."""
