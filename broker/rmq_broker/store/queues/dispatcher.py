"""Making queue entries from records of the log, in recovery and on a replica.

The append path makes the same entries from its arguments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final
from zlib import crc32

from rmq_remoting.java_hash import tags_code
from rmq_remoting.message_properties import find_property, find_value
from rmq_remoting.sys_flags import MessageSysFlag

from ..delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from ..log.commit_log import CommitLog
from ..log.plain_record import (
    MAX_PLAIN_TOPIC_BYTES,
    PLAIN_HEAD_BYTES,
    PLAIN_MAGIC,
    UNUSUAL_BITS,
    unpack_plain_head,
)
from ..log.record import CRC_PROPERTY_BYTES, MIN_RECORD_BYTES, RecordSummary
from .batch_consume_queue import LARGEST_BATCH
from .consume_queue import ConsumeQueue
from .consume_queues import ConsumeQueues

log = logging.getLogger("rmq.store.dispatch")

_crc32: Final = crc32
_SHORT_BYTES: Final = 255  # of tags whose hash is kept in memory
_TAGS: Final = b"TAGS\x01"  # as it begins in a record's properties
_SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
_TRANSACTION_BITS: Final = MessageSysFlag.TRANSACTION_MASK
_CRC_NAME: Final = b"__CRC32#\x01"
_WITHOUT_ENTRY: Final = (MessageSysFlag.TRANSACTION_PREPARED, MessageSysFlag.TRANSACTION_ROLLBACK)


def tags_code_of(record: RecordSummary, levels: DelayLevels = DEFAULT_DELAY_LEVELS) -> int:
    """Return the hash of a message's tags, 0 without tags; for a delayed message the time when it is due."""
    if record.topic == _SCHEDULE_TOPIC:
        level = find_property(record.properties, b"DELAY")
        if level is not None and level.isdigit() and int(level) > 0:
            return record.store_timestamp_ms + levels.delay_ms(int(level))
    tags = find_value(record.properties, _TAGS)
    return _hash_of(tags) if tags else 0


def _hash_of(tags: bytes) -> int:
    return _hash_of_short(tags) if len(tags) <= _SHORT_BYTES else tags_code(tags.decode("utf-8", "replace"))


@lru_cache(maxsize=4096)
def _hash_of_short(tags: bytes) -> int:
    return tags_code(tags.decode("utf-8", "replace"))


def messages_in(record: RecordSummary) -> int:
    """Return how many messages a record of a topic of batches holds; 1 if it is no batch.

    Apache RocketMQ 5.3.3, CommitLog.setBatchSizeIfNeeded, requires both properties. Any producer can send
    them, so the flag is required, too, which only a broker sets.
    """
    if not record.sys_flag & MessageSysFlag.INNER_BATCH:
        return 1
    count = find_property(record.properties, b"INNER_NUM")
    if count is None or find_property(record.properties, b"INNER_BASE") is None:
        return 1
    return min(int(count), LARGEST_BATCH) if count.isdigit() and int(count) > 0 else 1


