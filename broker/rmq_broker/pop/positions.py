"""Positions: the next offset that a group pops from a queue, and when it becomes the committed offset.

A position runs ahead of the committed offset. It is committed once the check point of the messages before it
is flushed. Otherwise a power cut could leave a committed offset behind messages of which no check point is
left, and nothing would redeliver them. Beside the offsets stands up to where they include the journal. A
crash therefore does not repeat pops that followed the last write of the offsets (Apache's broker delivers
those messages again).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from ..offsets.table import NO_OFFSET, ConsumerOffsetTable
from ..topics.names import TIMER_TOPIC
from .check_point import QueueKey
from .journal import ENTRIES_QUEUE_ID, Written

# System groups; docs/durability.md describes their entries in consumerOffset.json.
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
_INCLUDED_GROUP: Final = "CID_RMQ_SYS_POP_INCLUDED"


class _Pending(NamedTuple):
    """A position whose check point may not be flushed; `journal_offset` is None if it has no check point."""

    key: QueueKey
    next_offset: int
    log_end: int
    journal_offset: int | None


class Positions:
    """The positions of all groups; belongs to the loop."""

    def __init__(
        self,
        offsets: ConsumerOffsetTable,
        on_reset: Callable[[QueueKey, int], None],
        on_pending: Callable[[], None],
    ) -> None:
        """`on_reset` is called with the queue and the offset of each reset.

        `on_pending` is called when there are positions to be committed.
        """
        self._offsets = offsets
        self._pending: deque[_Pending] = deque()
        # By queue: the furthest position, and how many positions are pending.
        self._furthest: dict[QueueKey, tuple[int, int]] = {}
        # Queues whose positions follow from the journal.
        self._journaled: set[QueueKey] = set()
        self._on_reset = on_reset
        self._on_pending = on_pending

    def get(self, key: QueueKey) -> int:
        """Return the offset that the group pops next; NO_OFFSET if it has not consumed the queue yet."""
        committed = self._offsets.query(key.group, key.topic, key.queue_id)
        ahead = self._furthest.get(key)
        return committed if ahead is None else max(committed, ahead[0])

    def is_journaled(self, key: QueueKey) -> bool:
        """Tell whether the group's position follows from the journal: then resets are journaled, too."""
        return key in self._journaled

    def note_journaled(self, key: QueueKey) -> None:
        """Let the group's position follow from the journal from now on."""
        self._journaled.add(key)

    def advance(self, key: QueueKey, next_offset: int, written: Written | None = None) -> None:
        """Move the position behind popped messages, with their check point `written`, or skipped ones."""
        ahead = self._furthest.get(key)
        self._furthest[key] = (next_offset, 1 if ahead is None else ahead[1] + 1)
        log_end = self._pending[-1].log_end if self._pending else 0
        journal_offset = None
        if written is not None:
            self._journaled.add(key)
            log_end, journal_offset = written.log_end, written.journal_offset
        self._pending.append(_Pending(key, next_offset, log_end, journal_offset))
        self._on_pending()

    def commit_flushed(self, flushed_offset: int) -> None:
        """Commit the positions whose check points are in the log before `flushed_offset`."""
        pending, included = self._pending, None
        while pending and pending[0].log_end <= flushed_offset:
            key, next_offset, _, journal_offset = pending.popleft()
            included = journal_offset if journal_offset is not None else included
            ahead = self._furthest.get(key)
            if ahead is None:
                continue  # the group was reset meanwhile
            if next_offset > self._offsets.query(key.group, key.topic, key.queue_id):
                self._offsets.commit(key.group, key.topic, key.queue_id, next_offset)
            if ahead[1] == 1:
                del self._furthest[key]
            else:
                self._furthest[key] = (ahead[0], ahead[1] - 1)
        if included is not None:
            self.include(included + 1)

    def commit_before(self, first_open: Mapping[QueueKey, int]) -> None:
        """Commit each position up to the first open message of its queue, while nothing is journaled."""
        self._pending.clear()
        for key, (furthest, _) in list(self._furthest.items()):
            offset = min(furthest, first_open.get(key, furthest))
            if offset > self._offsets.query(key.group, key.topic, key.queue_id):
                self._offsets.commit(key.group, key.topic, key.queue_id, offset)
            if offset == furthest:
                del self._furthest[key]
            else:
                self._furthest[key] = (furthest, 0)

    def __len__(self) -> int:
        """How many positions are not committed yet."""
        return len(self._pending)

    @property
    def is_committed(self) -> bool:
        """Whether every position is committed."""
        return not self._pending

    def reset(self, key: QueueKey, offset: int) -> None:
        """Let the group continue at `offset`, ahead or back."""
        self.forget(key)
        self._offsets.put(key.group, key.topic, key.queue_id, offset)
        self._on_reset(key, offset)

    def forget(self, key: QueueKey) -> None:
        """Drop the position ahead of the committed offset."""
        self._furthest.pop(key, None)
        self._pending = deque(item for item in self._pending if item.key != key)

    def clear(self) -> None:
        """Forget all positions ahead of committed offsets."""
        self._pending.clear()
        self._furthest.clear()
        self._journaled.clear()

    def forget_topics(self, topics: Collection[str]) -> None:
        """Forget deleted topics."""
        self._pending = deque(item for item in self._pending if item.key.topic not in topics)
        for key in [key for key in self._furthest if key.topic in topics]:
            del self._furthest[key]
        self._journaled = {key for key in self._journaled if key.topic not in topics}

    def forget_group(self, group: str) -> bool:
        """Forget a deleted group; tell whether the journal has entries of it."""
        self._pending = deque(item for item in self._pending if item.key.group != group)
        for key in [key for key in self._furthest if key.group == group]:
            del self._furthest[key]
        journaled = {key for key in self._journaled if key.group == group}
        self._journaled -= journaled
        return bool(journaled)

    # --- up to where the journal is included, and from where it is open ---

    @property
    def included_up_to(self) -> int:
        """The committed offsets include the journal up to this offset; NO_OFFSET if unknown."""
        return self._offsets.query(_INCLUDED_GROUP, TIMER_TOPIC, ENTRIES_QUEUE_ID)

    @property
    def outstanding_from(self) -> int:
        """No check point before this journal offset is open; NO_OFFSET if unknown."""
        return self._offsets.query(REVIVE_GROUP, TIMER_TOPIC, ENTRIES_QUEUE_ID)

    def set_outstanding_from(self, journal_offset: int) -> None:
        """Set from where the next start reads the journal."""
        if journal_offset != self.outstanding_from:
            self._offsets.put(REVIVE_GROUP, TIMER_TOPIC, ENTRIES_QUEUE_ID, journal_offset)

    def include(self, journal_offset: int) -> None:
        """Note that the committed offsets include the journal up to this offset."""
        if journal_offset > self.included_up_to:
            self._offsets.commit(_INCLUDED_GROUP, TIMER_TOPIC, ENTRIES_QUEUE_ID, journal_offset)

    def started(self, journal_end: int, oldest: int | None) -> None:
        """Begin after a recovery that read the journal to its end; `oldest` is the first open check point.

        Both marks stay as they are until the log is flushed. Only the first start sets them, and a start
        after a power cut that has taken the end of the journal sets them back.
        """
        begin = journal_end if oldest is None else oldest
        if self.included_up_to == NO_OFFSET or self.included_up_to > journal_end:
            self._offsets.put(_INCLUDED_GROUP, TIMER_TOPIC, ENTRIES_QUEUE_ID, journal_end)
        if self.outstanding_from == NO_OFFSET or self.outstanding_from > begin:
            self.set_outstanding_from(begin)

    # --- entries that the timer of Apache's broker has delivered to the revive topic ---

    def handed_over_done(self, revive_topic: str, queue_id: int) -> int:
        """Return the last entry of a revive queue that needs no more work; NO_OFFSET if there is none."""
        return self._offsets.query(REVIVE_GROUP, revive_topic, queue_id)

    def mark_handed_over_done(self, revive_topic: str, queue_id: int, offset: int) -> None:
        """Commit it under the group that Apache's broker uses."""
        self._offsets.commit(REVIVE_GROUP, revive_topic, queue_id, offset)
