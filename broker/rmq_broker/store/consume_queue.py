"""The queue of one topic and queue id: where its messages are in the commit log.

Entries of 20 bytes: `int64 physical offset, int32 size, int64 tags code`
(Apache RocketMQ 5.3.3, ConsumeQueue).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import pairwise
from mmap import mmap
from pathlib import Path
from struct import Struct
from typing import Final

from .mapped_file import MappedFile, file_name, open_files

log = logging.getLogger("rmq.store")

Entry = tuple[int, int, int]

ENTRY: Final = Struct(">qiq")
ENTRY_BYTES: Final = ENTRY.size
_pack_entry_into = ENTRY.pack_into
_unpack_entry: Callable[[mmap, int], Entry] = ENTRY.unpack_from
_RESERVE_STEP_BYTES: Final = 256 * 1024
# Stands where a queue has no message: before its first one in its first file (fillPreBlank), and in a gap.
PLACEHOLDER_SIZE: Final = 0x7FFFFFFF
_PLACEHOLDER: Final = ENTRY.pack(0, PLACEHOLDER_SIZE, 0)
_NOTHING: Final = (0, 0, 0)


class ConsumeQueue:
    """Appended to in order; `max_offset` is the offset that the next message gets."""

    __slots__ = (
        "_file_bytes",
        "_files",
        "_folder",
        "_last",
        "_spare",
        "lost_files",
        "max_offset",
        "min_offset",
        "queue_id",
        "topic",
    )

    def __init__(self, folder: Path, topic: str, queue_id: int, file_bytes: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.min_offset = 0
        self.max_offset = 0
        self.lost_files = False  # a file between others is missing: the queue has to be built again
        self._folder = folder
        self._file_bytes = file_bytes
        self._files: list[MappedFile] = []
        self._last: MappedFile | None = None
        self._spare: list[MappedFile] = []  # made ahead for a batch, empty

    def load(self) -> None:
        """Open the files that are there and find where they end. Raises StoreDamaged, OSError."""
        files = open_files(
            self._folder,
            self._file_bytes,
            step_bytes=_RESERVE_STEP_BYTES,
            advice="set mappedFileSizeConsumeQueue to the size that this store was made with, or remove the "
            "whole folder consumequeue: it is built again from the commit log",
        )
        holes = [i for i, (a, b) in enumerate(pairwise(files), 1) if b.start != a.start + a.size]
        if holes:
            log.error("%s lacks the file before %s", self._folder, files[holes[-1]].path.name)
            self.lost_files = True
            del files[: holes[-1]]
        if not files:
            return
        self._files = files
        self._take_as_last(files[-1])
        while len(files) > 1 and files[-1].wrote == 0:
            files.pop().delete()
            self._take_as_last(files[-1])
        self.min_offset = files[0].start // ENTRY_BYTES
        self.min_offset = self.next_message(self.min_offset)

    # --- appending ---

    def prepare(self, count: int) -> None:
        """Make sure that `count` entries can be put without an error. Raises OSError.

        Called before the log is written, so that a message never stands in the log without its entry
        because the disk became full in between.
        """
        last = self._last
        if last is None or last.wrote + count * ENTRY_BYTES > last.reserved:
            self._make_room(count * ENTRY_BYTES)

    def put(self, physical_offset: int, size: int, tags_code: int) -> None:
        """Append one entry. Raises OSError where the disk is full and `prepare` was not called."""
        last = self._last
        if last is None or last.wrote == last.size:
            last = self._roll()
        position = last.wrote
        until = position + ENTRY_BYTES
        if until > last.reserved:
            last.reserve(until)
        _pack_entry_into(last.map, position, physical_offset, size, tags_code)
        last.wrote = until
        self.max_offset += 1

    def put_many(self, entries: bytes) -> None:
        """Append entries that are packed one behind the other."""
        at = 0
        while at < len(entries):
            last = self._last
            if last is None or last.wrote == last.size:
                last = self._roll()
            position = last.wrote
            part = min(len(entries) - at, last.size - position)
            until = position + part
            if until > last.reserved:
                last.reserve(until)
            last.map[position:until] = entries[at : at + part]
            last.wrote = until
            self.max_offset += part // ENTRY_BYTES
            at += part

    # --- reading ---

    def read(self, offset: int, count: int) -> bytes:
        """Up to `count` packed entries from `offset` on, none beyond the end of their file."""
        if not self.min_offset <= offset < self.max_offset:
            return b""
        file = self._file_of(offset)
        if file is None:
            return b""
        position = offset * ENTRY_BYTES - file.start
        return file.map[position : min(file.wrote, position + count * ENTRY_BYTES)]

    def entry(self, offset: int) -> Entry | None:
        """Physical offset, size and tags code of one message; None where there is none."""
        if not self.min_offset <= offset < self.max_offset:
            return None
        file = self._file_of(offset)
        if file is None:
            return None
        found = _unpack_entry(file.map, offset * ENTRY_BYTES - file.start)
        return None if found[1] == PLACEHOLDER_SIZE else found

    def last_entry(self) -> Entry | None:
        """The newest entry."""
        return self.entry(self.max_offset - 1)

    def next_message(self, offset: int) -> int:
        """The first offset from `offset` on that has an entry: a gap is passed over."""
        while offset < self.max_offset and self.entry(offset) is None:
            offset += 1
        return offset

    @property
    def is_empty(self) -> bool:
        """Whether there is no message."""
        return self.min_offset >= self.max_offset

    # --- correcting, while the store is opened ---

    def cut(self, log_end: int) -> None:
        """Drop the entries of messages that are not in the log before `log_end`.

        After a crash of the machine pages may be missing among them: what is no entry, and what stands out of
        order, is dropped too.
        """
        while self._last is not None and not self._ends_within(self._last, log_end):
            self._drop_last_entries(self._last, log_end)

    def cut_at(self, offset: int) -> None:
        """Drop the entries from `offset` on; the next message gets this offset."""
        position = offset * ENTRY_BYTES
        if offset <= self.min_offset:
            self._restart_at(offset)
            return
        while self._files[-1].start >= position:
            self._files.pop().delete()
        last = self._files[-1]
        if position < last.start + last.size:
            last.cut(position - last.start)
        self._take_as_last(last, position - last.start)

    def fill_gap(self, offset: int) -> None:
        """Let the next message get `offset`: what is before it stays empty. Raises OSError."""
        if self.is_empty:
            self._restart_at(offset)
        block = _PLACEHOLDER * 1000
        while self.max_offset < offset:
            self.put_many(block[: (offset - self.max_offset) * ENTRY_BYTES])

    def distrust(self) -> None:
        """After a crash: nothing behind the last entry is one, and what is there may not be on the disk."""
        if self._last is not None:
            self._last.cut(self._last.wrote)
        for file in self._files:
            file.flushed = 0

    def advance_min(self, log_begin: int) -> None:
        """Let `min_offset` point at the first message that is still in the log."""
        low, high = self.min_offset, self.max_offset
        while low < high:
            middle = (low + high) // 2
            candidate = self.next_message(middle)
            entry = self.entry(candidate)
            if entry is not None and entry[0] < log_begin:
                low = candidate + 1
            else:
                high = middle
        self.min_offset = low

    # --- life ---

    def flush(self) -> None:
        """Write to the disk what was appended; blocks."""
        for file in list(self._files):
            file.flush()

    def close(self) -> None:
        """Let the files go."""
        for file in (*self._files, *self._spare):
            file.close()
        self._forget_files()

    def delete(self) -> None:
        """Remove the files and their folder."""
        self._restart_at(0)
        if self._folder.is_dir() and not any(self._folder.iterdir()):
            self._folder.rmdir()

    # --- inside ---

    def _file_of(self, offset: int) -> MappedFile | None:
        index = (offset * ENTRY_BYTES - self._files[0].start) // self._file_bytes
        return self._files[index] if 0 <= index < len(self._files) else None

    def _take_as_last(self, file: MappedFile, wrote: int | None = None) -> None:
        """Append to this file from now on, behind `wrote` or where its entries end."""
        self._last = file
        file.expect_small_appends(True)
        file.wrote = wrote = _end_of_entries(file) if wrote is None else wrote
        file.flushed = min(file.flushed, wrote)
        file.reserved = 0
        self.max_offset = (file.start + wrote) // ENTRY_BYTES

    def _make_room(self, need: int) -> None:
        """Reserve `need` bytes from the end of the entries on, in files made ahead where they take more."""
        last = self._last
        if last is not None:
            part = min(need, last.size - last.wrote)
            last.reserve(last.wrote + part)
            need -= part
        index = 0
        while need > 0:
            if index == len(self._spare):
                self._spare.append(self._open_next())
            file = self._spare[index]
            part = min(need, file.size - file.wrote)
            file.reserve(file.wrote + part)
            need -= part
            index += 1

    def _roll(self) -> MappedFile:
        if self._last is not None:
            self._last.expect_small_appends(False)
        self._last = file = self._spare.pop(0) if self._spare else self._open_next()
        self._files.append(file)
        return file

    def _open_next(self) -> MappedFile:
        """The file behind the last one; filled up to where the queue's next message belongs."""
        before = self._spare[-1] if self._spare else self._last
        start = self.max_offset * ENTRY_BYTES if before is None else before.start + before.size
        filled = start % self._file_bytes
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / file_name(start - filled)
        file = MappedFile(path, self._file_bytes, step_bytes=_RESERVE_STEP_BYTES)
        file.expect_small_appends(True)
        try:
            file.reserve(filled + ENTRY_BYTES)
        except OSError:
            file.delete()
            raise
        file.map[:filled] = _PLACEHOLDER * (filled // ENTRY_BYTES)
        file.wrote = filled
        return file

    def _ends_within(self, last: MappedFile, log_end: int) -> bool:
        """Whether the last entry is of a message before `log_end`, and in order behind its predecessor."""
        if last.wrote == 0:
            return len(self._files) == 1
        physical_offset, size, _ = self._raw(last, self.max_offset - 1)
        if size == PLACEHOLDER_SIZE:
            return True
        if size <= 0 or physical_offset < 0 or physical_offset + size > log_end:
            return False
        if self.max_offset * ENTRY_BYTES - ENTRY_BYTES == self._files[0].start:
            return True
        before = self._raw(last, self.max_offset - 2)
        return before[1] > 0 and (before[0] < physical_offset or before[1] == PLACEHOLDER_SIZE)

    def _raw(self, last: MappedFile, offset: int) -> Entry:
        position = offset * ENTRY_BYTES - last.start
        if position >= 0:
            return _unpack_entry(last.map, position)
        before = self._files[-2]
        return _unpack_entry(before.map, before.size + position)

    def _drop_last_entries(self, last: MappedFile, log_end: int) -> None:
        """Cut the last file behind its last entry within the log, one entry at least."""
        low, high = 0, max(0, last.wrote // ENTRY_BYTES - 1)
        while low < high:
            middle = (low + high) // 2
            physical_offset, size, _ = _unpack_entry(last.map, middle * ENTRY_BYTES)
            within = size > 0 and 0 <= physical_offset <= log_end - size
            if within or size == PLACEHOLDER_SIZE:
                low = middle + 1
            else:
                high = middle
        if low == 0 and len(self._files) > 1:
            self._files.pop().delete()
            self._take_as_last(self._files[-1], self._file_bytes)
        else:
            last.cut(low * ENTRY_BYTES)
            self._take_as_last(last, low * ENTRY_BYTES)

    def _restart_at(self, offset: int) -> None:
        self._drop_all()
        self.min_offset = self.max_offset = offset

    def _drop_all(self) -> None:
        for file in (*self._files, *self._spare):
            file.delete()
        self._forget_files()

    def _forget_files(self) -> None:
        self._files.clear()
        self._spare.clear()
        self._last = None


def _end_of_entries(file: MappedFile) -> int:
    """Where the entries of a file end: a written one has a size, and they are written in order."""
    low, high = 0, file.size // ENTRY_BYTES
    while low < high:
        middle = (low + high) // 2
        if _unpack_entry(file.map, middle * ENTRY_BYTES)[1] > 0:
            low = middle + 1
        else:
            high = middle
    return low * ENTRY_BYTES
