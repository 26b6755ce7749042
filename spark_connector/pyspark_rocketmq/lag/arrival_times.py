"""Estimates when the messages of a queue arrived, from where the queue ended at which time.

Each trigger of a stream reports the newest offsets of its queues. The message at an offset must have arrived
between two known triggers; messages between them are assumed to have arrived evenly. This costs no request,
and its error is at most the time between two triggers. A query with a backlog runs one trigger after the
other; one without a backlog reports every ten seconds that nothing arrived
(`spark.sql.streaming.noDataProgressEventInterval`). Spark also reports that while `minOffsetsPerTrigger`
holds messages back, so that they seem younger by that time.

Messages from before the first trigger are older by an unknown time. Their age is a lower bound until a broker
tells their store time (`set_store_time`).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

_MAX_OBSERVATIONS: Final = 64


@dataclass(slots=True)
class _EndObservation:
    """The queue ended at `offset` from `since` (or earlier) until `until` (or later).

    `exact`: `until` is the store time of the next message.
    """

    offset: int
    since: float
    until: float
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Arrival:
    """When a message arrived, in seconds since 1970 UTC; at that time or earlier if `open_seconds` is inf.

    `open_seconds`: length of the interval in which the message must have arrived.
    """

    at: float
    open_seconds: float

    @property
    def at_least(self) -> bool:
        """Whether the message may have arrived at any earlier time."""
        return math.isinf(self.open_seconds)


class ArrivalTimes:
    """Arrival times of one queue. All times are seconds since 1970 UTC.

    Observations of consumed offsets are dropped, and at most 64 are kept. Beyond that, every second one
    between the first and the last is dropped, which makes times less precise, not wrong.
    """

    def __init__(self) -> None:
        self._observations: list[_EndObservation] = []

    def __len__(self) -> int:
        return len(self._observations)

    @property
    def newest(self) -> int | None:
        """The offset of the next message, as last observed."""
        return self._observations[-1].offset if self._observations else None

    def observe(self, newest: int, at: float) -> None:
        """Record that the queue ended at `newest` at that time."""
        observations = self._observations
        # The queue was deleted and created again, or a replica that lags answered for its master.
        while observations and observations[-1].offset > newest:
            observations.pop()
        if observations and observations[-1].offset == newest:
            observations[-1].until = max(at, observations[-1].until)
            observations[-1].exact = False
            return
        observations.append(_EndObservation(newest, at, at))
        self._thin()

    def observe_unchanged(self, at: float) -> None:
        """Record that the queue still ended where it was last observed."""
        if self._observations:
            self.observe(self._observations[-1].offset, at)

    def set_store_time(self, offset: int, at: float) -> None:
        """Record the store time of the message at `offset`, by the broker's clock."""
        observations = self._observations
        index = bisect_left(observations, offset, key=attrgetter("offset"))
        if index == len(observations) or observations[index].offset > offset:
            observations.insert(
                index, _EndObservation(offset, observations[index - 1].until if index else at, at)
            )
        observation = observations[index]
        # The clocks of broker and driver may differ; they must not turn the order of messages around.
        latest = observations[index + 1].since if index + 1 < len(observations) else math.inf
        observation.until = min(max(at, observation.since), latest)
        observation.since = min(observation.since, observation.until)
        observation.exact = True
        self._thin()

    def forget_before(self, offset: int) -> None:
        """Drop the observations that only messages before `offset` need."""
        observations = self._observations
        del observations[: max(0, bisect_right(observations, offset, key=attrgetter("offset")) - 1)]

    def arrival_of(self, offset: int) -> Arrival | None:
        """Return when the message at `offset` arrived; None if the queue ends before it."""
        observations = self._observations
        index = bisect_right(observations, offset, key=attrgetter("offset"))
        if index == len(observations):
            return None
        after = observations[index]
        if index == 0:
            return Arrival(after.since, math.inf)
        before = observations[index - 1]
        if before.exact and before.offset == offset:
            return Arrival(before.until, 0.0)
        open_seconds = max(0.0, after.since - before.until)
        share = (offset - before.offset) / (after.offset - before.offset)
        return Arrival(after.since - (1 - share) * open_seconds, open_seconds)

    def _thin(self) -> None:
        if len(self._observations) > _MAX_OBSERVATIONS:
            del self._observations[1:-1:2]
