"""Extension files of a consume queue: `consumequeue_ext/TOPIC/QUEUE ID/`.

An entry whose tags code is an address here has its real one in the unit there (Apache RocketMQ 5.3.3,
ConsumeQueueExt). They are read where another broker wrote them, and go with their queue; none are written.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import Final

from ..log.mapped_file import file_name, list_files
from .descriptors import QueueSupport

# int16 size, int64 tags code, int64 store time, int16 length of the bit map, bit map
_UNIT: Final = Struct(">hqqh")
_LARGEST_ADDRESS: Final = -(1 << 31) - 1
_ADDRESS_OF_0: Final = -(1 << 63)


def is_ext_address(tags_code: int) -> bool:
    """Whether the tags code of an entry is the address of a unit: hashes and times never are so small."""
    return tags_code <= _LARGEST_ADDRESS


class ConsumeQueueExt:
    """The extension files of one queue; for any thread."""

    __slots__ = ("_file_bytes", "_folder", "_support")

    def __init__(self, folder: Path, file_bytes: int, support: QueueSupport) -> None:
        self._folder = folder
        self._file_bytes = file_bytes
        self._support = support

    def tags_code(self, address: int) -> int | None:
        """The tags code that stands at an address, None where there is no unit. Raises OSError; blocks."""
        position = address - _ADDRESS_OF_0
        start = position - position % self._file_bytes
        try:
            file = self._support.descriptors.open((self, start), self._folder / file_name(start))
        except FileNotFoundError:
            return None
        raw = file.read(position - start, _UNIT.size)
        if len(raw) < _UNIT.size:
            return None
        size, tags_code, _, _ = _UNIT.unpack(raw)
        return int(tags_code) if size >= _UNIT.size else None

    def delete_before(self, address: int) -> int:
        """Remove the files all of whose units are before an address; their number. Raises OSError."""
        position = address - _ADDRESS_OF_0
        gone = [path for path in list_files(self._folder) if int(path.name) + self._file_bytes < position]
        for path in gone:
            path.unlink(missing_ok=True)
            self._support.descriptors.discard((self, int(path.name)))
        return len(gone)

    def delete(self) -> None:
        """Remove all files and their folder. Raises OSError."""
        self._support.descriptors.forget(self)
        for path in list_files(self._folder):
            path.unlink(missing_ok=True)
        if self._folder.is_dir() and not any(self._folder.iterdir()):
            self._folder.rmdir()
