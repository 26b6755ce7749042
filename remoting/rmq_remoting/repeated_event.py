"""Events that a peer can repeat as often as it likes, and that must not fill the log."""

from __future__ import annotations

import time
from collections.abc import Callable


class RepeatedEvent:
    """Counts an event, and says when it is due for a line in the log: at most one per interval.

    For any thread; events of several threads at the same moment may be counted as one.
    """

    __slots__ = ("_clock", "_interval_seconds", "_next_at", "_unreported")

    def __init__(self, interval_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._next_at = 0.0
        self._unreported = 0

    def occurred(self, count: int = 1) -> int:
        """Count events; return the number of events since the last line if a line is due now, else 0."""
        self._unreported += count
        now = self._clock()
        if now < self._next_at:
            return 0
        self._next_at = now + self._interval_seconds
        reported, self._unreported = self._unreported, 0
        return reported
