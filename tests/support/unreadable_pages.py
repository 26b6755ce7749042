"""Pages of files that the disk cannot read. (Reads through a memory map still find them.)"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from unittest.mock import patch

PAGE_BYTES: Final = mmap.PAGESIZE
# A file whose reads fail with EIO: nothing is mapped at the address 0.
_UNREADABLE: Final = Path("/proc/self/mem")


class UnreadablePages:
    """Lets `os.pread` meet unreadable pages as on Linux.

    A read that begins in such a page fails with EIO. One that begins before it is short. For a read that may
    not wait (`os.preadv`) the page is not in memory.
    """

    def __init__(self) -> None:
        self.met = 0
        self._pages: set[tuple[str, int]] = set()

    def add(self, path: Path, position: int = 0) -> None:
        """Let the disk fail to read the page of a file that holds this position."""
        self._pages.add((str(path), position // PAGE_BYTES))

    def repair(self) -> None:
        """Let the disk read all pages."""
        self._pages.clear()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Watch the reads of this process."""
        pread, preadv = os.pread, os.preadv

        def watched(descriptor: int, size: int, position: int) -> bytes:
            readable = self._readable_bytes(descriptor, size, position) if self._pages else size
            if readable == 0 < size:
                self.met += 1
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return pread(descriptor, readable, position)

        def watched_now(descriptor: int, buffers: Sequence[bytearray], position: int, flags: int) -> int:
            size = sum(map(len, buffers))
            if self._pages and self._readable_bytes(descriptor, size, position) < size:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            return preadv(descriptor, buffers, position, flags)

        with patch.object(os, "pread", watched), patch.object(os, "preadv", watched_now):
            yield

    def _readable_bytes(self, descriptor: int, size: int, position: int) -> int:
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        for page in range(position // PAGE_BYTES, -(-(position + size) // PAGE_BYTES)):
            if (path, page) in self._pages:
                return max(0, page * PAGE_BYTES - position)
        return size


@contextmanager
def unreadable_file(path: Path) -> Iterator[None]:
    """Let all reads of a file fail with EIO, however it is opened, until the end of the block."""
    away = path.with_name(path.name + ".away")
    path.rename(away)
    path.symlink_to(_UNREADABLE)
    try:
        yield
    finally:
        away.replace(path)
