"""Checks of the arguments of `Admin`. Errors name the argument, its value, the rule and the cure."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from ..errors import UsageError

T = TypeVar("T")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def check_int(name: str, value: object, *, least: int) -> int:
    """Check a whole number and its bound."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{name}={value!r}: must be a whole number, not a {type(value).__name__}")
    if value < least:
        raise UsageError(f"{name}={value!r}: must be at least {least}")
    return value


def check_choice(name: str, value: T, choices: Collection[T]) -> T:
    """Check that a value is one of a few."""
    if value not in choices:
        raise UsageError(f"{name}={value!r}: must be one of {', '.join(map(repr, choices))}")
    return value


def check_time_ms(name: str, value: object) -> int:
    """Return a time in milliseconds since 1970 UTC. It has a time zone, to be the same time everywhere."""
    if not isinstance(value, datetime):
        raise UsageError(
            f"{name}={value!r}: must be a datetime with a time zone, not a {type(value).__name__}"
        )
    if value.tzinfo is None:
        raise UsageError(
            f"{name}={value.isoformat()}: has no time zone: use datetime.now(timezone.utc), or "
            ".astimezone() for a local time"
        )
    return max(0, (value - _EPOCH) // timedelta(milliseconds=1))
