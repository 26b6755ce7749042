"""The wall clock of the SDK."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Return the milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000
