"""Commit the offsets from which on half and op messages are needed, in `consumerOffset.json`.

They are the offsets of a system group, as with Apache's broker. Here an offset is committed only when the
commit log is flushed up to the messages that it relies on: a power cut could take these, and with them half
messages that were appended again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ..groups.names import TRANSACTION_GROUP
from ..offsets.table import NO_OFFSET
from ..topics.names import TRANSACTION_HALF_TOPIC, TRANSACTION_OP_TOPIC
from .half_messages import HALF_QUEUE_ID
from .op_messages import OP_QUEUE_ID

if TYPE_CHECKING:
    from ..offsets.table import ConsumerOffsetTable
    from ..store.api import MessageStore
    from .half_messages import HalfMessages
    from .op_messages import OpMessages

# The pause between two checks of how far the log is flushed.
LOOK_SECONDS: Final = 1.0


class _Noted(NamedTuple):
    """Offsets of the existing queues by topic and queue id, and the end of the log at that moment."""

    offsets: dict[tuple[str, int], int]
    log_end: int


class Progress:
    """Commits both offsets; belongs to the loop's thread."""

    def __init__(
        self, offsets: ConsumerOffsetTable, halves: HalfMessages, ops: OpMessages, store: MessageStore
    ) -> None:
        self._offsets = offsets
        self._halves = halves
        self._ops = ops
        self._store = store
        self._noted: _Noted | None = None

    def begins(self) -> tuple[int, int]:
        """Return the offsets to read half and op messages from, within the range of their queues."""
        return (
            self._begin(TRANSACTION_HALF_TOPIC, HALF_QUEUE_ID),
            self._begin(TRANSACTION_OP_TOPIC, OP_QUEUE_ID),
        )

    def look(self) -> None:
        """Commit offsets whose messages are flushed now; to be called every `LOOK_SECONDS`."""
        noted = self._noted
        if noted is not None:
            if noted.log_end > self._store.flushed_offset:
                return
            self._commit(noted)
        self._noted = self._now()

    def stop(self) -> None:
        """Note the last offsets for `finish`; no transaction may change and `look` not be called after it."""
        self._noted = self._now()

    def finish(self) -> bool:
        """Commit the offsets noted by `stop`, after the store was closed and all of the log flushed.

        Returns whether an offset is new.
        """
        noted, self._noted = self._noted, None
        return noted is not None and self._commit(noted)

    def _now(self) -> _Noted:
        half_offset = self._halves.oldest_offset
        if half_offset is None:
            queue = self._store.queues.get(TRANSACTION_HALF_TOPIC, HALF_QUEUE_ID)
            half_offset = 0 if queue is None else queue.next_offset
        offsets = {
            (TRANSACTION_HALF_TOPIC, HALF_QUEUE_ID): half_offset,
            (TRANSACTION_OP_TOPIC, OP_QUEUE_ID): self._ops.done_before(half_offset),
        }
        # The queues do not exist before the first transaction.
        there = {
            place: offset for place, offset in offsets.items() if self._store.queues.get(*place) is not None
        }
        return _Noted(there, self._store.max_phy_offset())

    def _commit(self, noted: _Noted) -> bool:
        is_new = False
        for (topic, queue_id), offset in noted.offsets.items():
            if self._offsets.query(TRANSACTION_GROUP, topic, queue_id) != offset:
                self._offsets.put(TRANSACTION_GROUP, topic, queue_id, offset)
                is_new = True
        return is_new

    def _begin(self, topic: str, queue_id: int) -> int:
        committed = self._offsets.query(TRANSACTION_GROUP, topic, queue_id)
        lowest, end = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        return lowest if committed == NO_OFFSET else min(max(committed, lowest), end)
