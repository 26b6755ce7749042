"""What all queues of a store share: a bounded number of open files, locks, and the list of who has news."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import logging
import os
from collections import OrderedDict, deque
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .entry_files import EntryFiles
    from .ext_writer import ExtWriter

log = logging.getLogger("rmq.store")

DEFAULT_DESCRIPTORS: Final = 1000
# From so many files on the whole file system is flushed in one call: each flush of a single file is a commit
# of its own.
_MANY_FILES: Final = 100
_MOST_KEPT_BYTES: Final = 16 * 1024
_KEPT_BYTES_OF_ALL: Final = 32 * 1024 * 1024

FileKey = tuple[object, int]


class OpenFile:
    """An open file. It is closed with the last reference: nobody reads from a number that is in use again."""

    __slots__ = ("number",)

    def __init__(self, path: Path | str, flags: int = os.O_RDONLY) -> None:
        self.number = -1
        self.number = os.open(path, flags | os.O_CLOEXEC, 0o644)

    def read(self, position: int, length: int) -> bytes:
        """What the file holds there. Raises OSError; blocks."""
        return os.pread(self.number, length, position)

    def flush(self, *, metadata: bool = False) -> None:
        """Wait until its content is on the disk; a folder's needs `metadata`. Raises OSError."""
        (os.fsync if metadata else os.fdatasync)(self.number)

    def __del__(self) -> None:
        if self.number >= 0:
            os.close(self.number)


class Descriptors:
    """Files kept open for reading, the ones used last; for any thread.

    A file is known by its owner's token and where it begins: an owner that removes files takes a new token,
    so that one that somebody is just opening is not taken for the file that follows it under its name.
    """

    def __init__(self, limit: int = DEFAULT_DESCRIPTORS) -> None:
        self._limit = limit
        self._lock = Lock()
        self._open: OrderedDict[FileKey, OpenFile] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def get(self, key: FileKey) -> OpenFile | None:
        """The file if it is open; never waits for a disk."""
        with self._lock:
            file = self._open.get(key)
            if file is not None:
                self._open.move_to_end(key)
            return file

    def open(self, key: FileKey, path: Path | str) -> OpenFile:
        """The file. Raises OSError, FileNotFoundError where it has been removed."""
        file = self.get(key)
        if file is None:
            file = OpenFile(path)
            evicted = None  # closed outside of the lock
            with self._lock:
                self._open[key] = file
                if len(self._open) > self._limit:
                    evicted = self._open.popitem(last=False)
            del evicted
        return file

    def discard(self, key: FileKey) -> None:
        """Let a file go that has been removed: as long as it is open its space is not free."""
        with self._lock:
            file = self._open.pop(key, None)
        del file

    def forget(self, token: object) -> None:
        """Let the files of an owner go."""
        with self._lock:
            gone = [self._open.pop(key) for key in list(self._open) if key[0] is token]
        del gone

    def close(self) -> None:
        """Let all files go."""
        with self._lock:
            gone, self._open = self._open, OrderedDict()
        gone.clear()


class QueueSupport:
    """Shared by the queues of a store. What is written and flushed is so by one thread at a time."""

    def __init__(self, descriptors: int = DEFAULT_DESCRIPTORS) -> None:
        self.descriptors = Descriptors(descriptors)
        # Held for a copy in memory: nobody waits for a disk under it.
        self.memory = Lock()
        # Held while a queue's files are written or cut; taken before `memory`.
        self.files = Lock()
        # Queues with entries that are not in their files, and queues whose files are not on the disk.
        self.with_news: deque[EntryFiles] = deque()
        self.to_flush: dict[EntryFiles, None] = {}
        self.ext_to_flush: dict[ExtWriter, None] = {}  # before the entries that refer to them
        self.new_folders: set[Path] = set()
        # So much of what is in the files stays in memory too, for each queue.
        self.kept_bytes = _MOST_KEPT_BYTES
        self.reads_without_waiting = True

    def share_memory(self, queues: int) -> None:
        """Let so many queues keep no more than a fixed sum between them."""
        self.kept_bytes = min(_MOST_KEPT_BYTES, _KEPT_BYTES_OF_ALL // max(queues, 1))

    def flush_files(self, folder: Path) -> None:
        """Wait until all that was written is on the disk, new names included. Raises OSError; blocks."""
        for ext in list(self.ext_to_flush):
            self.ext_to_flush.pop(ext, None)
            ext.flush()
        queues = list(self.to_flush)
        if len(queues) + len(self.new_folders) > _MANY_FILES and flush_file_system(folder):
            for queue in queues:
                queue.flushed_with_all()
            self.new_folders.clear()
        else:
            for queue in queues:
                queue.flush_files()
            self._flush_folders()
        for queue in queues:
            self.to_flush.pop(queue, None)

    def _flush_folders(self) -> None:
        for folder in sorted(self.new_folders, reverse=True):
            with contextlib.suppress(FileNotFoundError):  # a topic that has been deleted meanwhile
                OpenFile(folder).flush(metadata=True)
            self.new_folders.discard(folder)


def read_without_waiting(file: OpenFile, position: int, length: int) -> bytes | None:
    """What a file holds there, None where a part of it is not in the page cache.

    Raises NotImplementedError where the file system cannot tell, and OSError.
    """
    buffer = bytearray(length)
    try:
        got = os.preadv(file.number, [buffer], position, os.RWF_NOWAIT)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            raise NotImplementedError("no RWF_NOWAIT on this file system") from error
        raise
    return bytes(buffer) if got == length else None


def flush_file_system(folder: Path) -> bool:
    """Wait until all of a file system is on the disk; False where the system has no call for it.

    Raises OSError; blocks.
    """
    syncfs = getattr(_LIBC, "syncfs", None)
    if syncfs is None or not folder.is_dir():
        return False
    file = OpenFile(folder)
    if syncfs(file.number) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(folder))
    return True


_LIBC: Final = ctypes.CDLL(None, use_errno=True)
