"""The consume queue of one topic and queue id: where its messages are in the commit log.

Entries of 20 bytes: `int64 physical offset, int32 size, int64 tags code`
(Apache RocketMQ 5.3.3, ConsumeQueue).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import ClassVar, Final

from .entry_file import PLACEHOLDER_SIZE
from .entry_files import EntryFiles
from .extension import ConsumeQueueExt, is_ext_address
from .queue_resources import QueueResources

Entry = tuple[int, int, int]

QUEUE_ENTRY: Final = Struct(">qiq")
QUEUE_ENTRY_BYTES: Final = QUEUE_ENTRY.size
_pack_entry: Final = QUEUE_ENTRY.pack
_unpack_entry: Callable[[bytes], Entry] = QUEUE_ENTRY.unpack
_PLACEHOLDER: Final = QUEUE_ENTRY.pack(0, PLACEHOLDER_SIZE, 0)
_PLACEHOLDERS_AT_ONCE: Final = 1000


class ConsumeQueue(EntryFiles):
    """Entries of one queue, appended to in order.

    `next_offset` is the offset of the next message, `max_offset` the end of the messages that consumers see.
    They differ while messages in the log are not flushed yet: the appender raises `next_offset` for such a
    message, and calls `put` later.
    """

    entry_bytes: ClassVar[int] = QUEUE_ENTRY_BYTES
    size_setting: ClassVar[str] = "mappedFileSizeConsumeQueue"
    is_batch: ClassVar[bool] = False  # whether entries hold several messages, see BatchConsumeQueue

    __slots__ = ("ext", "max_offset", "min_offset", "next_offset", "queue_id", "topic")

    def __init__(
        self,
        folder: Path | str,
        topic: str,
        queue_id: int,
        file_bytes: int,
        resources: QueueResources | None = None,
    ) -> None:
        super().__init__(folder, file_bytes, resources)
        self.topic = topic
        self.queue_id = queue_id
        self.min_offset = 0
        self.max_offset = 0
        self.next_offset = 0
        self.ext: ConsumeQueueExt | None = None  # if there are extension files

    @property
    def reported_min_offset(self) -> int:
        """The first offset as clients are told."""
        return self.min_offset

    # --- appending ---

    def put(
        self, physical_offset: int, size: int, tags_code: int, store_timestamp_ms: int = 0, messages: int = 1
    ) -> None:
        """Append one entry. Only batch queues keep the store time and the number of messages."""
        self._tail += _pack_entry(physical_offset, size, tags_code)
        self.max_offset = offset = self.max_offset + 1
        if offset > self.next_offset:  # noqa: PLR1730 (max() takes as long as all the rest)
            self.next_offset = offset
        if not self._is_noted:
            self._note_unwritten()

    def put_many(self, entries: bytes) -> None:
        """Append packed entries."""
        self._tail += entries
        self.max_offset = offset = self.max_offset + len(entries) // QUEUE_ENTRY_BYTES
        if offset > self.next_offset:  # noqa: PLR1730 (max() takes as long as all the rest)
            self.next_offset = offset
        if not self._is_noted:
            self._note_unwritten()

    # --- reading ---

    def read(self, offset: int, count: int) -> bytes:
        """Return up to `count` packed entries from `offset` on, at most to the end of their file.

        Raises OSError; blocks.
        """
        if not self.min_offset <= offset < self.max_offset:
            return b""
        return self._read(
            offset * QUEUE_ENTRY_BYTES, min(offset + count, self.max_offset) * QUEUE_ENTRY_BYTES
        )

    def read_now(self, offset: int, count: int) -> bytes | None:
        """Read without blocking; None if the disk is needed."""
        if not self.min_offset <= offset < self.max_offset:
            return b""
        return self._read_now(
            offset * QUEUE_ENTRY_BYTES, min(offset + count, self.max_offset) * QUEUE_ENTRY_BYTES
        )

    def entry(self, offset: int) -> Entry | None:
        """Return a message's physical offset, size and tags code; None if there is no message."""
        raw = self.read(offset, 1)
        found = _unpack_entry(raw) if raw else None
        return None if found is None or found[1] == PLACEHOLDER_SIZE else found

    def entries(self, offset: int, max_count: int) -> list[Entry]:
        """Return the entries of up to `max_count` offsets from `offset` on, without those of gaps.

        Raises OSError; blocks.
        """
        end = min(offset + max_count, self.max_offset)
        offset = max(offset, self.min_offset)
        found: list[Entry] = []
        while offset < end and (raw := self.read(offset, end - offset)):
            found += [entry for entry in QUEUE_ENTRY.iter_unpack(raw) if entry[1] != PLACEHOLDER_SIZE]
            offset += len(raw) // QUEUE_ENTRY_BYTES
        return found

    def first_physical_offset(self) -> int | None:
        """Return where message 0 is in the log; None if it is not in the queue (any more). Does not block."""
        place = self._first_place() if self.min_offset <= 0 < self.max_offset else None
        return None if place is None or place[1] == PLACEHOLDER_SIZE else place[0]

    def last_entry(self) -> Entry | None:
        """Return the newest entry."""
        return self.entry(self.max_offset - 1)

    def first_of_entry(self, offset: int) -> int:
        """Return the first offset of the record that holds a message; without batches its own."""
        return offset

    def next_message(self, offset: int) -> int:
        """Return the first offset from `offset` on that has an entry, skipping a gap."""
        while raw := self.read(offset, _PLACEHOLDERS_AT_ONCE):
            count = len(raw) // QUEUE_ENTRY_BYTES
            if raw != _PLACEHOLDER * count:
                sizes = [entry[1] for entry in QUEUE_ENTRY.iter_unpack(raw)]
                return offset + next(i for i, size in enumerate(sizes) if size != PLACEHOLDER_SIZE)
            offset += count
        return offset

    def tags_code(self, stored: int) -> int | None:
        """Return the tags code for an entry's value, which may be an address in the extension files.

        None if there is no such unit: the message matches every subscription then, as with Apache's broker.
        """
        if not is_ext_address(stored):
            return stored
        return None if self.ext is None else self.ext.tags_code(stored)

    def offset_by_time(
        self, timestamp_ms: int, store_time: Callable[[int], int], *, upper: bool = False
    ) -> int:
        """Return the first message stored at or after a time, or the end of the queue if there is none.

        `upper`: the last message stored at or before it, or the beginning of the queue. `store_time` returns
        the time of the record at a physical offset, -1 if there is none (Apache RocketMQ 5.3.3,
        ConsumeQueue.binarySearchInQueueByTime). Raises OSError; blocks.
        """
        wanted = timestamp_ms + 1 if upper else timestamp_ms
        low, high = self.min_offset, self.max_offset
        while low < high:
            middle = (low + high) // 2
            entry = self.entry(middle)
            if entry is None or store_time(entry[0]) < wanted:
                low = middle + 1
            else:
                high = middle
        return max(self.min_offset, low - 1) if upper else low

    @property
    def is_empty(self) -> bool:
        """Whether there is no message."""
        return self.min_offset >= self.max_offset

    # --- correcting, in recovery ---

    def cut_at(self, offset: int) -> None:
        """Drop the entries from `offset` on, which becomes the offset of the next message."""
        if offset <= self.min_offset:
            self._restart_at(offset)
        else:
            self._cut_to(offset * QUEUE_ENTRY_BYTES)

    def fill_gap(self, offset: int) -> None:
        """Let the next message get `offset`; the offsets before it are a gap."""
        if self.is_empty:
            self._restart_at(offset)
        block = _PLACEHOLDER * _PLACEHOLDERS_AT_ONCE
        while self.max_offset < offset:
            self.put_many(block[: (offset - self.max_offset) * QUEUE_ENTRY_BYTES])

    def advance_min(self, log_begin: int) -> None:
        """Raise `min_offset` to the first message that is still in the log."""
        first = self.entry(self.min_offset)
        if first is not None and first[0] >= log_begin:
            return
        self.min_offset = self.next_message(self.first_from(log_begin))
        if self.ext is not None:
            first = self.entry(self.min_offset)
            if first is not None and is_ext_address(first[2]):
                self.ext.delete_before(first[2])

    def first_from(self, physical_offset: int) -> int:
        """Return the first message at or behind `physical_offset` in the log."""
        low, high = self.min_offset, self.max_offset
        while low < high:
            middle = (low + high) // 2
            candidate = self.next_message(middle)
            entry = self.entry(candidate)
            if entry is not None and entry[0] < physical_offset:
                low = candidate + 1
            else:
                high = middle
        return low

    # --- life ---

    def retire(self) -> None:
        """Show no message any more, and write no entry: the topic has been deleted. Does not block.

        `delete` follows, in a thread. For the thread that appends.
        """
        self._is_retired = self._is_noted = True
        self.min_offset = self.max_offset = self.next_offset = 0

    def delete(self) -> None:
        """Remove the files and their folder. Raises OSError; blocks."""
        super().delete()
        self._restart_at(0)
        if self.ext is not None:
            self.ext.delete()

    # --- inside ---

    def _loaded(self, first: bytes) -> None:
        self._end_changed()
        self.min_offset = self._begin // QUEUE_ENTRY_BYTES
        if not first or _unpack_entry(first)[1] == PLACEHOLDER_SIZE:
            self.min_offset = self.next_message(self.min_offset)

    def _end_changed(self) -> None:
        self.max_offset = self.next_offset = self._end // QUEUE_ENTRY_BYTES

    def _min_position(self) -> int:
        return self.min_offset * QUEUE_ENTRY_BYTES

    def _restart_at(self, offset: int) -> None:
        position = offset * QUEUE_ENTRY_BYTES
        self._remove_all(position, _PLACEHOLDER * (position % self._file_bytes // QUEUE_ENTRY_BYTES))
        self.min_offset = self.max_offset = self.next_offset = offset
