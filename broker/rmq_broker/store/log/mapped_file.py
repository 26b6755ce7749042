"""A file of fixed size that is appended to through a memory map: the building block of the commit log."""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Final

from rmq_remoting.daemon.atomic_file import sync_folder
from rmq_remoting.daemon.descriptor_reserve import map_file, open_file
from rmq_remoting.daemon.file_errors import name_file, naming_file, read_at

from ..errors import StoreDamaged
from .writing_again import write_again

log = logging.getLogger("rmq.store")

# The signature of `os.preadv`.
Preadv = Callable[[int, Sequence[memoryview], int, int], int]

PAGE_BYTES: Final = mmap.PAGESIZE
HEAD_BYTES: Final = 8  # of a record's size and magic number, without which it is not valid
_LARGE_BYTES: Final = 4096  # from this size on a view costs less than a copy
_FIRST_STEP_BYTES: Final = 16 * 1024
_NAME_DIGITS: Final = 20
_ZEROS: Final = memoryview(bytes(1024 * 1024))


class MappedFile:
    """A file of fixed size, named by the offset of its first byte, appended to through a mapping.

    Writing to a mapped page without disk space behind it kills the process. So `reserve` allocates space with
    `fallocate` before it is written, a step in advance (small steps first): a full disk raises OSError there,
    where it can be handled.

    The number of its descriptor stays inside: during a method's call there is a reference to the file, which
    is closed with the last one, or with the store.
    """

    __slots__ = (
        "_descriptor",
        "_is_new",
        "_reserving",
        "flushed",
        "map",
        "path",
        "preallocate_at",
        "reserved",
        "size",
        "start",
        "step_bytes",
        "wrote",
    )

    def __init__(self, path: Path, size: int, *, step_bytes: int) -> None:
        self.path = path
        self.size = size
        self.start = int(path.name)
        self.step_bytes = step_bytes
        self.wrote = 0
        self.flushed = 0
        self.reserved = 0
        self.preallocate_at = 0  # an append beyond this position requests preallocation
        self._reserving = Lock()
        self._descriptor = descriptor = open_file(path, os.O_RDWR | os.O_CREAT)
        try:
            found = os.fstat(descriptor).st_size
            if found < size:
                os.ftruncate(descriptor, size)
            self.map = map_file(descriptor, size)
        except BaseException:
            # Once: `__del__` must not close the file or connection that gets the number meanwhile.
            self._close_descriptor()
            raise
        self._is_new = found == 0

    @property
    def is_open(self) -> bool:
        """Whether the file can be read: the store has not been closed."""
        return self._descriptor >= 0

    # --- reading ---

    def read(self, position: int, size: int) -> bytes:
        """Return bytes of the file, fewer only at its end. Raises OSError; blocks.

        Not through the mapping: a page that is not in memory would block all threads there, and one that the
        disk cannot read would kill the process.
        """
        return read_at(self._descriptor, size, position)

    def read_into(self, buffer: memoryview, position: int, flags: int, preadv: Preadv) -> int:
        """Read into a buffer by one `preadv`; return how many bytes. Raises OSError, BlockingIOError."""
        try:
            return preadv(self._descriptor, (buffer,), position, flags)
        except BlockingIOError:
            raise
        except OSError as failure:
            name_file(failure, self._descriptor)
            raise

    def advise(self, position: int, size: int, advice: int) -> None:
        """Tell the system how a part of the file will be read (POSIX_FADV_...); 0 bytes: to its end."""
        os.posix_fadvise(self._descriptor, position, size, advice)

    # --- writing ---

    def append(self, records: bytes) -> None:
        """Write records at the end, into reserved space.

        Their beginning is written last: if the process is killed, a record that has a beginning is complete.
        """
        mapped, begin = self.map, self.wrote
        end = begin + len(records)
        rest = records[HEAD_BYTES:] if len(records) < _LARGE_BYTES else memoryview(records)[HEAD_BYTES:]
        mapped[begin + HEAD_BYTES : end] = rest
        mapped[begin : begin + HEAD_BYTES] = records[:HEAD_BYTES]
        self.wrote = end

    def reserve(self, until: int) -> None:
        """Allocate disk space for the bytes up to `until`. Raises OSError (ENOSPC if the disk is full)."""
        with self._reserving:
            if until <= self.reserved:
                return
            step = min(self.step_bytes, max(self.reserved, _FIRST_STEP_BYTES))
            target = min(self.size, max(until, self.reserved + step))
            with naming_file(self._descriptor):
                os.posix_fallocate(self._descriptor, self.reserved, target - self.reserved)
            self.reserved = target

    def touch(self, until: int) -> None:
        """Reserve by writing zeros, in a thread: the pages are in memory when the event loop writes to them.

        The first write to a page through the mapping takes microseconds, in a large new file milliseconds.
        After a large write of zeros it costs next to nothing. Reserved bytes are never touched, because they
        may be in use. Raises OSError.
        """
        until = min(until, self.size)
        while self.reserved < until:
            with self._reserving, naming_file(self._descriptor):
                begin = self.reserved
                part = min(len(_ZEROS), until - begin)
                if part > 0:
                    self.reserved = begin + os.pwrite(self._descriptor, _ZEROS[:part], begin)

    def flush(self) -> int:
        """Flush appended bytes; return the position up to which all is flushed. Raises OSError; blocks."""
        wrote = self.wrote
        if wrote > self.flushed:
            begin = self.flushed - self.flushed % PAGE_BYTES
            with naming_file(self._descriptor):
                self.map.flush(begin, min(self.size, wrote) - begin)
            if self._is_new:
                _sync_folders(self.path)
                self._is_new = False
            self.flushed = wrote
        return wrote

    def sync_name(self) -> None:
        """Make the file's name and size survive a power cut. Raises OSError; blocks."""
        with naming_file(self._descriptor):
            os.fsync(self._descriptor)
        _sync_folders(self.path)
        self._is_new = False

    def write_again(self, position: int, end: int) -> None:
        """Write the bytes up to `end` again, and have the next flush include them. Raises OSError; blocks."""
        with naming_file(self._descriptor):
            write_again(self._descriptor, position, end)
        self.flushed = min(self.flushed, position)

    def mark_unflushed(self) -> None:
        """Have the next flush write everything, the file's name included: none of it may be on disk."""
        self.flushed = 0
        self._is_new = True

    def cut(self, position: int) -> None:
        """Remove all bytes from `position` on: zeros are read there afterwards."""
        # The mapping stays valid: the pages beyond the end are dropped, and later contain zeros.
        with naming_file(self._descriptor):
            os.ftruncate(self._descriptor, position)
            os.ftruncate(self._descriptor, self.size)
        self.wrote = position
        self.flushed = min(self.flushed, position)
        self.reserved = min(self.reserved, position)

    def close(self) -> None:
        """Close the mapping; no flush may be running."""
        self.map.close()
        self._close_descriptor()

    def delete(self) -> None:
        """Remove the file; it may be in use: mapping and descriptor are closed with the last reference."""
        self.path.unlink(missing_ok=True)

    def __del__(self) -> None:
        self._close_descriptor()

    def _close_descriptor(self) -> None:
        descriptor, self._descriptor = getattr(self, "_descriptor", -1), -1
        if descriptor >= 0:
            os.close(descriptor)


