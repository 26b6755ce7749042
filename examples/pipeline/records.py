"""Progress records exchanged between programs: a file with one JSON object per line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def append(path: Path, record: Record) -> None:
    """Append a record."""
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")


def read_all(path: Path) -> list[Record]:
    """Return all records; none if there is no file."""
    return Follower(path).take()


class Follower:
    """Follows a file that another program appends to. An incomplete last line is read next time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def take(self) -> list[Record]:
        """Return the records appended since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._position)
            whole = file.read().rpartition(b"\n")[0]
        if not whole:
            return []
        self._position += len(whole) + 1
        return [json.loads(line) for line in whole.split(b"\n")]
