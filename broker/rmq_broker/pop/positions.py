"""Where groups go on popping, and when that becomes a committed offset.

A position runs ahead of the committed offset: it is committed once the check point of what was popped before
it is on the disk, or a power cut could leave an offset that says "consumed" of messages that nobody knows to
bring back. Beside the offsets stands how much of the journal they include, so that what was popped after the
offsets were last written is not popped again after a crash (Apache's broker gives it out again).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from ..offsets.table import NO_OFFSET, ConsumerOffsetTable
from ..topics.names import TIMER_TOPIC
from .check_point import QueueKey
from .journal import ENTRIES_QUEUE_ID, Written

# Groups of the system; what stands in consumerOffset.json under them is said in docs/durability.md.
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
_INCLUDED_GROUP: Final = "CID_RMQ_SYS_POP_INCLUDED"


class _Pending(NamedTuple):
    """A position that waits for the disk; `journal_offset` is None where nothing was popped before it."""

    key: QueueKey
    next_offset: int
    log_end: int
    journal_offset: int | None


class Positions:
    """The positions of all groups; belongs to the loop."""

    def __init__(self, offsets: ConsumerOffsetTable) -> None:
        self._offsets = offsets
        self._pending: deque[_Pending] = deque()
        # By queue, the furthest position and how many are pending.
        self._furthest: dict[QueueKey, tuple[int, int]] = {}
        # Whose positions the journal has something to say of.
        self._journaled: set[QueueKey] = set()
        self._on_reset: Callable[[QueueKey, int], None] = lambda key, offset: None

    def get(self, key: QueueKey) -> int:
        """Where the group goes on in the queue; NO_OFFSET where it has not begun."""
        committed = self._offsets.query(key.group, key.topic, key.queue_id)
        ahead = self._furthest.get(key)
        return committed if ahead is None else max(committed, ahead[0])

    def is_journaled(self, key: QueueKey) -> bool:
        """Whether the journal says how far the group is in the queue: then it has to say of a reset, too."""
        return key in self._journaled

    def note_journaled(self, key: QueueKey) -> None:
        """It does from now on."""
        self._journaled.add(key)

    def advance(self, key: QueueKey, next_offset: int, written: Written | None = None) -> None:
        """Messages up to there were popped, with their check point in the journal, or passed over."""
        ahead = self._furthest.get(key)
        self._furthest[key] = (next_offset, 1 if ahead is None else ahead[1] + 1)
        log_end = self._pending[-1].log_end if self._pending else 0
        journal_offset = None
        if written is not None:
            self._journaled.add(key)
            log_end, journal_offset = written.log_end, written.journal_offset
        self._pending.append(_Pending(key, next_offset, log_end, journal_offset))

    def settle(self, flushed_offset: int) -> None:
        """Commit what is on the disk: the log is, up to `flushed_offset`."""
        pending, included = self._pending, None
        while pending and pending[0].log_end <= flushed_offset:
            key, next_offset, _, journal_offset = pending.popleft()
            included = journal_offset if journal_offset is not None else included
            ahead = self._furthest.get(key)
            if ahead is None:
                continue  # was reset meanwhile
            if next_offset > self._offsets.query(key.group, key.topic, key.queue_id):
                self._offsets.commit(key.group, key.topic, key.queue_id, next_offset)
            if ahead[1] == 1:
                del self._furthest[key]
            else:
                self._furthest[key] = (ahead[0], ahead[1] - 1)
        if included is not None:
            self.include(included + 1)

    def __len__(self) -> int:
        """How many positions wait for the disk."""
        return len(self._pending)

    @property
    def is_settled(self) -> bool:
        """Whether every position is committed."""
        return not self._pending

    def on_reset(self, listener: Callable[[QueueKey, int], None]) -> None:
        """Have `listener` called with each queue and offset where a group goes on elsewhere."""
        self._on_reset = listener

    def reset(self, key: QueueKey, offset: int) -> None:
        """Have the group go on there, ahead or back."""
        self.forget(key)
        self._offsets.put(key.group, key.topic, key.queue_id, offset)
        self._on_reset(key, offset)

    def forget(self, key: QueueKey) -> None:
        """The committed offset counts, not what was popped ahead of it."""
        self._furthest.pop(key, None)
        self._pending = deque(item for item in self._pending if item.key != key)

    def forget_topics(self, topics: Collection[str]) -> None:
        """Topics were deleted."""
        self._pending = deque(item for item in self._pending if item.key.topic not in topics)
        for key in [key for key in self._furthest if key.topic in topics]:
            del self._furthest[key]
        self._journaled = {key for key in self._journaled if key.topic not in topics}

    def forget_group(self, group: str) -> bool:
        """A group was deleted; whether the journal has something to say of it."""
        self._pending = deque(item for item in self._pending if item.key.group != group)
        for key in [key for key in self._furthest if key.group == group]:
            del self._furthest[key]
        journaled = {key for key in self._journaled if key.group == group}
        self._journaled -= journaled
        return bool(journaled)

    # --- how much of the journal counts ---

    @property
    def included_up_to(self) -> int:
        """Entries of the journal before this one are in the committed offsets; NO_OFFSET: nobody said."""
        return self._offsets.query(_INCLUDED_GROUP, TIMER_TOPIC, ENTRIES_QUEUE_ID)

    @property
    def outstanding_from(self) -> int:
        """Entries of the journal before this one are done with; NO_OFFSET: nobody said."""
        return self._offsets.query(REVIVE_GROUP, TIMER_TOPIC, ENTRIES_QUEUE_ID)

    def keep_outstanding_from(self, journal_offset: int) -> None:
        """Note what the journal has to be read from at the next start."""
        if journal_offset != self.outstanding_from:
            self._offsets.put(REVIVE_GROUP, TIMER_TOPIC, ENTRIES_QUEUE_ID, journal_offset)

    def include(self, journal_offset: int) -> None:
        """Entries of the journal before this one are in the committed offsets from now on."""
        if journal_offset > self.included_up_to:
            self._offsets.commit(_INCLUDED_GROUP, TIMER_TOPIC, ENTRIES_QUEUE_ID, journal_offset)

    def started(self, journal_end: int, oldest: int | None) -> None:
        """The journal was read up to its end; `oldest` is the first entry that matters, if one does.

        Where it is to be read from next time stays as it is until the log is flushed; at the very first start
        it is said for the first time, and where a power cut took the journal's end, taken back.
        """
        begin = journal_end if oldest is None else oldest
        if self.included_up_to == NO_OFFSET or self.included_up_to > journal_end:
            self._offsets.put(_INCLUDED_GROUP, TIMER_TOPIC, ENTRIES_QUEUE_ID, journal_end)
        if self.outstanding_from == NO_OFFSET or self.outstanding_from > begin:
            self.keep_outstanding_from(begin)

    # --- what the timer of Apache's broker has handed over ---

    def handed_over_done(self, revive_topic: str, queue_id: int) -> int:
        """The last entry of a queue of the revive topic that is done with; NO_OFFSET: none is."""
        return self._offsets.query(REVIVE_GROUP, revive_topic, queue_id)

    def mark_handed_over_done(self, revive_topic: str, queue_id: int, offset: int) -> None:
        """Note it, as Apache's broker does."""
        self._offsets.commit(REVIVE_GROUP, revive_topic, queue_id, offset)
