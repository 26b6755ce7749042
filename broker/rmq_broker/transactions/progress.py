"""How far transactions are done with, as `consumerOffset.json` tells it.

Apache keeps there, as offsets of a group of the system, from where on the queues of half and op messages
matter. Here the file never says more than the log on the disk does: after a power cut the messages that an
offset relies on may be gone, and with them what was appended again.
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
    from ..store.message_store import MessageStore
    from .half_messages import HalfMessages
    from .op_messages import OpMessages

# How often it is looked at how much of the log is on the disk.
LOOK_SECONDS: Final = 1.0


class _Noted(NamedTuple):
    """Offsets of both queues at some moment, and where the log ended then."""

    half_offset: int
    op_offset: int
    log_end: int


class Progress:
    """Keeps both offsets up to date; belongs to the loop's thread."""

    def __init__(
        self, offsets: ConsumerOffsetTable, halves: HalfMessages, ops: OpMessages, store: MessageStore
    ) -> None:
        self._offsets = offsets
        self._halves = halves
        self._ops = ops
        self._store = store
        self._noted: _Noted | None = None

    def begins(self) -> tuple[int, int]:
        """From where on the queues of half and op messages matter, inside of what they have."""
        return (
            self._begin(TRANSACTION_HALF_TOPIC, HALF_QUEUE_ID),
            self._begin(TRANSACTION_OP_TOPIC, OP_QUEUE_ID),
        )

    def look(self) -> None:
        """Commit what has come to the disk; to be called every `LOOK_SECONDS`."""
        noted = self._noted
        if noted is not None:
            if noted.log_end > self._store.commit_log.flushed_offset:
                return
            self._commit(noted)
        self._noted = self._now()

    def finish(self) -> None:
        """Commit how far things are now: the store is about to be closed in good order."""
        self._noted = None
        self._commit(self._now())

    def _now(self) -> _Noted:
        half_offset = self._halves.oldest_offset
        if half_offset is None:
            queue = self._store.queues.get(TRANSACTION_HALF_TOPIC, HALF_QUEUE_ID)
            half_offset = 0 if queue is None else queue.next_offset
        return _Noted(half_offset, self._ops.done_before(half_offset), self._store.max_phy_offset())

    def _commit(self, noted: _Noted) -> None:
        for topic, queue_id, offset in (
            (TRANSACTION_HALF_TOPIC, HALF_QUEUE_ID, noted.half_offset),
            (TRANSACTION_OP_TOPIC, OP_QUEUE_ID, noted.op_offset),
        ):
            if self._store.queues.get(topic, queue_id) is None:
                continue  # there never was a transaction
            if self._offsets.query(TRANSACTION_GROUP, topic, queue_id) != offset:
                self._offsets.put(TRANSACTION_GROUP, topic, queue_id, offset)

    def _begin(self, topic: str, queue_id: int) -> int:
        committed = self._offsets.query(TRANSACTION_GROUP, topic, queue_id)
        lowest, end = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        return lowest if committed == NO_OFFSET else min(max(committed, lowest), end)
