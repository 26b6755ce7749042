"""Reading of index files: headers, entries and slots."""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .layout import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT_BYTES
from .mapped_file import data_blocks

DEFAULT_SLOTS: Final = 5_000_000
_NAME_DIGITS: Final = 17
# The next file, which this project's broker creates ahead; it has no entries yet.
_SPARE_NAME: Final = "rmq_next"
_BLOCK_ENTRIES: Final = 65_536
_BLOCK_SLOTS: Final = 262_144
_OFFSET_IN_ENTRY: Final = 4
# Numbers of slots that are tried if the file has only an entry of the log's first message.
_MAX_TRIED: Final = 20_000


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """Header of a file; `count` is the number of entries plus one."""

    begin_ms: int
    end_ms: int
    begin_offset: int
    end_offset: int
    slots_used: int
    count: int


class IndexFile:
    """One file, open for reading until `close`."""

    def __init__(self, path: Path) -> None:
        """Open a file. Raises OSError, or ValueError for a file that is too short.

        The number of slots is not stored in the file: see `find_slots`.
        """
        self.path = path
        self.slots = DEFAULT_SLOTS
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._descriptor).st_size
        head = os.pread(self._descriptor, INDEX_HEADER.size, 0)
        if len(head) < INDEX_HEADER.size:
            self.close()
            raise ValueError(f"it has {self.size} bytes, less than its header")
        self.header = IndexHeader(*INDEX_HEADER.unpack(head))

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    @property
    def entries(self) -> int:
        """Number of entries according to the header."""
        return max(0, self.header.count - 1)

    @property
    def capacity(self) -> int:
        """Number of entries that fit plus one, because the first position stays empty."""
        return (self.size - self._entries_at) // INDEX_ENTRY.size

    @property
    def _entries_at(self) -> int:
        return INDEX_HEADER.size + self.slots * INDEX_SLOT_BYTES

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield all entries in order, as (number of the first, packed entries). Numbers begin at 1."""
        number = 1
        while number <= self.entries:
            count = min(_BLOCK_ENTRIES, self.entries + 1 - number)
            at = self._entries_at + number * INDEX_ENTRY.size
            content = os.pread(self._descriptor, count * INDEX_ENTRY.size, at)
            count = len(content) // INDEX_ENTRY.size
            if count == 0:
                return
            yield number, content[: count * INDEX_ENTRY.size]
            number += count

    def slot_blocks(self) -> Iterator[tuple[int, array[int]]]:
        """Yield the newest entry of each slot, 0 for none, as (number of the first slot, values)."""
        for first in range(0, self.slots, _BLOCK_SLOTS):
            count = min(_BLOCK_SLOTS, self.slots - first)
            at = INDEX_HEADER.size + first * INDEX_SLOT_BYTES
            values = array("i", os.pread(self._descriptor, count * INDEX_SLOT_BYTES, at))
            if sys.byteorder == "little":
                values.byteswap()
            yield first, values

    def find_slots(self) -> int | None:
        """Return the number of slots with which first and last entry match the header; None without one."""
        # While a broker writes, the header may lag behind, or mix values of different moments.
        if self._fits(DEFAULT_SLOTS, exactly=False):
            return DEFAULT_SLOTS
        return next((slots for slots in self._candidates() if self._fits(slots, exactly=True)), None)

    def _candidates(self) -> Iterator[int]:
        """Yield the numbers of slots that fit a position of the first or last entry's log offset."""
        header = self.header
        if header.end_offset == 0:
            # Slots are 4 bytes and entries 20, so every fifth number is possible.
            words = (self.size - INDEX_HEADER.size) // INDEX_SLOT_BYTES
            yield from range(words % 5 or 5, min(words, 5 * _MAX_TRIED), 5)
            return
        places = [(header.count - 1, header.end_offset), (1, header.begin_offset)]
        for number, offset in places:
            if number < 1 or offset <= 0:  # an offset of 0 would be found everywhere
                continue
            for found in self._places_of(offset.to_bytes(8, "big")):
                at = found - _OFFSET_IN_ENTRY - number * INDEX_ENTRY.size - INDEX_HEADER.size
                if at > 0 and at % INDEX_SLOT_BYTES == 0:
                    yield at // INDEX_SLOT_BYTES

    def _places_of(self, wanted: bytes) -> Iterator[int]:
        """Yield the positions of some bytes, not all of them zeros, in the file."""
        reach = len(wanted) - 1  # the bytes may begin in zeros before a block, or end behind the block
        searched_to = 0
        for low, end in data_blocks(self._descriptor, 0, self.size):
            begin = max(low - reach, searched_to)
            content = os.pread(self._descriptor, end + reach - begin, begin)
            found = content.find(wanted)
            while 0 <= found < end - begin:
                yield begin + found
                found = content.find(wanted, found + 1)
            searched_to = end

    def _fits(self, slots: int, *, exactly: bool) -> bool:
        header = self.header
        at = INDEX_HEADER.size + slots * INDEX_SLOT_BYTES
        if header.count <= 1 or (self.size - at) % INDEX_ENTRY.size:
            return False
        # The newest entry of a slot may be newer than the header, but not beyond the file.
        capacity = (self.size - at) // INDEX_ENTRY.size
        if header.count > capacity:
            return False
        for number, offset in ((header.count - 1, header.end_offset), (1, header.begin_offset)):
            content = os.pread(self._descriptor, INDEX_ENTRY.size, at + number * INDEX_ENTRY.size)
            hashed, physical_offset, seconds, before = INDEX_ENTRY.unpack(content)
            if exactly and physical_offset != offset:
                return False
            if min(hashed, physical_offset, seconds) < 0 or not 0 <= before < number:
                return False
            slot_at = INDEX_HEADER.size + hashed % slots * INDEX_SLOT_BYTES
            slot = int.from_bytes(os.pread(self._descriptor, INDEX_SLOT_BYTES, slot_at), "big")
            if slot < number or (exactly and slot >= capacity):
                return False
        return True


def index_paths(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the index files, oldest first, and the other files of the folder. Raises OSError."""
    try:
        paths = sorted(folder.iterdir())
    except FileNotFoundError:
        return [], []
    found = [path for path in paths if path.name.isdecimal() and len(path.name) == _NAME_DIGITS]
    return found, [path for path in paths if path not in found and path.name != _SPARE_NAME]
