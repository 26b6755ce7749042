"""The wall clock, in the unit that the wire and the disk use."""

from __future__ import annotations

import time
from collections.abc import Callable

ClockMs = Callable[[], int]
"""Milliseconds since 1970 UTC."""


def now_ms() -> int:
    """Return the milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000
