"""Events that a peer can repeat as often as it likes, and that must not fill the log."""

from __future__ import annotations

import asyncio


class RepeatedEvent:
    """Counts an event, and says when it is due for a line in the log: at most one per interval."""

    __slots__ = ("_interval_seconds", "_next_at", "_unreported")

    def __init__(self, interval_seconds: float) -> None:
        self._interval_seconds = interval_seconds
        self._next_at = 0.0
        self._unreported = 0

    def occurred(self) -> int:
        """Count the event; return the number of events since the last line if a line is due now, else 0."""
        self._unreported += 1
        now = asyncio.get_running_loop().time()
        if now < self._next_at:
            return 0
        self._next_at = now + self._interval_seconds
        reported, self._unreported = self._unreported, 0
        return reported
