"""Processors: they translate between the protocol and the broker's services, without state of their own."""
