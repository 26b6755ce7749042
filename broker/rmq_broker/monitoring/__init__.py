"""Metrics and runtime information."""
