"""From a record in the log to the entries that find it: the one place that makes them.

The append path hands over what it has in its hands; recovery hands over what it read from the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from rmq_remoting.java_hash import tags_code
from rmq_remoting.message_properties import find_property
from rmq_remoting.sys_flags import MessageSysFlag

from ..delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from ..log.commit_log import CommitLog
from ..log.record import MIN_RECORD_BYTES, RecordSummary
from .batch_consume_queue import LARGEST_BATCH
from .consume_queue import ConsumeQueue
from .consume_queues import ConsumeQueues

log = logging.getLogger("rmq.store.dispatch")

_SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
_TRANSACTION_BITS: Final = MessageSysFlag.TRANSACTION_MASK
_WITHOUT_ENTRY: Final = (MessageSysFlag.TRANSACTION_PREPARED, MessageSysFlag.TRANSACTION_ROLLBACK)


def tags_code_of(record: RecordSummary, levels: DelayLevels = DEFAULT_DELAY_LEVELS) -> int:
    """The hash that consumers filter by, 0 for a message without tags; of a delayed one, when it is due."""
    if record.topic == _SCHEDULE_TOPIC:
        level = find_property(record.properties, b"DELAY")
        if level is not None and level.isdigit() and int(level) > 0:
            return record.store_timestamp_ms + levels.delay_ms(int(level))
    tags = find_property(record.properties, b"TAGS")
    return _hash_of(tags) if tags else 0


@lru_cache(maxsize=4096)
def _hash_of(tags: bytes) -> int:
    return tags_code(tags.decode("utf-8", "replace"))


def messages_in(record: RecordSummary) -> int:
    """How many messages a record of a topic of batches is, 1 for one that is no batch.

    Apache RocketMQ 5.3.3, CommitLog.setBatchSizeIfNeeded: both properties have to be there. Any producer can
    send them, so that here the flag counts as well, which only a broker sets.
    """
    if not record.sys_flag & MessageSysFlag.INNER_BATCH:
        return 1
    count = find_property(record.properties, b"INNER_NUM")
    if count is None or find_property(record.properties, b"INNER_BASE") is None:
        return 1
    return min(int(count), LARGEST_BATCH) if count.isdigit() and int(count) > 0 else 1


class Dispatcher:
    """Puts queue entries for the records of a log that is read in order: in recovery, or on a replica.

    The queues have been cut to what comes before the first record. A record's queue offset stands under no
    checksum: where it does not follow, the record is not simply believed.
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
        """`deleted`: topics, and the log's end when each was deleted. `fill_gaps`: what a queue lacks is not
        in the log either. `index` is told of records to be found by key.
        """
        self._queues = queues
        self._log = commit_log
        self._deleted = deleted
        self._fill_gaps = fill_gaps
        self._index = index
        self._levels = levels
        # With `fill_gaps` off: queues that lack entries from before, and where in the log theirs end.
        self.gaps: dict[ConsumeQueue, int] = {}

    def dispatch(self, record: RecordSummary) -> None:
        """Make the record's entries."""
        kind = record.sys_flag & _TRANSACTION_BITS
        topic = record.topic
        if self._deleted and record.physical_offset < self._deleted.get(topic, 0):
            return
        # A half message is found by key, though by no queue; a rolled back one is not (IndexService).
        if self._index is not None and kind != MessageSysFlag.TRANSACTION_ROLLBACK:
            self._index(record)
        if kind in _WITHOUT_ENTRY:
            return
        queue = self._queues.get_or_create(topic, record.queue_id)
        if record.queue_offset != queue.max_offset and not self._reach(queue, record):
            return
        queue.put(
            record.physical_offset,
            record.size,
            tags_code_of(record, self._levels),
            record.store_timestamp_ms,
            messages_in(record) if queue.is_batch else 1,
        )

    def _reach(self, queue: ConsumeQueue, record: RecordSummary) -> bool:
        """Bring the queue to where the record says that it belongs; False where it gets no entry."""
        if record.queue_offset < queue.max_offset:
            return self._go_back(queue, record)
        last = queue.last_entry()
        known, behind = (0, 0) if last is None else (queue.max_offset, last[0] + last[1])
        # Every message took its place in the log, so there cannot be more than fit.
        records = -(-(record.queue_offset - known) // (LARGEST_BATCH if queue.is_batch else 1))
        if records * MIN_RECORD_BYTES > record.physical_offset - behind:
            _complain(queue, record, "there cannot have been so many")
            return False
        if not self._fill_gaps:
            self.gaps.setdefault(queue, behind)
            return False
        if not queue.is_empty:
            _complain(queue, record, "those between are not in the log any more")
        queue.fill_gap(record.queue_offset)
        return True

    def _go_back(self, queue: ConsumeQueue, record: RecordSummary) -> bool:
        offset = record.queue_offset
        if offset > 0 and record_of(self._log, queue, offset) is not None:
            _complain(queue, record, "that one is another record")
            return False
        if 0 < offset < queue.min_offset and not self._fill_gaps:
            self.gaps[queue] = 0  # its first files got lost, with what is before this message
            return False
        # A page of the queue that got lost; or, from 0 on, a topic deleted and made again by another broker.
        queue.cut_at(offset)
        return True


def record_of(commit_log: CommitLog, queue: ConsumeQueue, offset: int) -> RecordSummary | None:
    """The record of a queue's entry; None where the log has another one in that place, or none."""
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


def _complain(queue: ConsumeQueue, record: RecordSummary, why: str) -> None:
    log.error(
        "the record at %d says that it is message %d of %s/%d, which has %d messages so far: %s",
        record.physical_offset,
        record.queue_offset,
        queue.topic,
        queue.queue_id,
        queue.max_offset,
        why,
    )
