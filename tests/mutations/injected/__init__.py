"""Modules that `tests.mutations` puts beside a checkout, under other names, to run its tests."""
