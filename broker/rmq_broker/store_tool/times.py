"""Times of a store for people."""

from __future__ import annotations

import time


def utc_text(milliseconds: int) -> str:
    """Return a time in ms since 1970 as `2026-01-31 12:00:00.000` in UTC, or as it is if it is no time."""
    seconds, rest = divmod(milliseconds, 1000)
    try:
        return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(seconds))}.{rest:03}"
    except (OverflowError, ValueError, OSError):  # of a damaged record
        return str(milliseconds)
