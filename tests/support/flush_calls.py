"""Interception below the store: each call that flushes a file is handed to a function of the test.

Python code flushes with `os.fsync`, `os.fdatasync` and the `flush` of memory maps. Data written through a
descriptor that was opened with O_SYNC counts as not flushed here, as does `os.sync`.

A second function may see what pages hold before `os.pwrite` and assignments to maps change them. Packing into
a map (`Struct.pack_into`) is not seen.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self
from unittest.mock import patch


@dataclass(frozen=True, slots=True)
class FlushCall:
    """A request to flush a file, a folder or a range of a memory map."""

    path: str  # at the time when the file was opened or mapped
    inode: int
    is_folder: bool
    descriptor: int = -1  # -1 for a map
    map: mmap.mmap | None = None
    begin: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class WriteCall:
    """Pages of a file are about to be changed: their content until now, from the page at `position` on."""

    path: str
    inode: int
    position: int
    content: bytes


Handler = Callable[[FlushCall], bool]
"""Sees a call before it is made; False: it is not made at all. May raise OSError."""


@contextmanager
def intercepted_flushes(
    handler: Handler,
    on_map: Callable[[int], None] | None = None,
    on_write: Callable[[WriteCall], None] | None = None,
) -> Iterator[None]:
    """Hand every flush of this process over to a handler.

    `on_map` gets the descriptor of each new map, `on_write` the old content of pages that are written.
    """
    fsync, fdatasync, pwrite = os.fsync, os.fdatasync, os.pwrite

    def seen_pwrite(descriptor: int, content: Any, offset: int) -> int:
        if on_write is not None:
            begin, end = _pages(offset, offset + len(content))
            before = _read(descriptor, begin, end)
            on_write(WriteCall(_path_of(descriptor), os.fstat(descriptor).st_ino, begin, before))
        return pwrite(descriptor, content, offset)

    def seen_fsync(descriptor: Any) -> None:
        if handler(_call_of(descriptor)):
            fsync(descriptor)

    def seen_fdatasync(descriptor: Any) -> None:
        if handler(_call_of(descriptor)):
            fdatasync(descriptor)

    class SeenMap(mmap.mmap):
        file: tuple[str, int] | None

        def __new__(cls, fileno: int, length: int, *args: Any, **options: Any) -> Self:
            created: Self = super().__new__(cls, fileno, length, *args, **options)
            created.file = None if fileno < 0 else (_path_of(fileno), os.fstat(fileno).st_ino)
            if fileno >= 0 and on_map is not None:
                on_map(fileno)
            return created

        def flush(self, offset: int = 0, size: int = 0) -> None:
            size = size or len(self) - offset
            if self.file is None or handler(
                FlushCall(*self.file, is_folder=False, map=self, begin=offset, size=size)
            ):
                super().flush(offset, size)

    class SeenWritableMap(SeenMap):
        def __setitem__(self, index: Any, value: Any) -> None:
            if on_write is not None and self.file is not None:
                chosen = index if isinstance(index, slice) else slice(index, index + 1)
                begin, end = _pages(*chosen.indices(len(self))[:2])
                on_write(WriteCall(*self.file, begin, self[begin:end]))
            super().__setitem__(index, value)

    with (
        patch.object(os, "fsync", seen_fsync),
        patch.object(os, "fdatasync", seen_fdatasync),
        patch.object(os, "pwrite", pwrite if on_write is None else seen_pwrite),
        patch.object(mmap, "mmap", SeenMap if on_write is None else SeenWritableMap),
    ):
        yield


def _call_of(descriptor: Any) -> FlushCall:
    number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
    status = os.fstat(number)
    return FlushCall(_path_of(number), status.st_ino, stat.S_ISDIR(status.st_mode), number)


def _pages(begin: int, end: int) -> tuple[int, int]:
    """The range of whole pages around a range."""
    return begin - begin % mmap.PAGESIZE, -(-end // mmap.PAGESIZE) * mmap.PAGESIZE


def _read(descriptor: int, begin: int, end: int) -> bytes:
    """A range of a file, whose descriptor may be open for writing alone."""
    readable = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(readable, end - begin, begin)
    finally:
        os.close(readable)


def _path_of(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 (the kernel's text, not a path's parts)
