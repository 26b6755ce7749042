"""Index files rebuilt from the log in a separate folder, identical to those of Apache's broker."""

from __future__ import annotations

import os
import sys
import time
from array import array
from pathlib import Path
from typing import Final

from .expected import Expected
from .index_columns import ENTRY_BYTES, IndexItems
from .layout import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT_BYTES

_WRITE_BYTES: Final = 4 * 1024 * 1024


class RebuiltIndex:
    """Adds the keys of each part of the log, in order; then `finish`."""

    def __init__(self, folder: Path, *, slots: int, capacity: int, dry_run: bool) -> None:
        """`slots`, `capacity`: per file. The first position of an entry stays empty, as in Apache's."""
        self.entries = 0
        self.files: list[tuple[str, int]] = []  # name, and log offset of the last message
        self._folder = folder
        self._slots_per_file = slots
        self._capacity = capacity
        self._dry_run = dry_run
        self._name = ""
        self._slots = array("i")
        self._used = 0
        self._count = capacity  # entries of the current file plus one; full, as there is no file yet
        self._pending = array("i")  # words of entries
        self._written = 0  # entries that are written to the current file
        self._descriptor = -1
        self._begin = (0, 0)  # store time and offset of the current file's first entry
        self._end = (0, 0)  # and of the last entry of all
        self._latest_ms = 0  # the latest store time in the current file

    def add(self, expected: Expected) -> None:
        """Add the keys of one part. Raises OSError."""
        items = IndexItems(expected.index, expected.index_times, expected.index_times_rise)
        begin, count = 0, len(items)
        while begin < count:
            if self._count >= self._capacity:
                self._roll(items.offset(begin), items.times[begin])
            # The time of a file's first entry is relative to the end of the previous file.
            is_first = self._count == 1
            end = begin + 1 if is_first else min(count, begin + self._capacity - self._count)
            begin_ms = self._end[0] if is_first else self._begin[0]
            words, used = items.linked(begin, end, self._slots, self._count, begin_ms)
            self._pending += words
            self._used += used
            self._count += end - begin
            self._end = (items.times[end - 1], items.offset(end - 1))
            self._latest_ms = max(self._latest_ms, *items.times[begin:end])
            begin = end
        self.entries += count
        if len(self._pending) * INDEX_SLOT_BYTES >= _WRITE_BYTES:
            self._write()

    def finish(self) -> None:
        """Write the pending entries. Raises OSError."""
        self._close()

    def _roll(self, offset: int, time_ms: int) -> None:
        self._close()
        self._name = _next_name(self._name, time_ms)
        self._slots = array("i", bytes(INDEX_SLOT_BYTES * self._slots_per_file))
        self._used, self._count, self._written = 0, 1, 0
        self._begin, self._latest_ms = (time_ms, offset), time_ms
        if not self._dry_run:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / self._name
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            os.ftruncate(self._descriptor, self._entries_at + self._capacity * INDEX_ENTRY.size)

    @property
    def _entries_at(self) -> int:
        return INDEX_HEADER.size + self._slots_per_file * INDEX_SLOT_BYTES

    def _write(self) -> None:
        packed = self._pending.tobytes()
        if self._descriptor >= 0:
            _write_at(self._descriptor, self._entries_at + (self._written + 1) * ENTRY_BYTES, packed)
        self._written += len(packed) // ENTRY_BYTES
        self._pending = array("i")

    def _close(self) -> None:
        self._write()
        if self._name:
            self.files.append((self._name, self._end[1]))
        if self._descriptor < 0:
            return
        if sys.byteorder == "little":
            self._slots.byteswap()
        header = INDEX_HEADER.pack(
            self._begin[0], self._latest_ms, self._begin[1], self._end[1], self._used, self._count
        )
        _write_at(self._descriptor, 0, header + self._slots.tobytes())
        os.close(self._descriptor)
        self._descriptor = -1


def _write_at(descriptor: int, position: int, content: bytes | bytearray) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(descriptor, view, position)
        position += written
        view = view[written:]
    view.release()


def _next_name(before: str, time_ms: int) -> str:
    """Return a file name: local time in milliseconds, later than that of the previous file."""
    name = ""
    while name <= before:
        name = f"{time.strftime('%Y%m%d%H%M%S', time.localtime(time_ms // 1000))}{time_ms % 1000:03d}"
        time_ms += 1
    return name
