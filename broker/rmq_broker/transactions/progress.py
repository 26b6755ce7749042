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
    from ..store.api import MessageStore
    from .half_messages import HalfMessages
    from .op_messages import OpMessages

# How often it is looked at how much of the log is on the disk.
LOOK_SECONDS: Final = 1.0


class _Noted(NamedTuple):
    """Offsets by topic and queue at some moment, of those that are there, and where the log ended then."""

    offsets: dict[tuple[str, int], int]
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

    def stop(self) -> None:
        """Note how far things are, for `finish`: nothing comes any more; `look` is not to be called again."""
        self._noted = self._now()

    def finish(self) -> bool:
        """Commit what `stop` noted: the store has been closed, and all of the log is on the disk.

        Tells whether any offset is new.
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
        # The queues are not there where there never was a transaction.
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
