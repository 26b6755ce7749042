"""Deduplication: at-least-once deliveries are processed once, as far as a store can know."""
