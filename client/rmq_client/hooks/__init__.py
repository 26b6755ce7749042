"""Hooks of applications and traces around sends and around calls of the listener."""
