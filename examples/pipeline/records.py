"""Progress that programs write for one another: a file with a JSON object for each line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def append(path: Path, record: Record) -> None:
    """Add a record."""
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")


def read_all(path: Path) -> list[Record]:
    """All records; none where there is no file."""
    return Follower(path).take()


class Follower:
    """Reads what is appended to a file by another program; half a line is left for the next time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def take(self) -> list[Record]:
        """What is new."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._position)
            whole = file.read().rpartition(b"\n")[0]
        if not whole:
            return []
        self._position += len(whole) + 1
        return [json.loads(line) for line in whole.split(b"\n")]
