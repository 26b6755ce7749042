"""What is in consumers' hands after a start: out of the journal, and out of what Apache's broker has left.

The journal is read from the oldest entry on that may matter. Entries that the timer of Apache's broker has
handed to the revive topic, and its revival has worked off there, are done with.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..offsets.table import NO_OFFSET
from ..timers.checkpoint import TimerCheckpoint
from .check_point import CheckPoint, CheckPointKey, QueueKey
from .journal import Acked, Entry, GroupForgotten, Journal, Reset

if TYPE_CHECKING:
    from ..offsets.table import ConsumerOffsetTable
    from ..store.api import MessageStore
    from .orders import OrderTable
    from .positions import Positions

# The timer hands a check point over so long before its messages are due.
_AHEAD_MS: Final = 1000


@dataclass(slots=True)
class Recovered:
    """What was found.

    `points` are in the order of the journal, `left_over` from Apache's revive topic alone. `set_back` are the
    queues whose groups had not taken notice of a reset: they go on there now.
    """

    points: list[CheckPoint] = field(default_factory=list)
    left_over: list[CheckPoint] = field(default_factory=list)
    set_back: list[QueueKey] = field(default_factory=list)
    entries_read: int = 0


class Recovery:
    """Reads everything, once; blocks."""

    def __init__(
        self,
        journal: Journal,
        positions: Positions,
        offsets: ConsumerOffsetTable,
        orders: OrderTable,
        store: MessageStore,
        broker_name: str,
    ) -> None:
        self._journal = journal
        self._positions = positions
        self._offsets = offsets
        self._orders = orders
        self._store = store
        self._broker_name = broker_name
        self._points: dict[CheckPointKey, CheckPoint] = {}
        # What waits in the revive topic for Apache's revival.
        self._left_over: dict[CheckPointKey, CheckPoint] = {}
        # Where groups go on that the committed offsets do not include.
        self._moved: dict[QueueKey, int] = {}
        # Groups that were reset, and go on as before: they have not taken notice yet.
        self._unnoticed: set[QueueKey] = set()

    def run(self, revive_topic: str, revive_queue_nums: int, timer_check_path: Path) -> Recovered:
        """Bring offsets and order up to date; what is outstanding. Raises OSError."""
        recovered = Recovered()
        included = self._positions.included_up_to
        begins = [offset for offset in (self._positions.outstanding_from, included) if offset != NO_OFFSET]
        left_over = self._left_over = self._handed_over(revive_topic, revive_queue_nums, recovered)
        for place, entry in self._journal.read(min(begins, default=0), self._broker_name):
            recovered.entries_read += 1
            if isinstance(entry, CheckPoint):
                entry.journal_offset = place.journal_offset
            is_news = included != NO_OFFSET and place.journal_offset >= included
            self._apply(entry, place.physical_offset, is_news=is_news)
        for (topic, group, queue_id), next_offset in self._moved.items():
            self._offsets.put(group, topic, queue_id, next_offset)
        recovered.set_back = sorted(self._unnoticed)
        self._orders.forget_consumed(lambda key: self._offsets.query(key.group, key.topic, key.queue_id))
        # Up to when the timer of Apache's broker has worked; ours leaves check points alone.
        timer_read_ms = TimerCheckpoint.load(timer_check_path).handed_over_ms
        for key, point in self._points.items():
            waits = key in left_over
            acked_there = left_over.pop(key, None)
            if acked_there is not None:
                point.acked |= acked_there.acked
            if not point.is_done and (waits or not _was_handed_over(point, timer_read_ms)):
                recovered.points.append(point)
        recovered.left_over = [point for point in left_over.values() if not point.is_done]
        return recovered

    def _apply(self, entry: Entry, physical_offset: int, *, is_news: bool) -> None:
        """Take an entry into account; `is_news`: the committed offsets do not include it."""
        if isinstance(entry, Acked):
            point = _ack(self._points, entry)
            if point is not None and point.is_done and point.key not in self._left_over:
                del self._points[point.key]
        elif isinstance(entry, GroupForgotten):
            self._points = {key: point for key, point in self._points.items() if key.group != entry.group}
            if is_news:
                self._forget(entry.group)
        elif isinstance(entry, CheckPoint):
            if self._is_of_queue(entry.queue_key, entry.offsets[-1], physical_offset):
                self._points.pop(entry.key, None)  # noted a second time: its place is a later one
                self._points[entry.key] = entry
                if is_news:
                    self._move(entry.queue_key, entry.next_offset)
        elif is_news:
            key = QueueKey(entry.topic, entry.group, entry.queue_id)
            if isinstance(entry, Reset):
                if not entry.offset or self._is_of_queue(key, entry.offset - 1, physical_offset):
                    self._reset(key, entry)
            elif self._is_of_queue(key, entry.info.queue_offsets()[-1], physical_offset):
                self._move(key, entry.next_offset)
                self._orders.restore(key, entry.info)

    def _forget(self, group: str) -> None:
        """A group was deleted; one of that name begins anew."""
        self._moved = {key: offset for key, offset in self._moved.items() if key.group != group}
        self._unnoticed = {key for key in self._unnoticed if key.group != group}
        self._orders.forget_group(group)

    def _is_of_queue(self, key: QueueKey, last_offset: int, entry_offset: int) -> bool:
        """Whether these are the messages that were popped: they stand in the log before what tells of them.

        After a topic was deleted and made again its queue has others in their place.
        """
        entries = self._store.queue_entries(key.topic, key.queue_id, last_offset, 1)
        if entries:
            return entries[0][0] < entry_offset
        # Those at the queue's beginning may have been deleted for their age.
        return last_offset < self._store.min_offset(key.topic, key.queue_id)

    def _reset(self, key: QueueKey, entry: Reset) -> None:
        self._positions.note_journaled(key)
        if entry.is_pending:
            self._unnoticed.add(key)
        else:
            self._unnoticed.discard(key)
            self._offsets.take_reset(key.group, key.topic, key.queue_id)
        self._moved[key] = entry.offset
        self._orders.clear(key)

    def _move(self, key: QueueKey, next_offset: int) -> None:
        self._positions.note_journaled(key)
        group, topic, queue_id = key.group, key.topic, key.queue_id
        if key in self._unnoticed or self._offsets.has_reset(group, topic, queue_id):
            return
        if next_offset > self._moved.get(key, self._offsets.query(group, topic, queue_id)):
            self._moved[key] = next_offset

    def _handed_over(
        self, revive_topic: str, revive_queue_nums: int, recovered: Recovered
    ) -> dict[CheckPointKey, CheckPoint]:
        """What waits in the revive topic for Apache's revival."""
        points: dict[CheckPointKey, CheckPoint] = {}
        for queue_id in range(revive_queue_nums):
            begin = self._positions.handed_over_done(revive_topic, queue_id) + 1
            for _, entry in self._journal.read_handed_over(queue_id, begin, self._broker_name):
                recovered.entries_read += 1
                if isinstance(entry, CheckPoint):
                    points[entry.key] = entry
                elif isinstance(entry, Acked):
                    _ack(points, entry)
        return points


def _ack(points: dict[CheckPointKey, CheckPoint], acked: Acked) -> CheckPoint | None:
    """Note what is done with; the check point, where it is known."""
    point = points.get(acked.key)
    if point is not None:
        for offset in acked.offsets:
            if offset in point.offsets:
                point.ack(offset)
    return point


def _was_handed_over(point: CheckPoint, timer_read_ms: int) -> bool:
    """Whether the timer of Apache's broker has got past the check point."""
    return point.key.pop_time <= timer_read_ms and point.revive_time - _AHEAD_MS < timer_read_ms
