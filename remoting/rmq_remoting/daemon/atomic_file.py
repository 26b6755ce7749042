"""Atomic replacement of files: after a crash a file has the old content or the new one, never a mixture."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .descriptor_reserve import open_file
from .file_errors import naming_file

_PRIVATE: Final = 0o600


def replace_file(path: Path, content: bytes, *, keep_backup: bool = False, is_private: bool = False) -> None:
    """Replace a file's content; it is durable on return. A missing folder is created.

    Access rights are kept; only the process's own user may read a file that `is_private`. With `keep_backup`
    the previous content is kept as `<name>.bak`, as beside Apache RocketMQ's JSON files (5.3.3,
    MixAll.string2File). Blocks on the disk. Raises OSError.
    """
    make_folder(path.parent)
    temporary = path.with_name(path.name + ".tmp")
    try:
        _write(temporary, content, path, is_private=is_private)
    except OSError:
        # A flush that failed may not be repeated on the same file: the kernel may have dropped its pages.
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    if keep_backup:
        _keep_backup(path)
    temporary.replace(path)
    sync_folder(path.parent)


def read_file_or_backup(path: Path) -> bytes | None:
    """Return a file's content, or that of its `.bak` if the file is missing or empty; None if both are."""
    for candidate in (path, path.with_name(path.name + ".bak")):
        with contextlib.suppress(FileNotFoundError):
            if content := candidate.read_bytes():
                return content
    return None


@contextlib.contextmanager
def folder_locked(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder, for processes that change the same file in it, each after reading it.

    Blocks until the other process has released the lock. A file system without such locks is used without
    one. Raises OSError if the folder cannot be opened.
    """
    descriptor = open_file(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write(path: Path, content: bytes, replaced: Path, *, is_private: bool) -> None:
    with open(path, "wb", 0, opener=open_file) as stream, naming_file(stream.fileno()):
        with contextlib.suppress(FileNotFoundError):
            rights = _PRIVATE if is_private else replaced.stat().st_mode & 0o7777
            os.fchmod(stream.fileno(), rights)
        rest = memoryview(content)
        while rest:
            rest = rest[stream.write(rest) :]
        os.fsync(stream.fileno())


def _keep_backup(path: Path) -> None:
    backup = path.with_name(path.name + ".bak")
    new_link = path.with_name(path.name + ".bak.tmp")
    new_link.unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        # A second name for the old content, so that a file of either name exists at any moment.
        os.link(path, new_link)
        new_link.replace(backup)


def make_folder(folder: Path) -> None:
    """Create a folder and the missing folders above it; durable on return. Blocks. Raises OSError."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    try:
        sync_folder(folder.parent)
    except OSError:
        with contextlib.suppress(OSError):
            folder.rmdir()  # otherwise the next call would take it for a durable one
        raise


def sync_folder(folder: Path) -> None:
    """Flush a folder, so that its names survive a power cut. Blocks on the disk. Raises OSError."""
    descriptor = open_file(folder, os.O_RDONLY)
    try:
        with naming_file(descriptor):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