def file_at(files: Sequence[MappedFile], offset: int) -> MappedFile | None:
    """Return the file that holds an offset, among consecutive files."""
    if not files:
        return None
    index = (offset - files[0].start) // files[0].size
    return files[index] if 0 <= index < len(files) else None


def file_name(offset: int) -> str:
    """Return the name of the file that begins at `offset`."""
    return f"{offset:020d}"


def list_files(folder: Path) -> list[Path]:
    """Return the files that are named by an offset, in order."""
    if not folder.is_dir():
        return []
    names = sorted(path.name for path in folder.iterdir())
    return [
        folder / name for name in names if len(name) == _NAME_DIGITS and name.isascii() and name.isdecimal()
    ]


def open_files(folder: Path, size: int, *, step_bytes: int, advice: str) -> list[MappedFile]:
    """Open the files of a folder, in order, as if they were written and flushed to their ends.

    Raises StoreDamaged, with `advice`, for a file that is not `size` bytes long. The last file may be
    shorter: the process or the machine can stop after it was created or truncated, before it gets its full
    size.
    """
    paths = list_files(folder)
    for path in paths:
        found = path.stat().st_size
        if found > size or (found < size and path is not paths[-1]):
            raise StoreDamaged(f"{path} has {found} bytes instead of {size}: {advice}")
        if 0 < found < size:
            log.warning("short file extended path=%s size_bytes=%d expected_bytes=%d", path, found, size)
    files = [MappedFile(path, size, step_bytes=step_bytes) for path in paths]
    for file in files:
        file.wrote = file.flushed = file.reserved = size
    return files


def _sync_folders(path: Path) -> None:
    """Make the names of a new file and of its folders, which may be new, survive a power cut."""
    for folder in (path.parent, path.parent.parent, path.parent.parent.parent):
        with contextlib.suppress(FileNotFoundError):  # a topic that has been deleted meanwhile
            sync_folder(folder)
