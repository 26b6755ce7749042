"""Times and durations as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from .exits import CommandFailed, Exit

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DIGITS_OF_SECONDS: Final = 10

TIME_HELP: Final = (
    "now, 10m or 2h (so long ago), 2026-11-26, 2026-11-26T18:00 (local time unless a zone follows), "
    "or milliseconds since 1970"
)


def parse_time(text: str) -> datetime:
    """Return a time with a zone. Raises CommandFailed."""
    text = text.strip()
    if text == "now":
        return datetime.now(UTC)
    if _DURATION.fullmatch(text.removeprefix("-")):
        return datetime.now(UTC) - timedelta(seconds=parse_duration(text.removeprefix("-")))
    if text.isdigit() and len(text) >= _DIGITS_OF_SECONDS:
        number = int(text)
        return datetime.fromtimestamp(number / 1000 if len(text) > _DIGITS_OF_SECONDS else number, UTC)
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError as error:
        raise CommandFailed(f"time {text!r} cannot be read: write {TIME_HELP}", Exit.USAGE) from error


def parse_duration(text: str) -> float:
    """Return a duration in seconds; a number alone is seconds. Raises CommandFailed."""
    found = _DURATION.fullmatch(text.strip())
    if found is not None:
        return float(found[1]) * _UNITS[found[2]]
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise CommandFailed(
            f"duration {text!r} cannot be read: write 30, 30s, 500ms, 10m, 2h or 1d", Exit.USAGE
        )
    return seconds


def time_of(timestamp_ms: int) -> datetime | None:
    """Return ms since 1970 as a time; None for 0 and less, which stand for no time."""
    return None if timestamp_ms <= 0 else datetime.fromtimestamp(timestamp_ms / 1000, UTC)
