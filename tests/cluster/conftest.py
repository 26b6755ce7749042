"""Fixtures of the tests with hosts."""

from __future__ import annotations

from tests.crash.conftest import seed

__all__ = ["seed"]
