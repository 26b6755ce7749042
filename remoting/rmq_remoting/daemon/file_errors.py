"""Errors of open files: they name the file, which the kernel does not, and no read hides one."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def name_file(error: OSError, descriptor: int) -> None:
    """Add the name of an open file to an error of a call on its descriptor."""
    if error.filename is None:
        with suppress(OSError):
            error.filename = str(Path(f"/proc/self/fd/{descriptor}").readlink())


@contextmanager
def naming_file(descriptor: int) -> Iterator[None]:
    """Let errors of calls on a descriptor name the file."""
    try:
        yield
    except OSError as error:
        name_file(error, descriptor)
        raise
    except MemoryError as error:  # the call may have failed, too: its error could not be made
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)) from error


def is_shortage(error: BaseException) -> bool:
    """Tell whether memory or descriptors were short: nothing was done on a disk, and it can be tried again.

    Flushes do not fail so: opening a file does.
    """
    if isinstance(error, OSError):
        return error.errno in (errno.EMFILE, errno.ENFILE)
    return isinstance(error, MemoryError)


def advice_for(error: BaseException) -> str:
    """Return what to do about a shortage of descriptors, to be appended to a log line; else nothing."""
    if isinstance(error, OSError) and is_shortage(error):
        return "; too many files and connections are open: raise LimitNOFILE (systemd) or ulimit -n"
    return ""


def read_at(descriptor: int, size: int, position: int) -> bytes:
    """Return bytes of a file, fewer only at its end. Raises OSError; blocks.

    `os.pread` also returns fewer bytes before an unreadable page, as if the file ended there.
    """
    try:
        data = os.pread(descriptor, size, position)
        while len(data) < size and (more := os.pread(descriptor, size - len(data), position + len(data))):
            data += more
    except OSError as error:
        name_file(error, descriptor)
        raise
    return data


def read_file(path: Path) -> bytes:
    """Return the content of a file. Raises OSError, FileNotFoundError; blocks."""
    try:
        return path.read_bytes()
    except OSError as error:
        error.filename = str(path)
        raise
