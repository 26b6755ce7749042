"""Messages in flight: the open check points, by key and by the time when they become visible again."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator
from itertools import count
from typing import Final

from rmq_remoting.daemon.demand import Demand

from ..clock import Clocks, ClockSteps
from .check_point import CheckPoint, CheckPointKey, QueueKey
from .retry_topics import normal_topic

# How many complete check points are kept until their invisible time ends. A repeated acknowledgement, whose
# first response was lost, is then answered with success: acknowledgements are idempotent.
_MAX_COMPLETE: Final = 50_000
# How many stale entries the heap may hold in addition to one stale entry per current one.
_MAX_STALE: Final = 1000


class InFlight:
    """The check points in flight; belongs to the loop."""

    def __init__(
        self,
        on_fewer: Callable[[QueueKey], None],
        clocks: Clocks,
        *,
        max_complete: int = _MAX_COMPLETE,
        max_stale: int = _MAX_STALE,
    ) -> None:
        """`on_fewer` is called with each queue of which a group has fewer messages in flight than before.

        `max_complete` check points are kept after their completion, and `max_stale` entries of the heap.
        """
        self._on_fewer = on_fewer
        self._max_complete = max_complete
        self._max_stale = max_stale
        self.demand = Demand(self._has_scheduled)  # of the task that calls `take_due`
        self._steps = ClockSteps(clocks)
        # In the order of the journal: the first is the oldest.
        self._points: dict[CheckPointKey, CheckPoint] = {}
        self._due: list[tuple[int, int, CheckPoint]] = []
        # Check points whose revive time is over, and whose messages may not be redelivered yet: those that
        # `take_due` has returned, and those of before a forward step of the clock.
        self._overdue: dict[CheckPointKey, CheckPoint] = {}
        self._numbers = count()
        self._messages: dict[QueueKey, int] = {}
        self._complete: dict[CheckPointKey, CheckPoint] = {}

    def __len__(self) -> int:
        return len(self._points)

    def __contains__(self, key: CheckPointKey) -> bool:
        return key in self._points or key in self._complete

    def __iter__(self) -> Iterator[CheckPoint]:
        return iter(list(self._points.values()))

    def get(self, key: CheckPointKey) -> CheckPoint | None:
        """Return the check point, also a complete one until its invisible time has ended."""
        return self._points.get(key) or self._complete.get(key)

    def message_count(self, key: QueueKey) -> int:
        """Return how many messages of a queue a group has in flight."""
        return self._messages.get(key, 0)

    @property
    def messages(self) -> int:
        """How many messages are in flight in all."""
        return sum(self._messages.values())

    def by_group(self) -> dict[tuple[str, str], int]:
        """Return how many messages are in flight, by group and topic."""
        counts: dict[tuple[str, str], int] = {}
        for key, messages in self._messages.items():
            place = key.group, key.topic
            counts[place] = counts.get(place, 0) + messages
        return counts

    @property
    def scheduled(self) -> int:
        """Number of scheduled ends of invisible times, those of closed check points included."""
        return len(self._due)

    @property
    def oldest_journal_offset(self) -> int | None:
        """The journal offset of the oldest open check point: recovery reads from there. None if none."""
        return next((point.journal_offset for point in self._points.values()), None)

    @property
    def earliest_revive_time(self) -> int | None:
        """The earliest end of an invisible time; None if nothing is in flight."""
        overdue = self._overdue
        while overdue and (key := next(iter(overdue))) not in self._points:
            del overdue[key]
        times = [point.revive_time for point in overdue.values()]
        if self._due:
            times.append(self._due[0][0])
        return min(times, default=None)

    def add(self, point: CheckPoint) -> None:
        """Add a check point. Check points are added in the order of the journal.

        One that was recovered after the clock was set back is due after its invisible time, not hours later.
        """
        now_ms = self._follow_clock()
        self._points[point.key] = point
        self._schedule(point, min(point.revive_time, now_ms + point.invisible_time_ms))
        key = point.queue_key
        self._messages[key] = self._messages.get(key, 0) + len(point.open_offsets())

    def ack(self, point: CheckPoint, offset: int, *, is_consumed: bool = True) -> None:
        """Close a message: acknowledged (`is_consumed`), or redelivered.

        Raises ValueError for an offset of no message.
        """
        if not point.ack(offset):
            return
        self._count_down(point.queue_key, 1)
        if point.is_complete and self._points.pop(point.key, None) is not None and is_consumed:
            if len(self._complete) >= self._max_complete:
                del self._complete[next(iter(self._complete))]
            self._complete[point.key] = point

    def take_due(self) -> CheckPoint | None:
        """Return the next check point whose invisible time has ended, each once; None if there is none.

        Invisible times are measured across steps of the clock.
        """
        now_ms = self._follow_clock()
        while self._due and self._due[0][0] <= now_ms:
            point = heapq.heappop(self._due)[2]
            if self._complete.pop(point.key, None) is None and self._points.get(point.key) is point:
                self._overdue[point.key] = point
                return point
        return None

    def reschedule(self, point: CheckPoint, in_ms: int) -> None:
        """Let `take_due` return a check point after that time."""
        self._schedule(point, self._follow_clock() + in_ms)

    def _has_scheduled(self) -> bool:
        return self.scheduled > 0

    def _schedule(self, point: CheckPoint, at_ms: int) -> None:
        if len(self._due) > 2 * (len(self._points) + len(self._complete)) + self._max_stale:
            self._due = [entry for entry in self._due if self.get(entry[2].key) is entry[2]]
            heapq.heapify(self._due)
        heapq.heappush(self._due, (at_ms, next(self._numbers), point))
        self.demand.arise()

    def drop(self, point: CheckPoint) -> None:
        """Forget a check point: its messages are not redelivered."""
        if self._points.pop(point.key, None) is not None:
            self._count_down(point.queue_key, len(point.open_offsets()))

    def clear(self) -> None:
        """Forget all check points."""
        for table in (self._points, self._overdue, self._complete):
            table.clear()
        self._messages.clear()
        self._due.clear()

    def forget_topics(self, topics: Collection[str]) -> None:
        """Forget the check points of deleted topics."""
        for point in self:
            key = point.key
            if key.topic in topics or normal_topic(key.topic, key.group) in topics:
                self.drop(point)

    def _follow_clock(self) -> int:
        """Return the time in ms; if the clock was set, move the ends of all invisible times by that step."""
        now_ms, step_ms = self._steps.look()
        if step_ms:
            self._due = [(at_ms + step_ms, number, point) for at_ms, number, point in self._due]
        if step_ms > 0:
            self._overdue |= {
                point.key: point for _, _, point in self._due if self._points.get(point.key) is point
            }
        return now_ms

    def _count_down(self, key: QueueKey, messages: int) -> None:
        left = self._messages.get(key, 0) - messages
        if left > 0:
            self._messages[key] = left
        else:
            self._messages.pop(key, None)
        self._on_fewer(key)
