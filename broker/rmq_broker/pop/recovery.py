"""Recovery of the messages in flight: from the journal, and from entries that Apache's broker has left.

The journal is read from the oldest entry that may matter. Entries that the timer of Apache's broker has
delivered to the revive topic, and that its revival has processed there, do not matter any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..offsets.table import NO_OFFSET
from ..timers.checkpoint import TimerCheckpoint
from .check_point import CheckPoint, CheckPointKey, QueueKey
from .journal import Acked, Entry, GroupDeleted, Reset
from .journal_reader import JournalReader

if TYPE_CHECKING:
    from ..offsets.table import ConsumerOffsetTable
    from ..store.api import MessageStore
    from .orders import OrderTable
    from .positions import Positions

# Apache's timer delivers a check point this long before the invisible time of its messages ends.
_AHEAD_MS: Final = 1000


@dataclass(slots=True)
class Recovered:
    """The recovered state.

    `points` are in the order of the journal, those `from_revive_topic` stand in Apache's revive topic alone.
    `pending_resets` are queues with a reset that was not applied before the stop: it is applied now.
    """

    points: list[CheckPoint] = field(default_factory=list)
    from_revive_topic: list[CheckPoint] = field(default_factory=list)
    pending_resets: list[QueueKey] = field(default_factory=list)
    entries_read: int = 0


class Recovery:
    """Reads the journal and the revive topic once.

    `run` blocks, and may run in a thread. `apply` changes the offsets, which belong to the loop.
    """

    def __init__(
        self,
        journal: JournalReader,
        positions: Positions,
        offsets: ConsumerOffsetTable,
        orders: OrderTable,
        store: MessageStore,
    ) -> None:
        self._journal = journal
        self._positions = positions
        self._offsets = offsets
        self._orders = orders
        self._store = store
        self._points: dict[CheckPointKey, CheckPoint] = {}
        # Check points in the revive topic that Apache's revival has not processed.
        self._from_revive_topic: dict[CheckPointKey, CheckPoint] = {}
        # Next offsets that the committed offsets do not include.
        self._next_offsets: dict[QueueKey, int] = {}
        # Queues with a reset that was requested and not applied.
        self._pending_resets: set[QueueKey] = set()
        # Queues with a reset that was applied.
        self._applied_resets: set[QueueKey] = set()

    def run(self, revive_topic: str, revive_queue_nums: int, timer_check_path: Path) -> Recovered:
        """Read everything, and return the messages in flight; `apply` follows. Raises OSError."""
        recovered = Recovered()
        included = self._positions.included_up_to
        begins = [offset for offset in (self._positions.outstanding_from, included) if offset != NO_OFFSET]
        from_revive_topic = self._handed_over(revive_topic, revive_queue_nums, recovered)
        self._from_revive_topic = from_revive_topic
        for place, entry in self._journal.read(min(begins, default=0)):
            recovered.entries_read += 1
            if isinstance(entry, CheckPoint):
                entry.journal_offset = place.journal_offset
            is_news = included != NO_OFFSET and place.journal_offset >= included
            self._apply(entry, place.physical_offset, is_news=is_news)
        recovered.pending_resets = sorted(self._pending_resets)
        # Up to when the timer of Apache's broker has delivered. This broker's timer skips check points.
        timer_read_ms = TimerCheckpoint.load(timer_check_path).handed_over_ms
        for key, point in self._points.items():
            waits = key in from_revive_topic
            acked_there = from_revive_topic.pop(key, None)
            if acked_there is not None:
                point.acked |= acked_there.acked
            if not point.is_complete and (waits or not _was_handed_over(point, timer_read_ms)):
                recovered.points.append(point)
        recovered.from_revive_topic = [point for point in from_revive_topic.values() if not point.is_complete]
        return recovered

    def apply(self) -> None:
        """Bring offsets and ordered pops up to date."""
        for topic, group, queue_id in self._applied_resets:
            self._offsets.take_reset(group, topic, queue_id)
        for (topic, group, queue_id), next_offset in self._next_offsets.items():
            self._offsets.put(group, topic, queue_id, next_offset)
        self._orders.forget_consumed(lambda key: self._offsets.query(key.group, key.topic, key.queue_id))

    def _apply(self, entry: Entry, physical_offset: int, *, is_news: bool) -> None:
        """Apply an entry. `is_news`: the committed offsets do not include it."""
        if isinstance(entry, Acked):
            point = _ack(self._points, entry)
            if point is not None and point.is_complete and point.key not in self._from_revive_topic:
                del self._points[point.key]
        elif isinstance(entry, GroupDeleted):
            self._points = {key: point for key, point in self._points.items() if key.group != entry.group}
            if is_news:
                self._forget(entry.group)
        elif isinstance(entry, CheckPoint):
            if self._is_of_queue(entry.queue_key, entry.offsets[-1], physical_offset):
                self._points.pop(entry.key, None)  # written a second time, at a later place
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
        """Forget a deleted group: a new group of the same name begins without it."""
        self._next_offsets = {key: offset for key, offset in self._next_offsets.items() if key.group != group}
        self._pending_resets = {key for key in self._pending_resets if key.group != group}
        self._orders.forget_group(group)

    def _is_of_queue(self, key: QueueKey, last_offset: int, entry_offset: int) -> bool:
        """Tell whether the queue still holds the popped messages: they precede their entry in the log.

        A recreated topic has other messages at these offsets.
        """
        entries = self._store.queue_entries(key.topic, key.queue_id, last_offset, 1)
        if entries:
            return entries[0][0] < entry_offset
        # Messages at the beginning of the queue may have been deleted by retention.
        return last_offset < self._store.min_offset(key.topic, key.queue_id)

    def _reset(self, key: QueueKey, entry: Reset) -> None:
        self._positions.note_journaled(key)
        if entry.is_pending:
            self._pending_resets.add(key)
        else:
            self._pending_resets.discard(key)
            self._applied_resets.add(key)
        self._next_offsets[key] = entry.offset
        self._orders.clear(key)

    def _move(self, key: QueueKey, next_offset: int) -> None:
        self._positions.note_journaled(key)
        group, topic, queue_id = key.group, key.topic, key.queue_id
        if key in self._pending_resets:
            return
        if key not in self._applied_resets and self._offsets.has_reset(group, topic, queue_id):
            return
        if next_offset > self._next_offsets.get(key, self._offsets.query(group, topic, queue_id)):
            self._next_offsets[key] = next_offset

    def _handed_over(
        self, revive_topic: str, revive_queue_nums: int, recovered: Recovered
    ) -> dict[CheckPointKey, CheckPoint]:
        """Return the check points in the revive topic that Apache's revival has not processed."""
        points: dict[CheckPointKey, CheckPoint] = {}
        for queue_id in range(revive_queue_nums):
            begin = self._positions.handed_over_done(revive_topic, queue_id) + 1
            for _, entry in self._journal.read_handed_over(queue_id, begin):
                recovered.entries_read += 1
                if isinstance(entry, CheckPoint):
                    points[entry.key] = entry
                elif isinstance(entry, Acked):
                    _ack(points, entry)
        return points


def _ack(points: dict[CheckPointKey, CheckPoint], acked: Acked) -> CheckPoint | None:
    """Apply an acknowledgement, and return its check point if it is known."""
    point = points.get(acked.key)
    if point is not None:
        for offset in acked.offsets:
            if offset in point.offsets:
                point.ack(offset)
    return point


def _was_handed_over(point: CheckPoint, timer_read_ms: int) -> bool:
    """Tell whether the timer of Apache's broker has delivered the check point."""
    return point.key.pop_time <= timer_read_ms and point.revive_time - _AHEAD_MS < timer_read_ms
