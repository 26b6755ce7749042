"""Since when the messages of a queue have been there, out of where it ended at which time.

Each trigger of a stream tells how far its queues reach. So of the message at an offset it is known between
which two triggers it arrived; in between, messages are taken to have arrived evenly. That costs no request,
and is right to a trigger: a query that is behind has one trigger after the other, and one that is not tells
every ten seconds that nothing has come (`spark.sql.streaming.noDataProgressEventInterval`). While
`minOffsetsPerTrigger` holds messages back, Spark says that, too, and they seem younger by that while.

What was there before the first trigger is older by an unknown time. It gets a lower bound, until a broker was
asked (`stored`).
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
    """The queue ended at `offset` from `since` (or earlier) to `until` (or later).

    `exact`: `until` is when the next message was stored.
    """

    offset: int
    since: float
    until: float
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Arrival:
    """When a message came, in seconds since 1970 UTC; at that time or earlier, where `open_seconds` is inf.

    `open_seconds`: the length of the time in which it must have come.
    """

    at: float
    open_seconds: float

    @property
    def at_least(self) -> bool:
        """Whether it may have come at any time before."""
        return math.isinf(self.open_seconds)


class ArrivalTimes:
    """Of one queue. All times are seconds since 1970 UTC.

    It forgets what was passed, and keeps at most 64 places; where there would be more, every second one
    between the first and the last goes, and times become vaguer, not wrong.
    """

    def __init__(self) -> None:
        self._observations: list[_EndObservation] = []

    def __len__(self) -> int:
        return len(self._observations)

    @property
    def newest(self) -> int | None:
        """The offset that the next message gets, as last seen."""
        return self._observations[-1].offset if self._observations else None

    def observe(self, newest: int, at: float) -> None:
        """At that time the queue ended at `newest`."""
        observations = self._observations
        # Less than before: a queue made anew, or a replica that is behind answers for its master.
        while observations and observations[-1].offset > newest:
            observations.pop()
        if observations and observations[-1].offset == newest:
            observations[-1].until = max(at, observations[-1].until)
            observations[-1].exact = False
            return
        observations.append(_EndObservation(newest, at, at))
        self._thin()

    def observe_unchanged(self, at: float) -> None:
        """At that time the queue still ended where it was last seen."""
        if self._observations:
            self.observe(self._observations[-1].offset, at)

    def set_store_time(self, offset: int, at: float) -> None:
        """The message at `offset` was stored at that time, by the broker's clock."""
        observations = self._observations
        index = bisect_left(observations, offset, key=attrgetter("offset"))
        if index == len(observations) or observations[index].offset > offset:
            observations.insert(
                index, _EndObservation(offset, observations[index - 1].until if index else at, at)
            )
        reach = observations[index]
        # Two clocks may disagree, and must not put later messages before earlier ones.
        latest = observations[index + 1].since if index + 1 < len(observations) else math.inf
        reach.until = min(max(at, reach.since), latest)
        reach.since = min(reach.since, reach.until)
        reach.exact = True
        self._thin()

    def forget_before(self, offset: int) -> None:
        """Nobody asks for messages before `offset` any more."""
        observations = self._observations
        del observations[: max(0, bisect_right(observations, offset, key=attrgetter("offset")) - 1)]

    def arrival_of(self, offset: int) -> Arrival | None:
        """When the message at `offset` came; None where the queue does not reach that far."""
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
