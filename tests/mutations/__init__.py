"""Mutation testing: `python -m tests.mutations --help`. docs/contributing.md shows how to use it."""
