"""Find the transactions in progress at a start, from the queues of half and op messages."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from rmq_remoting.message_properties import PROPERTY_TRANSACTION_ID

from ..delivery.inner_message import StoredMessage, read_message
from ..topics.names import TRANSACTION_HALF_TOPIC, TRANSACTION_OP_TOPIC
from .half_messages import HALF_QUEUE_ID, HalfMessage, property_text
from .op_messages import OP_QUEUE_ID, half_offsets_in

if TYPE_CHECKING:
    from ..store.api import MessageStore
    from .half_messages import HalfMessages
    from .op_messages import OpMessages

log = logging.getLogger("rmq.broker.transactions")

_ENTRIES: Final = 1000


class Recovery:
    """Reads both queues once; blocks."""

    def __init__(self, store: MessageStore, halves: HalfMessages, ops: OpMessages) -> None:
        self._store = store
        self._halves = halves
        self._ops = ops
        # The first offsets of open transactions by group and transaction id; a retried send repeats its id.
        self._first_offsets: dict[tuple[str, str], list[int]] = {}

    def run(self, half_begin: int, op_begin: int) -> list[int]:
        """Find the transactions that have not ended, from these queue offsets on.

        Returns the offsets of half messages that were appended again just before a crash: they are finished,
        but without an op message. Raises OSError.
        """
        ended: set[int] = set()
        superseded: list[int] = []
        for op_offset, physical_offset in self._entries(TRANSACTION_OP_TOPIC, OP_QUEUE_ID, op_begin):
            record = self._store.record_at(physical_offset)
            offsets = [] if record is None else half_offsets_in(read_message(record).message.body)
            self._ops.read(op_offset, offsets)
            ended.update(offsets)
        for queue_offset, physical_offset in self._entries(TRANSACTION_HALF_TOPIC, HALF_QUEUE_ID, half_begin):
            has_ended = queue_offset in ended
            if not has_ended or self._halves:  # else no transaction is open that it could be a copy of
                superseded += self._read(physical_offset, has_ended)
        if self._halves:
            log.info("transactions in progress loaded transactions=%d", len(self._halves))
        return superseded

    def _read(self, physical_offset: int, has_ended: bool) -> list[int]:
        """Read a record; return the offset of the open record that it is a copy of, if there is one."""
        stored = self._stored(physical_offset)
        half = None if stored is None else HalfMessage.of(stored)
        if stored is None or half is None:
            log.error("half message skipped, it cannot be read physical_offset=%d", physical_offset)
            return []
        transaction = (half.group, property_text(stored.message.properties, PROPERTY_TRANSACTION_ID))
        before = self._copied(half, transaction)
        if before is not None:
            half.first_offset = before.first_offset
        if has_ended:
            self._halves.forget(half.first_offset)
        else:
            if half.first_offset != half.queue_offset:
                self._date_back(half)
            if before is None:
                self._first_offsets.setdefault(transaction, []).append(half.first_offset)
            self._halves.add(half)
        return [] if before is None else [before.queue_offset]

    def _copied(self, half: HalfMessage, transaction: tuple[str, str]) -> HalfMessage | None:
        """Return the half message that this one is a copy of, made by a check; None if it is not a copy.

        Copies made by Apache's broker do not name their first record. It commits its offsets every five
        seconds, and after a kill checks each of the copies made since.
        """
        if half.first_offset != half.queue_offset:
            return self._halves.get(half.first_offset)
        for first_offset in self._first_offsets.get(transaction, ()) if half.checks else ():
            before = self._halves.get(first_offset)
            if before is not None and before.checks == half.checks - 1:
                return before
        return None

    def _date_back(self, half: HalfMessage) -> None:
        """Take the begin of the transaction from its first record, if that still exists."""
        first_ms = self._store.store_time_at(TRANSACTION_HALF_TOPIC, HALF_QUEUE_ID, half.first_offset)
        if 0 <= first_ms <= half.stored_ms:
            half.since_ms = first_ms

    def _stored(self, physical_offset: int) -> StoredMessage | None:
        record = self._store.record_at(physical_offset)
        return None if record is None else read_message(record)

    def _entries(self, topic: str, queue_id: int, begin: int) -> Iterator[tuple[int, int]]:
        """Iterate over the queue offsets and physical offsets of the messages from `begin` on."""
        offset, end = begin, self._store.max_offset(topic, queue_id)
        while offset < end:
            count = min(_ENTRIES, end - offset)
            entries = self._store.queue_entries(topic, queue_id, offset, count) or []
            if len(entries) == count:
                for index, entry in enumerate(entries):
                    yield offset + index, entry[0]
            elif entries:
                yield from self._entries_one_by_one(topic, queue_id, offset, count)
            offset += count

    def _entries_one_by_one(
        self, topic: str, queue_id: int, begin: int, count: int
    ) -> Iterator[tuple[int, int]]:
        """As `_entries`, for a range of `count` offsets with missing entries, which are skipped."""
        for offset in range(begin, begin + count):
            for entry in self._store.queue_entries(topic, queue_id, offset, 1) or ():
                yield offset, entry[0]
