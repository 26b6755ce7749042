"""What this broker remembers of its index files beside them: how far they go, and which there were."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path

from rmq_remoting.daemon.atomic_file import replace_file

from .index_file import IndexFile

log = logging.getLogger("rmq.store")


class IndexProgressFile:
    """In a file: `{"complete_to": log offset, "files": [[name, offset of the last message], ...]}`.

    A message without keys leaves no trace in the index: only this file tells that it has been looked at. And
    only this file tells that an index file is missing.
    """

    __slots__ = ("_files", "_path", "complete_to")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: list[tuple[str, int]] = []
        self.complete_to = 0

    def load(self) -> None:
        """Read the file; one that cannot be read counts as missing."""
        try:
            content = json.loads(self._path.read_bytes())
            files = [(str(name), int(end)) for name, end in content["files"]]
            complete_to = int(content["complete_to"])
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError) as error:
            log.warning("%s cannot be read, and is left out of account: %r", self._path, error)
            return
        self._files, self.complete_to = files, complete_to

    def first_missing(self, files: Sequence[IndexFile], log_begin: int) -> str | None:
        """The name of the first file that is gone, or lost entries, while the log has its messages."""
        ends = {file.path.name: file.end_offset for file in files}
        for name, end in self._files:
            if end >= log_begin and ends.get(name, -1) < end:
                return name
        return None

    def set(self, files: Sequence[IndexFile], complete_to: int) -> None:
        """Note that the index is complete up to a log offset; the files' headers say how far they go."""
        self._files = [(file.path.name, file.end_offset) for file in files]
        self.complete_to = complete_to

    def save(self) -> None:
        """Write down what was noted. Raises OSError; blocks."""
        content = {"complete_to": self.complete_to, "files": self._files}
        replace_file(self._path, json.dumps(content).encode())

    def forget(self) -> None:
        """Remove the file: what it says is not so any more. Raises OSError."""
        self._files, self.complete_to = [], 0
        self._path.unlink(missing_ok=True)
