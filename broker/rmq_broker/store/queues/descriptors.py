"""Open files: a bounded number of descriptors for reading, reads that do not block, and flushes."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import Final

from rmq_remoting.daemon.descriptor_reserve import open_file
from rmq_remoting.daemon.file_errors import is_shortage, name_file, naming_file, read_at

from ..log.writing_again import write_again

DEFAULT_DESCRIPTORS: Final = 1000

FileKey = tuple[object, int]


class OpenFile:
    """An open file, closed with the last reference: no thread reads from a number that is in use again.

    The number of its descriptor stays inside: during a method's call there is a reference to the file.
    """

    __slots__ = ("_number",)

    def __init__(self, path: Path | str, flags: int = os.O_RDONLY) -> None:
        self._number = -1
        self._number = open_file(path, flags)

    @property
    def size_bytes(self) -> int:
        """The file's size. Raises OSError."""
        with naming_file(self._number):
            return os.fstat(self._number).st_size

    def read(self, position: int, length: int) -> bytes:
        """Return bytes of the file. Raises OSError; blocks."""
        return read_at(self._number, length, position)

    def read_without_waiting(self, position: int, length: int) -> bytes | None:
        """Return bytes of the file; None if a part of them is not in the page cache.

        Raises NotImplementedError if the file system cannot tell, and OSError.
        """
        buffer = bytearray(length)
        try:
            got = os.preadv(self._number, [buffer], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                raise NotImplementedError("no RWF_NOWAIT on this file system") from error
            name_file(error, self._number)
            raise
        return bytes(buffer) if got == length else None

    def has_content(self, position: int) -> bool:
        """Whether something other than a hole is in the file from `position` on, which is before its end."""
        try:
            os.lseek(self._number, position, os.SEEK_DATA)
        except OSError as error:
            return error.errno != errno.ENXIO
        return True

    def write(self, position: int, content: bytes | bytearray) -> None:
        """Write all of `content`. Raises OSError: then a part of it may be written."""
        done = 0
        with naming_file(self._number), memoryview(content) as view:
            while done < len(view):
                done += os.pwrite(self._number, view[done:], position + done)

    def write_again(self, begin: int, end: int) -> None:
        """Write a range with its present content. Raises OSError; blocks."""
        with naming_file(self._number):
            write_again(self._number, begin, end)

    def resize(self, size_bytes: int) -> None:
        """Cut the file, or extend it by a hole. Raises OSError."""
        with naming_file(self._number):
            os.ftruncate(self._number, size_bytes)

    def flush(self, *, metadata: bool = False) -> None:
        """Wait until the content is on disk; a folder needs `metadata`. Raises OSError; blocks."""
        with naming_file(self._number):
            (os.fsync if metadata else os.fdatasync)(self._number)

    def flush_file_system(self) -> bool:
        """Wait until the whole file system is on disk; False if the system has no call for that.

        Raises OSError; blocks.
        """
        syncfs = getattr(_LIBC, "syncfs", None)
        if syncfs is None:
            return False
        if syncfs(self._number) != 0:
            number = ctypes.get_errno()
            error = OSError(number, os.strerror(number))
            name_file(error, self._number)
            raise error
        return True

    def __del__(self) -> None:
        if self._number >= 0:
            os.close(self._number)


_LIBC: Final = ctypes.CDLL(None, use_errno=True)


class Descriptors:
    """Files kept open for reading, evicting the least recently used; for any thread.

    A file's key is its owner's token and the position where it begins. An owner that removes files takes a
    new token. So a removed file that a thread is just opening is not mistaken for a later file of its name.
    """

    def __init__(self, limit: int = DEFAULT_DESCRIPTORS) -> None:
        """`limit`: the most files, and a quarter of those that the process may open."""
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._limit = limit if most == resource.RLIM_INFINITY else min(limit, max(1, most // 4))
        self._lock = Lock()
        self._open: OrderedDict[FileKey, OpenFile] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def get(self, key: FileKey) -> OpenFile | None:
        """Return the file if it is open; does not block."""
        with self._lock:
            file = self._open.get(key)
            if file is not None:
                self._open.move_to_end(key)
            return file

    def open(self, key: FileKey, path: Path | str) -> OpenFile:
        """Return the file, opened if need be. Raises OSError, FileNotFoundError if it has been removed."""
        file = self.get(key)
        if file is None:
            file = self._open_file(path)
            evicted = None  # closed outside of the lock
            with self._lock:
                self._open[key] = file
                if len(self._open) > self._limit:
                    evicted = self._open.popitem(last=False)
            del evicted
        return file

    def _open_file(self, path: Path | str) -> OpenFile:
        try:
            return OpenFile(path)
        except OSError as error:
            if not is_shortage(error) or not self._open:
                raise
            self.close()
            return OpenFile(path)

    def discard(self, key: FileKey) -> None:
        """Close a file that has been removed: its disk space is freed when it is closed."""
        with self._lock:
            file = self._open.pop(key, None)
        del file

    def forget(self, token: object) -> None:
        """Close the files of an owner."""
        with self._lock:
            gone = [self._open.pop(key) for key in list(self._open) if key[0] is token]
        del gone

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            gone, self._open = self._open, OrderedDict()
        gone.clear()


def flush_file_system(folder: Path) -> bool:
    """Wait until the whole file system of a folder is on disk; False if there is no folder or no such call.

    Raises OSError; blocks.
    """
    return folder.is_dir() and OpenFile(folder).flush_file_system()
