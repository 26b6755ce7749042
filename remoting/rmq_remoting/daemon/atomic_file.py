"""Files that are replaced as a whole: after a crash there is the old content or the new, never a mixture."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def replace_file(path: Path, content: bytes, *, keep_backup: bool = False) -> None:
    """Replace a file's content, on disk when this returns; the folder is made where it is missing.

    Access rights stay as they were. With `keep_backup` the content until now stays as `<name>.bak`, as
    beside Apache RocketMQ's JSON files (5.3.3, MixAll.string2File). Blocks on the disk; raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as stream:
        with contextlib.suppress(FileNotFoundError):
            os.fchmod(stream.fileno(), path.stat().st_mode & 0o7777)
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    if keep_backup:
        _keep_backup(path)
    temporary.replace(path)
    sync_folder(path.parent)


def read_file_or_backup(path: Path) -> bytes | None:
    """A file's content, or that of its `.bak` where the file is missing or empty; None where both are."""
    for candidate in (path, path.with_name(path.name + ".bak")):
        with contextlib.suppress(FileNotFoundError):
            if content := candidate.read_bytes():
                return content
    return None


def _keep_backup(path: Path) -> None:
    backup = path.with_name(path.name + ".bak")
    new_link = path.with_name(path.name + ".bak.tmp")
    new_link.unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        # A second name for the old content: there is no moment without a file of either name.
        os.link(path, new_link)
        new_link.replace(backup)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut. Raises OSError; blocks."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
