"""Reading of preallocated files: a gigabyte, of which messages may fill a few kilobytes.

A byte by byte search of such a file takes seconds and maps all of it into memory. Empty parts are therefore
skipped first. The file system tells the holes (SEEK_DATA), and written zeros are found by comparing blocks.
Neither maps a page.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

BLOCK_BYTES: Final = 1024 * 1024
_ZEROS: Final = bytes(BLOCK_BYTES)


class MappedFile:
    """The content of an open file, mapped into memory for reading; `data` is bytes if the file is empty."""

    __slots__ = ("_descriptor", "data")

    def __init__(self, descriptor: int, data: mmap.mmap | bytes) -> None:
        self.data = data
        self._descriptor = descriptor

    def blocks(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Return begin and end of each block between two positions that is not all zeros. Raises OSError."""
        return data_blocks(self._descriptor, begin, min(end, len(self.data)))

    def read(self, position: int, size: int) -> bytes:
        """Return bytes of the file, fewer at its end, through the descriptor. Raises OSError."""
        return os.pread(self._descriptor, size, position)

    def release(self, begin: int, end: int) -> None:
        """Release the memory of the pages between two positions. Reading them again maps them again."""
        first = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE
        if isinstance(self.data, mmap.mmap) and end > first:
            self.data.madvise(mmap.MADV_DONTNEED, first, end - first)


@contextmanager
def mapped(path: Path) -> Iterator[MappedFile]:
    """Open and map a file until the block ends. Raises OSError."""
    with path.open("rb", buffering=0) as stream:
        descriptor = stream.fileno()
        if os.fstat(descriptor).st_size == 0:
            yield MappedFile(descriptor, b"")
            return
        with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as data:
            yield MappedFile(descriptor, data)


def data_extents(descriptor: int, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each stored part of a file between two positions: the parts that are no holes.

    A file system that does not know holes has one part. Raises OSError.
    """
    while begin < end:
        try:
            low = os.lseek(descriptor, begin, os.SEEK_DATA)
            high = os.lseek(descriptor, low, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # there is only a hole up to the end of the file
                return
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
            low, high = begin, end
        if low < end:
            yield low, min(high, end)
        begin = high


def data_blocks(descriptor: int, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each block of a file, between two positions, that is not all zeros.

    A block has at most BLOCK_BYTES. Every stored part is read, so a disk error raises OSError here. In mapped
    memory it would end the process.
    """
    buffer = bytearray(BLOCK_BYTES)
    for low, high in data_extents(descriptor, begin, end):
        position = low
        while position < high:
            view = memoryview(buffer)[: min(BLOCK_BYTES, high - position)]
            got = os.preadv(descriptor, [view], position)
            if got == 0:
                return
            if not (buffer == _ZEROS if got == BLOCK_BYTES else buffer.count(0, 0, got) == got):
                yield position, position + got
            position += got


def first_data(path: Path, position: int) -> int | None:
    """Return the position of the first byte from `position` on that is not zero. Raises OSError."""
    with path.open("rb", buffering=0) as stream:
        descriptor = stream.fileno()
        for begin, end in data_blocks(descriptor, position, os.fstat(descriptor).st_size):
            content = os.pread(descriptor, end - begin, begin)
            return begin + len(content) - len(content.lstrip(b"\0"))
    return None
