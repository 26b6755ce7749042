"""Deleting old files, and the space on the disk."""
