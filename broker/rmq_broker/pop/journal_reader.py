"""Reading the journal of POP, at the start of the broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from rmq_remoting.bodies.pop import AckMsg, BatchAckMsg, OrderAck, PopCheckPoint
from rmq_remoting.errors import BodyError
from rmq_remoting.message_codec import decode_stored_message
from rmq_remoting.message_errors import MessageDecodeError

from ..topics.names import TIMER_TOPIC
from .check_point import CheckPoint, CheckPointKey
from .journal import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECK_POINT_TAG,
    ENTRIES_QUEUE_ID,
    PENDING_RESET,
    Acked,
    Entry,
    GroupDeleted,
    OrderProgress,
    Reset,
)

if TYPE_CHECKING:
    from ..store.api import MessageStore

_READ_ENTRIES: Final = 1000


class Place(NamedTuple):
    """The place of a read entry: its offset in the journal's queue, and its offset in the log."""

    journal_offset: int
    physical_offset: int


class JournalReader:
    """Reads the journal's entries, also those that Apache's timer has delivered; blocks."""

    def __init__(self, store: MessageStore, revive_topic: str, broker_name: str) -> None:
        """`broker_name`: of the pops whose entries name none."""
        self._store = store
        self._revive_topic = revive_topic
        self._broker_name = broker_name

    def read(self, begin: int) -> Iterator[tuple[Place, Entry]]:
        """Yield the entries from `begin` on with their places; skip other messages. Raises OSError."""
        yield from self._read(
            TIMER_TOPIC,
            ENTRIES_QUEUE_ID,
            begin,
            lambda properties: properties.get("REAL_TOPIC") == self._revive_topic,
        )

    def read_handed_over(self, queue_id: int, begin: int) -> Iterator[tuple[Place, Entry]]:
        """Yield the entries that Apache's timer has delivered to a revive queue. Raises OSError."""
        yield from self._read(self._revive_topic, queue_id, begin, lambda properties: True)

    def _read(
        self, topic: str, queue_id: int, begin: int, wanted: Callable[[dict[str, str]], bool]
    ) -> Iterator[tuple[Place, Entry]]:
        offset = max(begin, self._store.min_offset(topic, queue_id))
        end = self._store.max_offset(topic, queue_id)
        while offset < end:
            entries = self._store.queue_entries(topic, queue_id, offset, min(_READ_ENTRIES, end - offset))
            if not entries:
                return
            for index, (physical_offset, _, _) in enumerate(entries):
                record = self._store.record_at(physical_offset)
                entry = None if record is None else _entry_of(record, self._broker_name, wanted)
                if entry is not None:
                    yield Place(offset + index, physical_offset), entry
            offset += len(entries)


def _entry_of(record: bytes, broker_name: str, wanted: Callable[[dict[str, str]], bool]) -> Entry | None:
    """Return the entry in a record; None for any other message, whoever wrote it."""
    try:
        message = decode_stored_message(record)
        if not wanted(message.properties):
            return None
        tag = message.properties.get("TAGS")
        if tag == CHECK_POINT_TAG:
            revive_queue = message.properties.get("REAL_QID", "")
            return _check_point_of(message.body, broker_name, int(revive_queue or message.queue_id))
        if tag == ACK_TAG:
            return _ack_of(message.body, broker_name)
        if tag == BATCH_ACK_TAG:
            batch = BatchAckMsg.decode(message.body)
            return Acked(_key_of(batch, broker_name), tuple(batch.ack_offset_list))
    except (MessageDecodeError, BodyError, ValueError):
        return None
    return None


def _check_point_of(body: bytes, broker_name: str, revive_queue_id: int) -> CheckPoint | None:
    data = PopCheckPoint.decode(body)
    if data.topic is None or data.consumer_group is None:
        return None
    # Old brokers write no list: the messages are consecutive.
    diffs = data.queue_offset_diff or list(range(data.message_count))
    if not diffs:
        return None
    key = CheckPointKey(
        data.topic,
        data.consumer_group,
        data.queue_id,
        data.start_offset,
        data.pop_time,
        data.broker_name or broker_name,
    )
    offsets = tuple(data.start_offset + diff for diff in diffs)
    return CheckPoint(key, data.invisible_time_ms, offsets, revive_queue_id)


def _ack_of(body: bytes, broker_name: str) -> Entry:
    ack = OrderAck.decode(body)
    if ack.next_offset is not None:
        place = (ack.topic or "", ack.consumer_group or "", ack.queue_id)
        if not ack.topic:
            return GroupDeleted(ack.consumer_group or "")
        if ack.order is None:
            return Reset(*place, ack.next_offset, is_pending=ack.ack_offset == PENDING_RESET)
        return OrderProgress(*place, ack.next_offset, ack.order)
    return Acked(_key_of(ack, broker_name), (ack.ack_offset,))


def _key_of(ack: AckMsg, broker_name: str) -> CheckPointKey:
    return CheckPointKey(
        ack.topic or "",
        ack.consumer_group or "",
        ack.queue_id,
        ack.start_offset,
        ack.pop_time,
        ack.broker_name or broker_name,
    )
