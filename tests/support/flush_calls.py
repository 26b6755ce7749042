"""A seam below the store: every call that brings a file to the disk passes through a function of the test's.

`os.fsync`, `os.fdatasync` and the `flush` of memory maps are the ways that Python code has. What is written
through a descriptor that was opened with O_SYNC counts as not flushed here, as does `os.sync`.
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
    """A file or a folder is to be brought to the disk: all of it, or a range of a map."""

    path: str  # as it was when the file was opened or mapped
    inode: int
    is_folder: bool
    descriptor: int = -1  # -1 for a map
    map: mmap.mmap | None = None
    begin: int = 0
    size: int = 0


Handler = Callable[[FlushCall], bool]
"""Sees a call before it is made; False: it is not made at all. May raise OSError."""


@contextmanager
def intercepted_flushes(handler: Handler, on_map: Callable[[int], None] | None = None) -> Iterator[None]:
    """Hand every flush of this process over to a handler; `on_map` gets the descriptor of each new map."""
    fsync, fdatasync = os.fsync, os.fdatasync

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

    with (
        patch.object(os, "fsync", seen_fsync),
        patch.object(os, "fdatasync", seen_fdatasync),
        patch.object(mmap, "mmap", SeenMap),
    ):
        yield


def _call_of(descriptor: Any) -> FlushCall:
    number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
    status = os.fstat(number)
    return FlushCall(_path_of(number), status.st_ino, stat.S_ISDIR(status.st_mode), number)


def _path_of(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 (the kernel's text, not a path's parts)
