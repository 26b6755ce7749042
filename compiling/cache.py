"""The user's cache of compiled forms, shared by all checkouts: a folder for each set of sources and tools."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

# Older ones are removed. One has about 8 MB.
_KEPT: Final = 16


def cached(key: str, build: Callable[[Path], None]) -> Path:
    """Return the folder of a compiled form; `build` fills it if it is not there yet.

    It appears by a rename, so that no process sees a part of it, and none waits for another one's build.
    """
    home = _home()
    folder = home / key
    if not folder.is_dir():
        made = Path(tempfile.mkdtemp(prefix=".building-", dir=home))
        try:
            build(made)
            # Another process may have been first. Its folder has the same content.
            if not folder.is_dir():
                made.rename(folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    os.utime(folder)
    _evict(home)
    return folder


def _home() -> Path:
    """Return the cache's folder, which only this user can write to: its content is executed."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = base / "rmq" / "compiled"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = home.stat()
    if status.st_uid != os.getuid():
        raise PermissionError(f"{home} belongs to another user; name another folder in XDG_CACHE_HOME")
    home.chmod(0o700)
    return home


def _evict(home: Path) -> None:
    """Remove the least recently used compiled forms above the limit."""
    folders = sorted(home.iterdir(), key=lambda folder: -folder.stat().st_mtime)
    for folder in folders[_KEPT:]:
        shutil.rmtree(folder, ignore_errors=True)
