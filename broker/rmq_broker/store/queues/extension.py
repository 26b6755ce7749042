"""Extension files of a consume queue: `consumequeue_ext/TOPIC/QUEUE ID/`.

If the tags code of an entry is an address, the unit at that address holds the real tags code (Apache
RocketMQ 5.3.3, ConsumeQueueExt). The unit also holds the message's store time, and the bit map of the filters
that took it. `ext_writer.py` writes the files.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from ..log.mapped_file import file_name, list_files
from .queue_resources import QueueResources

# int16 size, int64 tags code, int64 store time, int16 length of the bit map, bit map
EXT_UNIT: Final = Struct(">hqqh")
ADDRESS_OF_0: Final = -(1 << 63)
_LARGEST_ADDRESS: Final = -(1 << 31) - 1


# Longer bit maps take a second read.
_USUAL_MAP_BYTES: Final = 64


def is_ext_address(tags_code: int) -> bool:
    """Whether an entry's tags code is the address of a unit: hashes and times are never so small."""
    return tags_code <= _LARGEST_ADDRESS


class ExtUnit(NamedTuple):
    """The unit of one message; the bit map is empty if it has none."""

    tags_code: int
    store_timestamp_ms: int
    bit_map: bytes


class ConsumeQueueExt:
    """The extension files of one queue; for any thread."""

    __slots__ = ("_file_bytes", "_resources", "folder", "unwritten")

    def __init__(self, folder: Path, file_bytes: int, resources: QueueResources) -> None:
        self.folder = folder
        # Units that are not in the files yet, by their positions, in order.
        self.unwritten: dict[int, bytes] = {}
        self._file_bytes = file_bytes
        self._resources = resources

    def end_of_files(self) -> int:
        """Return the position behind the last file. Raises OSError; blocks."""
        files = list_files(self.folder)
        return int(files[-1].name) + self._file_bytes if files else 0

    def tags_code(self, address: int) -> int | None:
        """Return the tags code at an address; None if there is no unit. Raises OSError; blocks."""
        unit = self.unit(address)
        return None if unit is None else unit.tags_code

    def unit(self, address: int) -> ExtUnit | None:
        """Return the unit at an address; None if there is none. Raises OSError; blocks."""
        position = address - ADDRESS_OF_0
        unwritten = self.unwritten.get(position)
        if unwritten is not None:
            _, tags_code, store_timestamp_ms, _ = EXT_UNIT.unpack_from(unwritten)
            return ExtUnit(tags_code, store_timestamp_ms, unwritten[EXT_UNIT.size :])
        start = position - position % self._file_bytes
        try:
            file = self._resources.descriptors.open((self, start), self.folder / file_name(start))
        except FileNotFoundError:
            return None
        raw = file.read(position - start, EXT_UNIT.size + _USUAL_MAP_BYTES)
        if len(raw) < EXT_UNIT.size:
            return None
        size, tags_code, store_timestamp_ms, map_bytes = EXT_UNIT.unpack_from(raw)
        if size < EXT_UNIT.size:
            return None
        bit_map = raw[EXT_UNIT.size : EXT_UNIT.size + max(0, map_bytes)]
        if len(bit_map) < map_bytes:
            bit_map = file.read(position - start + EXT_UNIT.size, map_bytes)
        return ExtUnit(tags_code, store_timestamp_ms, bit_map)

    def delete_before(self, address: int) -> int:
        """Remove files whose units are all before an address; return how many. Raises OSError."""
        position = address - ADDRESS_OF_0
        gone = [path for path in list_files(self.folder) if int(path.name) + self._file_bytes < position]
        for path in gone:
            path.unlink(missing_ok=True)
            self._resources.descriptors.discard((self, int(path.name)))
        return len(gone)

    def delete(self) -> None:
        """Remove all files and their folder. Raises OSError."""
        self.unwritten.clear()
        self._resources.descriptors.forget(self)
        for path in list_files(self.folder):
            path.unlink(missing_ok=True)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()
