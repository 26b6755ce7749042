"""The broker's clocks: the wall clock, in the unit that the wire and the disk use, and one that is never set.

The wall clock of a running broker may be set forward or back by hours. Times that clients or files see are
taken from it. Durations inside the process are measured by the steady clock: expiry, ages, periods.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

ClockMs = Callable[[], int]
"""Milliseconds since 1970 UTC."""

# Differences below this are the two clocks' own: they are read one after the other, and one may be slewed.
_SMALLEST_STEP_MS: Final = 500


def now_ms() -> int:
    """Return the milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


class SteadyClock:
    """The wall clock as it would be if it had not been set since this object was created."""

    def __init__(self, now_ms: ClockMs = now_ms, monotonic_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._monotonic_ns = monotonic_ns
        self._ahead_ms = now_ms() - monotonic_ns() // 1_000_000

    def __call__(self) -> int:
        """Return milliseconds since 1970 UTC, by the wall clock's time at the creation."""
        return self._ahead_ms + self._monotonic_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of one broker: the wall clock in ms and in seconds, and the steady clock in ms."""

    now_ms: ClockMs
    now_seconds: Callable[[], float]
    steady_ms: ClockMs


def system_clocks() -> Clocks:
    """Return the clocks of this machine."""
    return Clocks(now_ms, time.time, SteadyClock())


class ClockSteps:
    """Notices that the wall clock was set, for an owner of times that it must move by the same step."""

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self._ahead_ms = clocks.now_ms() - clocks.steady_ms()

    def look(self) -> tuple[int, int]:
        """Return the wall clock's time, and by how many ms it was set since the last look; 0: it was not."""
        now_ms = self._clocks.now_ms()
        ahead_ms = now_ms - self._clocks.steady_ms()
        step_ms = ahead_ms - self._ahead_ms
        if abs(step_ms) < _SMALLEST_STEP_MS:
            return now_ms, 0
        self._ahead_ms = ahead_ms
        return now_ms, step_ms
