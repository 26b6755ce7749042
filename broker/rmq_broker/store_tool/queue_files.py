"""Reading of one consume queue's files: entries of 20 bytes, or units of 46 in a BatchCQ topic."""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from .layout import BATCH_UNIT, EXT_ADDRESS_BASE, EXT_UNIT, QUEUE_ENTRY
from .log_files import NumberedFile, numbered_files

_BLOCK_BYTES: Final = 256 * 1024


class QueueFiles:
    """Entries by number; in a plain queue the number is the queue offset."""

    def __init__(self, folder: Path, *, is_batch: bool = False) -> None:
        """Raises OSError if the folder cannot be read."""
        self.folder = folder
        self.entry_bytes = BATCH_UNIT.size if is_batch else QUEUE_ENTRY.size
        self.numbered = numbered_files(folder)

    @property
    def first(self) -> int:
        """Number of the first entry in the first file."""
        return self.numbered.start // self.entry_bytes

    @property
    def capacity_end(self) -> int:
        """Number behind the last entry of the last file."""
        return self.numbered.end // self.entry_bytes

    def read(self, number: int, count: int) -> bytes:
        """Return `count` packed entries; zeros where a file is missing. Raises OSError."""
        begin, end = number * self.entry_bytes, (number + count) * self.entry_bytes
        content = bytearray(end - begin)
        files = self.numbered.files
        for file in files[max(0, bisect_right(files, begin, key=_start) - 1) :]:
            if file.start >= end:
                break
            low, high = max(begin, file.start), min(end, file.end)
            if low < high:
                part = _read(file, low - file.start, high - low)
                content[low - begin : low - begin + len(part)] = part
        return bytes(content)

    def blocks(self, number: int, until: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield the entries from `number` to before `until` as (number, packed entries); skip empty blocks.

        Raises OSError.
        """
        size = self.entry_bytes
        for file in self.numbered.files:
            low = max(number * size, file.start)
            high = file.end if until is None else min(until * size, file.end)
            with suppress(FileNotFoundError):
                yield from self._blocks_of(file, low, high)

    def _blocks_of(self, file: NumberedFile, low: int, high: int) -> Iterator[tuple[int, bytes]]:
        size = self.entry_bytes
        with file.path.open("rb", buffering=0) as stream:
            while low < high:
                data_at = _next_data(stream.fileno(), low - file.start)
                if data_at is None:
                    return
                data = max(low, file.start + data_at)
                low = data - data % size
                block = os.pread(
                    stream.fileno(), min(_BLOCK_BYTES // size * size, high - low), low - file.start
                )
                block = block[: len(block) // size * size]
                if not block:
                    return
                if block.strip(b"\0"):
                    yield low // size, block
                low += len(block)

    def find(self, is_before: Callable[[bytes], bool], end: int) -> int:
        """Return the number of the first entry that is not before; `end` without one. Raises OSError."""
        low, high = self.first, end
        while low < high:
            middle = (low + high) // 2
            if is_before(self.read(middle, 1)):
                low = middle + 1
            else:
                high = middle
        return low

    def end_of_entries(self) -> int:
        """Return the number behind the last entry that is not empty. Raises OSError."""
        end = self.first
        size = self.entry_bytes
        for file in reversed(self.numbered.files):
            for number, block in self.blocks(file.start // size, file.end // size):
                end = number + (len(block.rstrip(b"\0")) + size - 1) // size
            if end > self.first:
                break
        return end


class ExtensionFiles:
    """A queue's extension files: units of tags code, store time and a filter bit map."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError if the folder cannot be read."""
        self._numbered = numbered_files(folder)

    def unit(self, address: int) -> tuple[int, int] | None:
        """Return tags code and store time of the unit at an entry's address; None without a valid unit."""
        offset = address - EXT_ADDRESS_BASE
        file = self._file_of(offset)
        if file is None:
            return None
        with file.path.open("rb", buffering=0) as stream:
            content = os.pread(stream.fileno(), EXT_UNIT.size, offset - file.start)
        if len(content) < EXT_UNIT.size:
            return None
        size, tags_code, store_time_ms, bits_bytes = EXT_UNIT.unpack(content)
        if bits_bytes < 0 or size != EXT_UNIT.size + bits_bytes or offset + size > file.end:
            return None
        return tags_code, store_time_ms

    def _file_of(self, offset: int) -> NumberedFile | None:
        for file in self._numbered.files:
            if file.start <= offset < file.end:
                return file
        return None


def _read(file: NumberedFile, position: int, count: int) -> bytes:
    """Read a part of a file; empty if a running broker removed the file meanwhile."""
    try:
        with file.path.open("rb", buffering=0) as stream:
            return os.pread(stream.fileno(), count, position)
    except FileNotFoundError:
        return b""


def _start(file: NumberedFile) -> int:
    return file.start


def _next_data(descriptor: int, position: int) -> int | None:
    """Return the position of the next stored bytes, behind holes; None if there are none."""
    try:
        return os.lseek(descriptor, position, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # there is only a hole
            return None
        return position
