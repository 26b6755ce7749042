"""Metadata that a replica takes from its master: topics, groups, offsets, progress of deliveries."""
