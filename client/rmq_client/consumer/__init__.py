"""Consumers: push, simple and pull."""
