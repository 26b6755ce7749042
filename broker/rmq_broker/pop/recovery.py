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
from .journal import Acked, Entry, Journal, Reset

if TYPE_CHECKING:
    from ..offsets.table import ConsumerOffsetTable
    from ..store.message_store import MessageStore
    from .orders import OrderTable
    from .positions import Positions

# The timer hands a check point over so long before its messages are due.
_AHEAD_MS: Final = 1000


@dataclass(slots=True)
class Recovered:
    """What was found; `points` in the order of the journal, `left_over` from Apache's revive topic alone."""

    points: list[CheckPoint] = field(default_factory=list)
    left_over: list[CheckPoint] = field(default_factory=list)
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

    def run(self, revive_topic: str, revive_queue_nums: int, timer_check_path: Path) -> Recovered:
        """Bring offsets and order up to date; what is outstanding. Raises OSError."""
        recovered = Recovered()
        included = self._positions.included_up_to
        begins = [offset for offset in (self._positions.outstanding_from, included) if offset != NO_OFFSET]
        points: dict[CheckPointKey, CheckPoint] = {}
        for offset, entry in self._journal.read(min(begins, default=0), self._broker_name):
            recovered.entries_read += 1
            if isinstance(entry, CheckPoint):
                entry.journal_offset = offset
            self._apply(points, entry, is_news=included != NO_OFFSET and offset >= included)
        left_over = self._handed_over(revive_topic, revive_queue_nums, recovered)
        # Up to when the timer of Apache's broker has worked; ours leaves check points alone.
        timer_read_ms = TimerCheckpoint.load(timer_check_path).handed_over_ms
        for key, point in points.items():
            waits = key in left_over
            acked_there = left_over.pop(key, None)
            if acked_there is not None:
                point.acked |= acked_there.acked
            if not point.is_done and (waits or not _was_handed_over(point, timer_read_ms)):
                recovered.points.append(point)
        recovered.left_over = [point for point in left_over.values() if not point.is_done]
        return recovered

    def _apply(self, points: dict[CheckPointKey, CheckPoint], entry: Entry, *, is_news: bool) -> None:
        """Take an entry into account; `is_news`: the committed offsets do not include it."""
        if isinstance(entry, Acked):
            _ack(points, entry)
        elif isinstance(entry, CheckPoint):
            points[entry.key] = entry
            if is_news and self._is_of_queue(entry.queue_key, entry.offsets[-1], entry.key.pop_time):
                self._move(entry.queue_key, entry.next_offset)
        elif is_news:
            key = QueueKey(entry.topic, entry.group, entry.queue_id)
            if isinstance(entry, Reset):
                self._positions.reset(key, entry.offset)
                self._orders.clear(key)
            elif self._is_of_queue(key, entry.info.queue_offsets()[-1], entry.info.pop_time):
                self._move(key, entry.next_offset)
                self._orders.restore(key, entry.info)

    def _is_of_queue(self, key: QueueKey, last_offset: int, pop_time: int) -> bool:
        """Whether these are the messages that were popped.

        After a topic was deleted and made again its queue has others in their place, stored after the pop.
        """
        stored = self._store.store_time_at(key.topic, key.queue_id, last_offset)
        return stored <= pop_time and last_offset < self._store.max_offset(key.topic, key.queue_id)

    def _move(self, key: QueueKey, next_offset: int) -> None:
        self._positions.note_journaled(key)
        # Who has popped has taken notice of a reset.
        self._offsets.take_reset(key.group, key.topic, key.queue_id)
        if next_offset > self._offsets.query(key.group, key.topic, key.queue_id):
            self._offsets.commit(key.group, key.topic, key.queue_id, next_offset)

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


def _ack(points: dict[CheckPointKey, CheckPoint], acked: Acked) -> None:
    point = points.get(acked.key)
    if point is not None:
        for offset in acked.offsets:
            if offset in point.offsets:
                point.ack(offset)


def _was_handed_over(point: CheckPoint, timer_read_ms: int) -> bool:
    """Whether the timer of Apache's broker has got past the check point."""
    return point.key.pop_time <= timer_read_ms and point.revive_time - _AHEAD_MS < timer_read_ms
