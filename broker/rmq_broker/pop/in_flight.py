"""What consumers have in their hands: the check points that are not done with, by key and by time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator
from itertools import count
from typing import Final

from .check_point import CheckPoint, CheckPointKey, QueueKey
from .retry_topics import normal_topic

# So many check points that are done with are remembered until they would have been due: who acknowledges
# twice, because an answer was lost, is told that it is well.
_MAX_DONE: Final = 50_000
# So many entries of the heap may be for nothing, besides one for each that is not.
_MAX_STALE: Final = 1000


class InFlight:
    """Check points under way; belongs to the loop."""

    def __init__(self, on_fewer: Callable[[QueueKey], None]) -> None:
        """`on_fewer` is called with each queue of which a group has fewer messages in flight than before."""
        self._on_fewer = on_fewer
        # In the order of the journal: the first is the oldest.
        self._points: dict[CheckPointKey, CheckPoint] = {}
        self._due: list[tuple[int, int, CheckPoint]] = []
        # What came out of `due` and may still be on its way back.
        self._overdue: dict[CheckPointKey, CheckPoint] = {}
        self._numbers = count()
        self._messages: dict[QueueKey, int] = {}
        self._done: dict[CheckPointKey, CheckPoint] = {}

    def __len__(self) -> int:
        return len(self._points)

    def __contains__(self, key: CheckPointKey) -> bool:
        return key in self._points or key in self._done

    def __iter__(self) -> Iterator[CheckPoint]:
        return iter(list(self._points.values()))

    def get(self, key: CheckPointKey) -> CheckPoint | None:
        """The check point, also one that is done with but was not due yet."""
        return self._points.get(key) or self._done.get(key)

    def messages_of(self, key: QueueKey) -> int:
        """How many messages of a queue a group has not acknowledged."""
        return self._messages.get(key, 0)

    @property
    def messages(self) -> int:
        """How many messages there are in all."""
        return sum(self._messages.values())

    def by_group(self) -> dict[tuple[str, str], int]:
        """How many there are by group and topic."""
        counts: dict[tuple[str, str], int] = {}
        for key, messages in self._messages.items():
            place = key.group, key.topic
            counts[place] = counts.get(place, 0) + messages
        return counts

    @property
    def oldest_journal_offset(self) -> int | None:
        """Where the journal has to be read from to know all of this; None where there is nothing."""
        return next((point.journal_offset for point in self._points.values()), None)

    @property
    def earliest_revive_time(self) -> int | None:
        """No message is due earlier; None where there is nothing."""
        overdue = self._overdue
        while overdue and (key := next(iter(overdue))) not in self._points:
            del overdue[key]
        times = [point.revive_time for point in overdue.values()]
        if self._due:
            times.append(self._due[0][0])
        return min(times, default=None)

    def add(self, point: CheckPoint) -> None:
        """Messages were popped. They have to come in the order of the journal."""
        self._points[point.key] = point
        self.look_again(point, point.revive_time)
        key = point.queue_key
        self._messages[key] = self._messages.get(key, 0) + len(point.remaining())

    def ack(self, point: CheckPoint, offset: int, *, is_consumed: bool = True) -> None:
        """A message is done with: consumed, or come back. Raises ValueError for a stranger."""
        if not point.ack(offset):
            return
        self._count_down(point.queue_key, 1)
        if point.is_done and self._points.pop(point.key, None) is not None and is_consumed:
            if len(self._done) >= _MAX_DONE:
                del self._done[next(iter(self._done))]
            self._done[point.key] = point

    def due(self, now_ms: int) -> Iterator[CheckPoint]:
        """Take out the check points whose time has come, the earliest first."""
        while self._due and self._due[0][0] <= now_ms:
            point = heapq.heappop(self._due)[2]
            if self._done.pop(point.key, None) is None and self._points.get(point.key) is point:
                self._overdue[point.key] = point
                yield point

    def look_again(self, point: CheckPoint, at_ms: int) -> None:
        """Have a check point come out of `due` at that time."""
        if len(self._due) > 2 * (len(self._points) + len(self._done)) + _MAX_STALE:
            self._due = [entry for entry in self._due if self.get(entry[2].key) is entry[2]]
            heapq.heapify(self._due)
        heapq.heappush(self._due, (at_ms, next(self._numbers), point))

    def drop(self, point: CheckPoint) -> None:
        """Forget a check point, done with or not."""
        if self._points.pop(point.key, None) is not None:
            self._count_down(point.queue_key, len(point.remaining()))

    def forget_topics(self, topics: Collection[str]) -> None:
        """Topics were deleted: nothing of them comes back."""
        for point in self:
            key = point.key
            if key.topic in topics or normal_topic(key.topic, key.group) in topics:
                self.drop(point)

    def _count_down(self, key: QueueKey, messages: int) -> None:
        left = self._messages.get(key, 0) - messages
        if left > 0:
            self._messages[key] = left
        else:
            self._messages.pop(key, None)
        self._on_fewer(key)
