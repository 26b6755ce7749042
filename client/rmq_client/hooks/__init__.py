"""Hooks of applications and traces around sends and calls of the listener."""
