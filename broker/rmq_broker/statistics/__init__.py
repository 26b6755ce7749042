"""Counters and time series of the broker."""