class Dispatcher:
    """Makes queue entries for the records of a log that is read in order.

    The queues have been cut to the entries before the first record. No checksum covers a record's queue
    offset: an offset that does not follow the one before it is checked against the log.
    """

    def __init__(
        self,
        queues: ConsumeQueues,
        commit_log: CommitLog,
        deleted: Mapping[str, int],
        *,
        fill_gaps: bool,
        index: Callable[[RecordSummary], None] | None = None,
        levels: DelayLevels = DEFAULT_DELAY_LEVELS,
    ) -> None:
        """`deleted`: topics, and the log's end when each was deleted.

        `fill_gaps`: entries that a queue lacks are not in the log either. `index` is called with the records
        that can be found by key.
        """
        self._queues = queues
        self._log = commit_log
        self._deleted = deleted
        self._fill_gaps = fill_gaps
        self._index = index
        self._levels = levels
        # With `fill_gaps` off: queues that lack earlier entries, and the log offset where their entries end.
        self.gaps: dict[ConsumeQueue, int] = {}
        # Queues whose records `dispatch_plain` takes, by topic and queue id.
        self._plain: dict[bytes, dict[int, ConsumeQueue]] = {}
        self.last_timestamp_ms = 0  # of the last record that `dispatch_plain` took

    def dispatch(self, record: RecordSummary) -> None:
        """Make the record's entries."""
        kind = record.sys_flag & _TRANSACTION_BITS
        topic = record.topic
        if self._deleted and record.physical_offset < self._deleted.get(topic, 0):
            return
        # A half message is in the index, though in no queue; a message that was rolled back is in neither
        # (IndexService).
        if self._index is not None and kind != MessageSysFlag.TRANSACTION_ROLLBACK:
            self._index(record)
        if kind in _WITHOUT_ENTRY:
            return
        queue = self._queues.get_or_create(topic, record.queue_id)
        if record.queue_offset != queue.max_offset and not self._move_to(queue, record):
            return
        queue.put(
            record.physical_offset,
            record.size,
            tags_code_of(record, self._levels),
            record.store_timestamp_ms,
            messages_in(record) if queue.is_batch else 1,
        )
        if self._index is None and not queue.is_batch:
            self._allow_plain(topic, queue)

    def _allow_plain(self, topic: str, queue: ConsumeQueue) -> None:
        """Let `dispatch_plain` take the next records of a queue."""
        raw = topic.encode()
        if topic != _SCHEDULE_TOPIC and topic not in self._deleted and len(raw) <= MAX_PLAIN_TOPIC_BYTES:
            self._plain.setdefault(raw, {})[queue.queue_id] = queue

    def dispatch_plain(self, data: bytes, begin: int, offset: int, *, check_crc: bool) -> tuple[int, int]:
        """Make the entries of the records in `data` from `begin` on, as long as they are plain.

        `offset` is where `data` begins in the log. A record is plain if it is valid (see `parse_record`) and
        follows in a queue that `dispatch` has seen. Returns the position behind them, and their number.
        """
        limit, position, records = len(data), begin, 0
        while position + PLAIN_HEAD_BYTES <= limit:
            size, magic, crc, queue_id, queue_offset, physical, sys_flag, store_ms, body_bytes = (
                unpack_plain_head(data, position)
            )
            if magic != PLAIN_MAGIC or physical != offset + position or sys_flag & UNUSUAL_BITS:
                break
            body_at, stop = position + PLAIN_HEAD_BYTES, position + size
            body_end = body_at + body_bytes
            if body_bytes < 0 or size < MIN_RECORD_BYTES or stop > limit or body_end + 3 > stop:
                break
            properties_at = body_end + 3 + data[body_end]
            if properties_at > stop:
                break
            if (data[properties_at - 2] << 8 | data[properties_at - 1]) != stop - properties_at:
                break
            queues = self._plain.get(data[body_end + 1 : properties_at - 2])
            queue = None if queues is None else queues.get(queue_id)
            if queue is None or queue.max_offset != queue_offset:
                break
            if check_crc and body_bytes and _crc32(data[body_at:body_end]) & 0x7FFFFFFF != crc:
                break
            properties = data[properties_at:stop]
            if properties.startswith(_CRC_NAME, max(0, len(properties) - CRC_PROPERTY_BYTES)):
                break
            tags = find_value(properties, _TAGS)
            queue.put(physical, size, _hash_of(tags) if tags else 0, store_ms)
            self.last_timestamp_ms = store_ms
            records += 1
            position = stop
        return position, records

    def _move_to(self, queue: ConsumeQueue, record: RecordSummary) -> bool:
        """Move the queue's end to the record's queue offset; False if the record gets no entry."""
        if record.queue_offset < queue.max_offset:
            return self._go_back(queue, record)
        last = queue.last_entry()
        known, behind = (0, 0) if last is None else (queue.max_offset, last[0] + last[1])
        # Each message in between took space in the log, so their number is limited.
        records = -(-(record.queue_offset - known) // (LARGEST_BATCH if queue.is_batch else 1))
        if records * MIN_RECORD_BYTES > record.physical_offset - behind:
            _log_mismatch(queue, record, "too many for the space in the log")
            return False
        if not self._fill_gaps:
            self.gaps.setdefault(queue, behind)
            return False
        if not queue.is_empty:
            _log_mismatch(queue, record, "the messages in between are not in the log any more")
        queue.fill_gap(record.queue_offset)
        return True

    def _go_back(self, queue: ConsumeQueue, record: RecordSummary) -> bool:
        offset = record.queue_offset
        if offset > 0 and record_of(self._log, queue, offset) is not None:
            _log_mismatch(queue, record, "the log has another record for that offset")
            return False
        if 0 < offset < queue.min_offset and not self._fill_gaps:
            self.gaps[queue] = 0  # its first files got lost, with the entries before this message
            return False
        # A page of the queue got lost; or, from 0 on, another broker deleted the topic and created it again.
        queue.cut_at(offset)
        return True


def record_of(commit_log: CommitLog, queue: ConsumeQueue, offset: int) -> RecordSummary | None:
    """Return the record of a queue's entry; None if the log has another record there, or none."""
    first = queue.first_of_entry(offset)
    entry = queue.entry(offset)
    record = None if entry is None else commit_log.record_at(entry[0])
    if (
        entry is None
        or record is None
        or record.size != entry[1]
        or record.topic != queue.topic
        or record.queue_id != queue.queue_id
        or record.queue_offset != first
    ):
        return None
    return record


def _log_mismatch(queue: ConsumeQueue, record: RecordSummary, why: str) -> None:
    log.error(
        "queue offset mismatch log_offset=%d topic=%s queue=%d queue_offset=%d queue_end=%d cause=%s",
        record.physical_offset,
        queue.topic,
        queue.queue_id,
        record.queue_offset,
        queue.max_offset,
        why,
    )
