"""The consume queue of a topic with the attribute `queue.type=BatchCQ`: a record may be a batch.

Entries of 46 bytes: `int64 physical offset, int32 size, int64 tags code, int64 store time, int64 offset of
the first message, int16 number of messages, int32 compacted offset, int32 reserved` (Apache RocketMQ 5.3.3,
BatchConsumeQueue). A single message is a batch of one.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from .consume_queue import QUEUE_ENTRY, ConsumeQueue, Entry

BATCH_ENTRY: Final = Struct(">qiqqqhii")
BATCH_ENTRY_BYTES: Final = BATCH_ENTRY.size
LARGEST_BATCH: Final = 32767
_NOT_COMPACTED: Final = -1
_pack_batch_entry: Final = BATCH_ENTRY.pack
# Reads the entries of a range of positions; None: they are not in memory now.
_Read = Callable[[int, int], bytes | None]


class BatchEntry(NamedTuple):
    """Messages that are one record."""

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp_ms: int
    base_offset: int
    messages: int

    @property
    def end_offset(self) -> int:
        """The offset after the last message."""
        return self.base_offset + self.messages


def batch_entries(raw: bytes) -> list[BatchEntry]:
    """Unpack the entries that `read` returned."""
    return [BatchEntry(*fields[:6]) for fields in BATCH_ENTRY.iter_unpack(raw)]


class _Cold(Exception):
    """An entry is not in memory: the search would need the disk."""


class BatchConsumeQueue(ConsumeQueue):
    """A consume queue whose entries hold several offsets: they are searched for, and gaps take no space."""

    entry_bytes: ClassVar[int] = BATCH_ENTRY_BYTES
    size_setting: ClassVar[str] = "mapperFileSizeBatchConsumeQueue"
    is_batch: ClassVar[bool] = True

    __slots__ = ()

    @property
    def reported_min_offset(self) -> int:
        """The first offset as clients are told: -1 before the first message.

        (Apache RocketMQ 5.3.3, BatchConsumeQueue.reviseMinOffsetInQueue.)
        """
        return -1 if self._end == self._begin else self.min_offset

    # --- appending ---

    def put(
        self, physical_offset: int, size: int, tags_code: int, store_timestamp_ms: int = 0, messages: int = 1
    ) -> None:
        """Append one entry for `messages` messages."""
        base = self.max_offset
        self._tail += _pack_batch_entry(
            physical_offset, size, tags_code, store_timestamp_ms, base, messages, _NOT_COMPACTED, 0
        )
        self.max_offset = offset = base + messages
        self.next_offset = max(self.next_offset, offset)
        if not self._is_noted:
            self._note_unwritten()

    def put_many(self, entries: bytes, store_timestamp_ms: int = 0) -> None:
        """Append packed entries of 20 bytes, each of one message."""
        for physical_offset, size, tags_code in QUEUE_ENTRY.iter_unpack(entries):
            self.put(physical_offset, size, tags_code, store_timestamp_ms)

    # --- reading ---

    def read(self, offset: int, count: int) -> bytes:
        """Return up to `count` packed entries from the one that holds `offset` on. Raises OSError; blocks."""
        if not self.min_offset <= offset < self.max_offset:
            return b""
        position = self._position_of(offset)
        return self._read(position, min(position + count * BATCH_ENTRY_BYTES, self._end))

    def read_now(self, offset: int, count: int) -> bytes | None:
        """Read without blocking; None if the disk is needed."""
        if not self.min_offset <= offset < self.max_offset:
            return b""
        try:
            position = self._position_of(offset, self._read_now)
        except _Cold:
            return None
        return self._read_now(position, min(position + count * BATCH_ENTRY_BYTES, self._end))

    def batch_entry(self, offset: int) -> BatchEntry | None:
        """Return the entry that holds a message; None if there is none. Raises OSError; blocks."""
        for unit in batch_entries(self.read(offset, 1)):
            if unit.base_offset <= offset < unit.end_offset:
                return unit
        return None

    def entry(self, offset: int) -> Entry | None:
        """Return physical offset, size and tags code of the record with a message; None if there is none."""
        unit = self.batch_entry(offset)
        return None if unit is None else unit[:3]

    def entries(self, offset: int, max_count: int) -> list[Entry]:
        """Return the entries of up to `max_count` offsets from `offset` on, without those of gaps.

        Raises OSError; blocks.
        """
        end = min(offset + max_count, self.max_offset)
        offset = max(offset, self.min_offset)
        found: list[Entry] = []
        while offset < end:
            begin = offset
            for unit in batch_entries(self.read(offset, end - offset)):
                messages = min(unit.end_offset, end) - max(unit.base_offset, offset)
                found += [unit[:3]] * messages
                offset = max(offset, min(unit.end_offset, end))
            if offset == begin and (offset := self.next_message(begin)) == begin:
                break
        return found

    def first_of_entry(self, offset: int) -> int:
        """Return the first offset of the record that holds a message."""
        unit = self.batch_entry(offset)
        return offset if unit is None else unit.base_offset

    def next_message(self, offset: int) -> int:
        """Return the first offset from `offset` on that has an entry, skipping a gap."""
        for unit in batch_entries(self.read(offset, 2)):
            if unit.end_offset > offset:
                return max(offset, unit.base_offset)
        unit_behind = self._entry_at(self._position_of(offset) + BATCH_ENTRY_BYTES, self._read)
        return offset if unit_behind is None else max(offset, unit_behind.base_offset)

    def offset_by_time(
        self, timestamp_ms: int, store_time: Callable[[int], int], *, upper: bool = False
    ) -> int:
        """Return the first message of the first record stored at or after a time, else of the last record.

        `upper`: of the last record stored at or before it, else of the first record. -1 without messages.
        Times are those in the entries (Apache RocketMQ 5.3.3, BatchConsumeQueue.getOffsetInQueueByTime, whose
        upper answer is -1 for a time between two records). Raises OSError; blocks.
        """
        begin = self._min_position()
        if begin >= self._end:
            return -1
        wanted = timestamp_ms + 1 if upper else timestamp_ms
        position = self._search(begin, self._read, _store_time, wanted)
        if upper:
            position -= BATCH_ENTRY_BYTES
        unit = self._entry_at(min(max(position, begin), self._end - BATCH_ENTRY_BYTES), self._read)
        return -1 if unit is None else max(self.min_offset, unit.base_offset)

    # --- correcting, in recovery ---

    def cut_at(self, offset: int) -> None:
        """Drop the entries from that of `offset` on, which becomes the offset of the next message."""
        if offset <= self.min_offset:
            self._restart_at(offset)
        elif offset < self.max_offset:
            position = self._position_of(offset)
            unit = self._entry_at(position, self._read)
            behind = unit is not None and unit.end_offset <= offset
            self._cut_to(position + BATCH_ENTRY_BYTES if behind else position)
            self.max_offset = self.next_offset = offset

    def fill_gap(self, offset: int) -> None:
        """Let the next message get `offset`; the offsets before it are a gap."""
        if self.is_empty:
            self._restart_at(offset)
        self.max_offset = offset
        self.next_offset = max(self.next_offset, offset)

    # --- inside ---

    def _loaded(self, first: bytes) -> None:
        self._end_changed()
        unit = (
            BatchEntry(*BATCH_ENTRY.unpack(first)[:6]) if first else self._entry_at(self._begin, self._read)
        )
        self.min_offset = self.max_offset if unit is None else unit.base_offset

    def _end_changed(self) -> None:
        last = self._entry_at(self._end - BATCH_ENTRY_BYTES, self._read)
        self.max_offset = self.next_offset = 0 if last is None else last.end_offset
        self.min_offset = min(self.min_offset, self.max_offset)

    def _min_position(self) -> int:
        if self.is_empty:
            return self._end
        return self._position_of(self.min_offset)

    def _restart_at(self, offset: int) -> None:
        self._remove_all(0)
        self.min_offset = self.max_offset = self.next_offset = offset

    def _position_of(self, offset: int, read: _Read | None = None) -> int:
        """The position of the last entry that begins at or before `offset`, else of the first entry."""
        read = self._read if read is None else read
        begin = self._first_in_memory()
        first = self._entry_at(begin, read)
        if first is None or first.base_offset > offset:
            begin = self._begin
        position = self._search(begin, read, _base_offset, offset + 1)
        return max(begin, position - BATCH_ENTRY_BYTES)

    def _first_in_memory(self) -> int:
        """The position of the first complete entry in memory, or of the queue's first entry."""
        behind = self._tail_begin + BATCH_ENTRY_BYTES - 1
        return max(self._begin, behind - behind % BATCH_ENTRY_BYTES)

    def _search(self, begin: int, read: _Read, value: Callable[[BatchEntry], int], bound: int) -> int:
        """The position of the first entry from `begin` on whose value reaches a bound, or the end."""
        low, high = begin // BATCH_ENTRY_BYTES, self._end // BATCH_ENTRY_BYTES
        while low < high:
            middle = (low + high) // 2
            unit = self._entry_at(middle * BATCH_ENTRY_BYTES, read)
            if unit is not None and value(unit) < bound:
                low = middle + 1
            else:
                high = middle
        return low * BATCH_ENTRY_BYTES

    def _entry_at(self, position: int, read: _Read) -> BatchEntry | None:
        if not self._begin <= position < self._end:
            return None
        raw = read(position, position + BATCH_ENTRY_BYTES)
        if raw is None:
            raise _Cold
        return BatchEntry(*BATCH_ENTRY.unpack(raw)[:6]) if raw else None


def _base_offset(entry: BatchEntry) -> int:
    return entry.base_offset


def _store_time(entry: BatchEntry) -> int:
    return entry.store_timestamp_ms
