"""Offsets of consumer groups."""
