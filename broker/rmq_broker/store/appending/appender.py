"""Appending: a message is written to the commit log, and gets its entries in its queue and in the index.

The entries are made from the append's arguments; `queues/dispatcher.py` makes the same entries from records
of the log. With synchronous flushing they are made once the log is flushed, and on a SYNC_MASTER once enough
replicas have the message: consumers never see a message that a power cut, or a failover, could take back
(Apache RocketMQ 5.3.3, CommitLog.getConfirmOffset).
"""

from __future__ import annotations

import errno
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from rmq_remoting.message_properties import find_value

from ..errors import MessageRejected, StoreUnavailable
from ..index.batch_keys import BatchKeys
from ..index.message_index import MessageIndex
from ..log.commit_log import CommitLog
from ..log.record import RecordTemplate
from ..queues.batch_consume_queue import BatchConsumeQueue
from ..queues.consume_queue import ConsumeQueue
from ..write_health import WriteHealth
from .record_batch import BatchMessages, BatchStamp, PackedBatch, pack_batch

# Called with the queue of each message or batch, as soon as consumers can read it.
ArrivalListener = Callable[[ConsumeQueue], None]


class Placed(NamedTuple):
    """Where a message was appended: its offsets in the commit log and in its queue, and its record's size."""

    physical_offset: int
    queue_offset: int
    size_bytes: int


class PlacedBatch(NamedTuple):
    """Where the messages of a batch were appended.

    Each message has its own offset in the commit log and its own record size. In the queue the messages take
    consecutive offsets from `queue_offset` on.
    """

    physical_offsets: Sequence[int]
    sizes_bytes: Sequence[int]
    total_bytes: int
    queue_offset: int


# Takes half the time of `Placed(...)`, which calls a Python function first; measured: 0.1 µs per append.
_new_tuple: Final = tuple.__new__


class _Unconfirmed(NamedTuple):
    """A message or batch in the log from `begin` to `end`; `enter` makes its entries."""

    end: int
    begin: int
    enter: Callable[[], None]


