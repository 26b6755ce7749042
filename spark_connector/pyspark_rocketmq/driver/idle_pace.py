"""The pace of a stream that has nothing to read.

At its default trigger, Spark asks an idle source for its end every 10 ms (spark.sql.streaming.pollingDelay).
The driver asks the brokers less often, the longer nothing has changed: after half of the time since the last
change, and at most once a second after two seconds. A stream with work asks with each batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_MAX_PAUSE_SECONDS: Final = 1.0


class IdlePace:
    """Decides whether a trigger asks the brokers, or uses what the last one learned."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: seconds of a monotonic clock."""
        self._clock = clock
        self._seen: object = None
        self._changed_at = 0.0
        self._asked_at: float | None = None
        self._start: object = None

    def is_due(self, start: object) -> bool:
        """Return whether brokers are to be asked for a trigger whose batch begins at `start`."""
        if self._asked_at is None or start != self._start:
            return True
        pause = min(_MAX_PAUSE_SECONDS, (self._asked_at - self._changed_at) / 2)
        return self._clock() - self._asked_at >= pause

    def asked(self, start: object, seen: object) -> None:
        """Record an answer: `seen` has changed, or the stream has moved, or nothing happened."""
        now = self._asked_at = self._clock()
        if start != self._start or seen != self._seen:
            self._changed_at = now
        self._start, self._seen = start, seen
