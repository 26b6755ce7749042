"""One preallocated file in memory: the building block of commit log and consume queues."""

from __future__ import annotations

import logging
import mmap
import os
from pathlib import Path
from typing import Final

from .errors import StoreDamaged

log = logging.getLogger("rmq.store")

PAGE_BYTES: Final = mmap.PAGESIZE
_FIRST_STEP_BYTES: Final = 16 * 1024
_NAME_DIGITS: Final = 20


class MappedFile:
    """A file of fixed size, named by the offset of its first byte, appended to through a mapping.

    A mapped page without disk space behind it kills the process when it is written, so space is reserved
    with `fallocate` before it is written, a step ahead (small steps first: most queues stay short): a full
    disk shows as OSError in `reserve`, where it can be answered.
    """

    __slots__ = ("_is_new", "flushed", "map", "path", "reserved", "size", "start", "step_bytes", "wrote")

    def __init__(self, path: Path, size: int, *, step_bytes: int) -> None:
        self.path = path
        self.size = size
        self.start = int(path.name)
        self.step_bytes = step_bytes
        self.wrote = 0
        self.flushed = 0
        self.reserved = 0
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            found = os.fstat(descriptor).st_size
            if found < size:
                os.ftruncate(descriptor, size)
            self.map = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        self._is_new = found == 0

    def reserve(self, until: int) -> None:
        """Make sure that bytes up to `until` have disk space. Raises OSError (ENOSPC) where they cannot."""
        if until <= self.reserved:
            return
        step = min(self.step_bytes, max(self.reserved, _FIRST_STEP_BYTES))
        target = min(self.size, max(until, self.reserved + step))
        descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.posix_fallocate(descriptor, self.reserved, target - self.reserved)
        finally:
            os.close(descriptor)
        self.reserved = target

    def flush(self) -> int:
        """Write what was appended since the last flush to the disk; blocks. Returns the flushed position."""
        wrote = self.wrote
        if wrote > self.flushed:
            begin = self.flushed - self.flushed % PAGE_BYTES
            self.map.flush(begin, min(self.size, wrote) - begin)
            if self._is_new:
                _sync_folders(self.path)
                self._is_new = False
            self.flushed = wrote
        return wrote

    def expect_small_appends(self, expected: bool) -> None:
        """Whether pages are touched one by one, or read in a row.

        Where the first bytes of an empty file are written the kernel reads ahead, that is fills the page
        cache with zeros: up to MiBs and milliseconds for nothing where many files grow slowly.
        """
        self.map.madvise(mmap.MADV_RANDOM if expected else mmap.MADV_NORMAL)

    def cut(self, position: int) -> None:
        """Forget everything from `position` on, for good: what is read there afterwards is zero."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            # The mapping stays valid: the pages beyond the end are dropped and come back as zeros.
            os.ftruncate(descriptor, position)
            os.ftruncate(descriptor, self.size)
        finally:
            os.close(descriptor)
        self.wrote = position
        self.flushed = min(self.flushed, position)
        self.reserved = min(self.reserved, position)

    def close(self) -> None:
        """Let the mapping go; nobody may be flushing it."""
        self.map.close()

    def delete(self) -> None:
        """Remove the file. Its mapping goes with the last reference: a flush may be under way in it."""
        self.path.unlink(missing_ok=True)


def file_name(offset: int) -> str:
    """The name of the file that begins at `offset`."""
    return f"{offset:020d}"


def list_files(folder: Path) -> list[Path]:
    """The files of a queue of files, by start offset."""
    if not folder.is_dir():
        return []
    names = sorted(path.name for path in folder.iterdir())
    return [
        folder / name for name in names if len(name) == _NAME_DIGITS and name.isascii() and name.isdecimal()
    ]


def open_files(folder: Path, size: int, *, step_bytes: int, advice: str) -> list[MappedFile]:
    """The files of a folder, in order, taken as written and flushed to their ends.

    Raises StoreDamaged, with `advice`, for one that is not `size` bytes long. The last may be shorter: the
    process or the machine can stop between its creation, or its being cut, and its getting its full size.
    """
    paths = list_files(folder)
    for path in paths:
        found = path.stat().st_size
        if found > size or (found < size and path is not paths[-1]):
            raise StoreDamaged(f"{path} has {found} bytes instead of {size}: {advice}")
        if 0 < found < size:
            log.warning("%s has %d bytes instead of %d; the rest is taken as empty", path, found, size)
    files = [MappedFile(path, size, step_bytes=step_bytes) for path in paths]
    for file in files:
        file.wrote = file.flushed = file.reserved = size
    return files


def _sync_folders(path: Path) -> None:
    """Make a new file's name survive a power cut, and the names of the folders that may be new with it."""
    for folder in (path.parent, path.parent.parent, path.parent.parent.parent):
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # a topic that has been deleted meanwhile
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