class Appender:
    """Appends messages; belongs to the event loop's thread."""

    def __init__(
        self,
        commit_log: CommitLog,
        index: MessageIndex,
        health: WriteHealth,
        clock: Callable[[], float] = time.time,
        defers_entries: Callable[[], bool] | None = None,
        entries_missing: Callable[[int, Exception], None] | None = None,
    ) -> None:
        """`defers_entries`: given if messages are to be flushed, or replicated, before consumers see them.

        It is called after each append, and asks for the flush. If it returns True, a message's entries are
        made in `confirmed`. If it returns False (the store has not been started), they are made at once.

        `entries_missing` is called if memory runs out after a record was appended, with the record's offset:
        the queue would give the record's place to the next message.
        """
        self._entries_missing = entries_missing
        self._log = commit_log
        self._index = index
        self._health = health
        self._clock = clock
        self._largest_record_bytes = commit_log.largest_record_bytes
        self._defers_entries = defers_entries
        self._unconfirmed: deque[_Unconfirmed] = deque()  # messages without entries, in the order of the log
        self.last_timestamp_ms = 0  # when the newest message was stored
        self.puts_failed = 0
        self._arrival_listeners: tuple[ArrivalListener, ...] = ()
        self._on_arrival = _call_all(())

    # --- one message ---

    def put(
        self,
        queue: ConsumeQueue,
        template: RecordTemplate,
        body: bytes,
        properties: bytes,
        *,
        tags_code: int,
        born_timestamp_ms: int,
        born_host: bytes,
        unique_key: bytes | None = None,
        messages: int = 1,
        delay_ms: int | None = None,
        prepared_transaction_offset: int = 0,
    ) -> Placed:
        """Append a message and return where it is. Raises StoreUnavailable, MessageRejected.

        - `unique_key`: that of the properties, if the caller knows it.
        - `messages`: how many queue offsets the record takes; more than one for a batch that is one record.
        - `delay_ms`: the delay of a delayed message. Its entry holds the time when it is due instead of the
          tags code.
        - `prepared_transaction_offset`: the log offset of the half message of a committed message.
        """
        size = template.fixed_bytes + len(body) + len(properties)
        if self._health.refusal is not None:
            raise StoreUnavailable(self._health.refusal)
        if size > self._largest_record_bytes:
            raise MessageRejected(self._too_large("message" if messages == 1 else "batch", size))
        try:
            file = self._log.file_for_append(size)
        except OSError as error:
            raise self._disk_error(error) from error
        position = file.wrote
        physical_offset = file.start + position
        queue_offset = queue.next_offset
        now_ms = int(self._clock() * 1000)
        if delay_ms is not None:
            tags_code = now_ms + delay_ms
        record = template.pack(
            size,
            body,
            properties,
            queue_offset=queue_offset,
            physical_offset=physical_offset,
            born_timestamp_ms=born_timestamp_ms,
            born_host=born_host,
            store_timestamp_ms=now_ms,
            prepared_transaction_offset=prepared_transaction_offset,
        )
        if unique_key is None:
            unique_key = find_value(properties, b"UNIQ_KEY\x01") or b""
        keys = find_value(properties, b"KEYS\x01") or b""  # `in` would take twice as long
        file.append(record)
        self.last_timestamp_ms = now_ms
        try:
            if self._defers_entries is None or not self._defers_entries():
                queue.put(physical_offset, size, tags_code, now_ms, messages)
                self._on_arrival(queue)  # before the index: a held pull does not wait for the index entry
                self._index.put(queue.topic, unique_key, keys, physical_offset, now_ms)
            else:
                queue.next_offset += messages
                entry = (physical_offset, size, tags_code, now_ms, messages)
                enter = partial(self._enter, queue, entry, unique_key, keys)
                self._enter_later(physical_offset, size, enter)
        except MemoryError as shortage:
            self._ran_out_of_memory(physical_offset, shortage)
            raise
        return _new_tuple(Placed, (physical_offset, queue_offset, size))

    # --- several ---

    def put_batch(
        self,
        queue: ConsumeQueue,
        template: RecordTemplate,
        messages: BatchMessages,
        *,
        born_timestamp_ms: int,
        born_host: bytes,
        unique_key: bytes = b"",
        has_keys: bool = True,
    ) -> PlacedBatch:
        """Append the messages of a batch, all or none. Raises StoreUnavailable, MessageRejected.

        `unique_key`: that of the batch, which all messages have; empty if each has its own. `has_keys`:
        whether a message may have KEYS.
        """
        count = len(messages.bodies)
        if not count:
            return PlacedBatch((), (), 0, queue.next_offset)
        lengths = messages.lengths()
        total = lengths.record_bytes(template, messages.shared_properties)
        if self._health.refusal is not None:
            raise StoreUnavailable(self._health.refusal)
        if total > self._largest_record_bytes:
            raise MessageRejected(self._too_large("batch", total))
        try:
            file = self._log.file_for_append(total)
        except OSError as error:
            raise self._disk_error(error) from error
        begin = file.wrote
        first_queue_offset = queue.next_offset
        now_ms = int(self._clock() * 1000)
        stamp = BatchStamp(first_queue_offset, file.start + begin, born_timestamp_ms, born_host, now_ms)
        packed = pack_batch(template, messages, lengths, stamp)
        file.append(packed.records)
        self.last_timestamp_ms = now_ms
        keys: BatchKeys | None = None
        if has_keys or not unique_key:
            keys = BatchKeys(messages.own_properties, messages.shared_properties, unique_key, has_keys)
        try:
            if self._defers_entries is None or not self._defers_entries():
                self._enter_batch(queue, packed, unique_key, keys, now_ms)
            else:
                queue.next_offset += count
                enter = partial(self._enter_batch, queue, packed, unique_key, keys, now_ms)
                self._enter_later(file.start + begin, total, enter)
        except MemoryError as shortage:
            self._ran_out_of_memory(file.start + begin, shortage)
            raise
        return PlacedBatch(packed.offsets, packed.sizes, total, first_queue_offset)

    def _enter(
        self, queue: ConsumeQueue, entry: tuple[int, int, int, int, int], unique_key: bytes, keys: bytes
    ) -> None:
        """Make a message's entries. `put` repeats these steps: a call costs as much as one of them."""
        queue.put(*entry)
        self._on_arrival(queue)
        self._index.put(queue.topic, unique_key, keys, entry[0], entry[3])

    def _enter_batch(
        self,
        queue: ConsumeQueue,
        packed: PackedBatch,
        unique_key: bytes,
        keys: BatchKeys | None,
        timestamp_ms: int,
    ) -> None:
        """Make a batch's entries. `keys`: None if all messages have the unique key and no other."""
        queue.put_many(packed.entries)
        self._on_arrival(queue)
        if keys is None:
            self._index.put_batch(queue.topic, unique_key, packed.entries, timestamp_ms)
        else:
            self._index.put_messages(queue.topic, keys, packed.offsets, timestamp_ms)

    # --- batches stored as one record ---

    def put_unit(
        self,
        queue: BatchConsumeQueue,
        template: RecordTemplate,
        body: bytes,
        properties: bytes,
        count: int,
        *,
        tags_code: int,
        born_timestamp_ms: int,
        born_host: bytes,
        unique_key: bytes,
    ) -> Placed:
        """Append a batch of `count` messages as one record. Raises StoreUnavailable, MessageRejected.

        Recovery rebuilds the batch's entry from its properties, so they get the number of messages and the
        first offset (Apache RocketMQ 5.3.3, BatchConsumeQueue.assignQueueOffset).
        """
        properties += b"INNER_NUM\x01%d\x02INNER_BASE\x01%d\x02" % (count, queue.next_offset)
        if len(properties) > template.max_properties_bytes:
            raise MessageRejected(
                f"the batch's properties take {len(properties)} bytes in the store, the limit is "
                f"{template.max_properties_bytes}"
            )
        return self.put(
            queue,
            template,
            body,
            properties,
            tags_code=tags_code,
            born_timestamp_ms=born_timestamp_ms,
            born_host=born_host,
            unique_key=unique_key,
            messages=count,
        )

    # --- arrivals ---

    def add_arrival_listener(self, listener: ArrivalListener) -> None:
        """Call `listener` for each message or batch, after the listeners added before it."""
        if listener not in self._arrival_listeners:
            self._arrival_listeners += (listener,)
            self._on_arrival = _call_all(self._arrival_listeners)

    def remove_arrival_listener(self, listener: ArrivalListener) -> None:
        """Call `listener` no longer."""
        self._arrival_listeners = tuple(each for each in self._arrival_listeners if each != listener)
        self._on_arrival = _call_all(self._arrival_listeners)

    def notify_arrival(self, queue: ConsumeQueue, store_timestamp_ms: int) -> None:
        """Note a message that was appended by other means, and tell the listeners."""
        self.last_timestamp_ms = store_timestamp_ms
        self._on_arrival(queue)

    # --- messages that wait for their confirmation ---

    def confirmed(self, offset: int) -> None:
        """Make the entries of messages before `offset`, up to which consumers may see the log."""
        unconfirmed = self._unconfirmed
        while unconfirmed and unconfirmed[0].end <= offset:
            message = unconfirmed.popleft()
            try:
                message.enter()
            except MemoryError as error:
                self._ran_out_of_memory(message.begin, error)
                return  # a start makes the entries of this message and of those behind it

    def _enter_later(self, begin: int, size: int, enter: Callable[[], None]) -> None:
        self._unconfirmed.append(_Unconfirmed(begin + size, begin, enter))

    @property
    def entries_end(self) -> int:
        """The log offset up to which every message has its entries."""
        return self._unconfirmed[0].begin if self._unconfirmed else self._log.max_offset

    # --- errors ---

    def _ran_out_of_memory(self, physical_offset: int, error: MemoryError) -> None:
        if self._entries_missing is not None:
            self._entries_missing(physical_offset, error)

    def _too_large(self, what: str, size: int) -> str:
        return (
            f"the {what} takes {size} bytes in the store, more than fit a commit log file: "
            f"{self._largest_record_bytes} (mappedFileSizeCommitLog - 8)"
        )

    def _disk_error(self, error: OSError) -> StoreUnavailable:
        self.puts_failed += 1
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StoreUnavailable(f"no room for the message on the disk of {self._log.folder}: {error}")
        if error.errno in (errno.EMFILE, errno.ENFILE):
            return StoreUnavailable(
                f"too many files are open; raise LimitNOFILE (systemd) or ulimit -n: {error}"
            )
        return StoreUnavailable(f"no file for the message can be made in {self._log.folder}: {error}")


def _call_all(listeners: tuple[ArrivalListener, ...]) -> ArrivalListener:
    """Return one function for all listeners: with a single listener, an append costs one call."""
    if len(listeners) == 1:
        return listeners[0]
    return partial(_call_each, listeners)


def _call_each(listeners: tuple[ArrivalListener, ...], queue: ConsumeQueue) -> None:
    for listener in listeners:
        listener(queue)
