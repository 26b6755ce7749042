"""The file `rmq_index.json`: how far the index goes, and which index files exist."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path

from rmq_remoting.daemon.atomic_file import replace_file
from rmq_remoting.daemon.file_errors import read_file

from .index_file import IndexFile

log = logging.getLogger("rmq.store")


class IndexProgressFile:
    """Content: `{"complete_to": log offset, "files": [[name, offset of the last message], ...]}`.

    A message without keys leaves no trace in the index: only this file tells that it has been examined. And
    only this file tells that an index file is missing. Apache's broker ignores it.
    """

    __slots__ = ("_files", "_path", "complete_to")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: list[tuple[str, int]] = []
        self.complete_to = 0

    def load(self) -> None:
        """Read the file; an unreadable file counts as missing."""
        try:
            content = json.loads(read_file(self._path))
            files = [(str(name), int(end)) for name, end in content["files"]]
            complete_to = int(content["complete_to"])
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("unreadable file ignored path=%s cause=%r", self._path, error)
            return
        self._files, self.complete_to = files, complete_to

    def first_missing(self, files: Sequence[IndexFile], log_begin: int) -> str | None:
        """Return the first file that is missing or lost entries although the log has its messages."""
        ends = {file.path.name: file.end_offset for file in files}
        for name, end in self._files:
            if end >= log_begin and ends.get(name, -1) < end:
                return name
        return None

    def set(self, files: Sequence[IndexFile], complete_to: int) -> None:
        """Note that the index is complete up to a log offset. The files' headers have been written."""
        self._files = [(file.path.name, file.end_offset) for file in files]
        self.complete_to = complete_to

    def save(self) -> None:
        """Write the file. Raises OSError; blocks."""
        content = {"complete_to": self.complete_to, "files": self._files}
        replace_file(self._path, json.dumps(content).encode())

    def forget(self) -> None:
        """Remove the file, whose content is outdated. Raises OSError."""
        self._files, self.complete_to = [], 0
        self._path.unlink(missing_ok=True)
