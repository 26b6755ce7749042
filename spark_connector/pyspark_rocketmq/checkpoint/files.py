"""The files of a checkpoint: which batch was committed last, and the positions of its sources.

The format is Spark's (Apache Spark 4, OffsetSeqLog and CommitLog): `offsets/N` has a line with the version, a
line with metadata, and a line for each source; `commits/N` exists when batch N has ended. Local file systems
have a checksum beside each file (`.N.crc`), which a changed file must not keep.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow.fs

from ..errors import BadOffsets, ConnectorError
from ..offsets import parse_json
from ..stream_position import StreamPosition

_VERSION: Final = "v1"
_HEAD_LINES: Final = 2
_NUMBER: Final = re.compile(r"[0-9]+")
_BACKUPS: Final = "rocketmq-backups"


class CheckpointError(ConnectorError):
    """A checkpoint cannot be read, or must not be changed."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The offsets of one batch: its end in each source, as lines."""

    number: int
    lines: tuple[str, ...]

    def position(self, source: int) -> StreamPosition:
        """Return the position of a source. Raises BadOffsets."""
        return StreamPosition.from_nested(self.nested(source))

    def nested(self, source: int) -> object:
        """Return the parsed offset of a source. Raises BadOffsets."""
        return parse_json(self.lines[_HEAD_LINES + source])

    def sources(self) -> list[int]:
        """Return the indexes of the sources of this connector."""
        return [index for index in range(len(self.lines) - _HEAD_LINES) if self._is_ours(index)]

    def with_position(self, source: int, position: StreamPosition) -> Batch:
        """Return the batch with another position of one source."""
        lines = list(self.lines)
        # As Spark writes the offset of a Python source.
        lines[_HEAD_LINES + source] = json.dumps(position.to_nested())
        return replace(self, lines=tuple(lines))

    def _is_ours(self, source: int) -> bool:
        try:
            position = self.position(source)
        except BadOffsets:
            return False
        return bool(position.offsets or position.retired)


class CheckpointFiles:
    """The folder of a checkpoint: a local path, or a URI of any file system that Arrow knows."""

    def __init__(self, folder: str) -> None:
        """Raises CheckpointError if this is no checkpoint of a streaming query."""
        self.folder = folder
        uri = folder if "://" in folder or folder.startswith("file:") else str(Path(folder).absolute())
        try:
            system, path = pyarrow.fs.FileSystem.from_uri(uri)
            self._system: Any = system
            self._path = path.rstrip("/")
            if not self._is_file("metadata"):
                raise CheckpointError(
                    f"{folder} is no checkpoint of a streaming query: it has no file metadata"
                )
        except (OSError, ValueError) as error:
            raise CheckpointError(f"checkpoint {folder} cannot be read: {error}") from error

    @property
    def query_id(self) -> str:
        """The id of the query."""
        found = parse_json(self._read("metadata"))
        return str(found["id"]) if isinstance(found, dict) and "id" in found else "unknown"

    def committed(self) -> Batch:
        """Return the last batch that has ended. Raises CheckpointError if there is none."""
        commits, offsets = self._numbers("commits"), self._numbers("offsets")
        ended = [number for number in offsets if number in commits]
        if not ended:
            raise CheckpointError(
                f"no batch of {self.folder} has ended: delete the checkpoint, and start the query with "
                "startingOffsets or startingTimestamp"
            )
        return self._batch(max(ended))

    def previous(self, batch: Batch) -> list[Batch]:
        """Return the batch before a batch, if its offsets are still there."""
        return [self._batch(batch.number - 1)] if batch.number - 1 in self._numbers("offsets") else []

    def unfinished(self) -> list[Batch]:
        """Return the batches after the last one that has ended."""
        last = self.committed().number
        return [self._batch(number) for number in sorted(self._numbers("offsets")) if number > last]

    def changed_at(self) -> float:
        """Return when a file was last added or changed, in seconds since 1970 UTC."""
        found = [
            info.mtime_ns / 1e9
            for folder in ("offsets", "commits")
            for info in self._infos(folder)
            if info.mtime_ns is not None
        ]
        return max(found, default=0.0)

    def replace(self, batch: Batch, stamp: str) -> str:
        """Write a changed batch, and remove those after it. Return the folder with the old files.

        `stamp`: the name of that folder.
        """
        backup = f"{_BACKUPS}/{stamp}"
        self._system.create_dir(f"{self._path}/{backup}", recursive=True)
        later = [each.number for each in self.unfinished()]
        for number in (batch.number, *later):
            self._system.copy_file(self._at(f"offsets/{number}"), self._at(f"{backup}/{number}"))
        for number in reversed(later):
            self._delete(f"offsets/{number}")
            self._delete_checksum(number)
        self._delete_checksum(batch.number)
        unfinished = self._at(f"offsets/.{batch.number}.rocketmq")
        with self._system.open_output_stream(unfinished) as stream:
            stream.write("\n".join(batch.lines).encode())
        self._system.move(unfinished, self._at(f"offsets/{batch.number}"))
        return f"{self.folder.rstrip('/')}/{backup}"

    def _batch(self, number: int) -> Batch:
        lines = tuple(self._read(f"offsets/{number}").split("\n"))
        if lines[0] != _VERSION or len(lines) <= _HEAD_LINES:
            raise CheckpointError(
                f"{self.folder}/offsets/{number} has the format {lines[0]!r}; this tool knows {_VERSION!r}"
            )
        return Batch(number, lines)

    def _numbers(self, folder: str) -> set[int]:
        return {int(info.base_name) for info in self._infos(folder)}

    def _infos(self, folder: str) -> list[Any]:
        selector = pyarrow.fs.FileSelector(self._at(folder), allow_not_found=True)
        return [info for info in self._system.get_file_info(selector) if _NUMBER.fullmatch(info.base_name)]

    def _read(self, name: str) -> str:
        with self._system.open_input_stream(self._at(name)) as stream:
            return str(stream.read().decode())

    def _delete_checksum(self, number: int) -> None:
        if self._is_file(f"offsets/.{number}.crc"):
            self._delete(f"offsets/.{number}.crc")

    def _delete(self, name: str) -> None:
        self._system.delete_file(self._at(name))

    def _is_file(self, name: str) -> bool:
        return bool(self._system.get_file_info(self._at(name)).type == pyarrow.fs.FileType.File)

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"
