"""Marks of running streams on this machine, by which the checkpoint tool refuses to change their checkpoints.

Spark does not tell a source where the checkpoint is. A running stream therefore leaves a file with the
position of its last trigger, and holds a lock on it. The system releases the lock when the process ends.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger(__name__)

_YOUNG_SECONDS: Final = 60.0


def marks_folder() -> Path:
    """Return the folder of the marks of this user."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    return Path(tempfile.gettempdir()) / f"pyspark-rocketmq-{user}"


class RunningMark:
    """The mark of one running stream. Failures are logged: no stream fails for its mark."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._path: Path | None = None
        self._file: IO[str] | None = None
        self._text = ""
        self._failed = False

    def update(self, position: dict[str, Any]) -> None:
        """Set the position where the next batch begins."""
        text = json.dumps(position)
        if text == self._text or self._failed or fcntl is None:
            return
        try:
            file = self._file or self._open()
            file.seek(0)
            file.write(text)
            file.truncate()
            file.flush()
        except OSError as error:
            self._failed = True
            log.warning("no mark of the running query, the checkpoint tool cannot see it cause=%s", error)
        self._text = text

    def close(self) -> None:
        """Remove the mark."""
        file, self._file = self._file, None
        if file is not None and self._path is not None:
            self._path.unlink(missing_ok=True)
            file.close()
        self._text = ""

    def _open(self) -> IO[str]:
        folder = self._folder or marks_folder()
        folder.mkdir(mode=0o700, exist_ok=True)
        _remove_free_marks(folder)
        self._path = folder / f"{os.getpid()}-{secrets.token_hex(4)}.json"
        self._file = self._path.open("w+")
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return self._file


def running_process(positions: Sequence[object], folder: Path | None = None) -> str | None:
    """Return the id of a process whose stream is at one of these positions; None if there is none.

    Marks of ended processes are removed.
    """
    if fcntl is None:
        return None
    for path in sorted((folder or marks_folder()).glob("*.json")):
        try:
            with path.open() as file:
                if _is_free(file):
                    path.unlink(missing_ok=True)
                    continue
                position = json.loads(file.read() or "null")
        except (OSError, ValueError) as error:
            log.info("mark not readable path=%s cause=%s", path, error)
            continue
        if position in positions:
            return path.name.partition("-")[0]
    return None


def _remove_free_marks(folder: Path) -> None:
    """Remove marks of ended processes: Spark kills the process of a stream rather than stop it.

    A new mark is not locked for a moment, so young ones stay.
    """
    for path in folder.glob("*.json"):
        with suppress(OSError), path.open() as file:
            if time.time() - path.stat().st_mtime > _YOUNG_SECONDS and _is_free(file):
                path.unlink(missing_ok=True)


def _is_free(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
