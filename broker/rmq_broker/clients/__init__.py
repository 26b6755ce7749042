"""Producers and consumers that are connected now."""
