"""A file of entries of equal size: finding the end of its entries, and clearing the rest."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Final

from ..errors import StoreDamaged
from ..log.mapped_file import PAGE_BYTES, file_name
from .descriptors import OpenFile

log = logging.getLogger("rmq.store")

# Each kind of entry begins with its record's offset in the log and its size.
Place = tuple[int, int]
_PLACE: Final = Struct(">qi")
_unpack_place: Callable[[bytes, int], Place] = _PLACE.unpack_from
# The size in entries without a message: before the first message of the first file (fillPreBlank), in gaps.
PLACEHOLDER_SIZE: Final = 0x7FFFFFFF
_ENTRIES_SEARCHED_AT_ONCE: Final = 200
# Entries to keep in memory: the last two are used first, and short queues are in memory as a whole.
_ENTRIES_LOADED: Final = 16


def place_of(raw: bytes) -> Place:
    """Return offset and size of an entry's record."""
    return _unpack_place(raw, 0)


def file_starts(folder: Path, file_bytes: int, size_setting: str) -> list[int]:
    """Return the positions where the files of a queue begin.

    The last file may be short, if the broker stopped before it got its size. Raises StoreDamaged for a file
    of another size, with the setting to check; OSError.
    """
    try:
        with os.scandir(folder) as found:
            sizes = {
                int(file.name): file.stat().st_size
                for file in found
                if len(file.name) == 20 and file.name.isascii() and file.name.isdecimal()
            }
    except FileNotFoundError:
        return []
    last = max(sizes, default=0)
    # A power cut may leave the name of a file without its content: such a file counts as missing.
    starts = sorted(start for start, size in sizes.items() if size or start == last)
    for start in starts:
        size = sizes[start]
        if size > file_bytes or (size < file_bytes and start != starts[-1]):
            raise StoreDamaged(
                f"{folder / file_name(start)} has {size} bytes instead of {file_bytes}: set "
                f"{size_setting} to the size that this store was created with, or remove the whole "
                f"folder {folder.parent.parent.name}: it is rebuilt from the commit log"
            )
        if 0 < size < file_bytes:
            log.warning(
                "short file extended path=%s size_bytes=%d expected_bytes=%d",
                folder / file_name(start),
                size,
                file_bytes,
            )
    return starts


def used_part(file: OpenFile, unit: int, file_bytes: int) -> tuple[int, bytes]:
    """Return where the entries of `unit` bytes in a file end, and the newest of them.

    A written entry has a size, and entries are written in order.
    """
    # Most queues are short: the search begins at the beginning.
    low, high, block = 0, file_bytes // unit, _ENTRIES_SEARCHED_AT_ONCE
    middle = min(block, high) - 1
    while high > low:
        raw = file.read(middle * unit, unit)
        if len(raw) == unit and place_of(raw)[1] > 0:
            low = middle + 1
        else:
            high = middle
        middle = (low + high) // 2
        if high - low <= block:
            raw = file.read(low * unit, (high - low) * unit)
            count = _count_entries(raw, unit)
            if count >= _ENTRIES_LOADED or low == 0:
                return (low + count) * unit, raw[max(0, count - _ENTRIES_LOADED) * unit : count * unit]
            low += count
            break
    first = max(0, low - _ENTRIES_LOADED)
    return low * unit, file.read(first * unit, (low - first) * unit)


def _count_entries(raw: bytes, unit: int) -> int:
    """Return the number of written entries at the beginning."""
    low, high = 0, len(raw) // unit
    while low < high:
        middle = (low + high) // 2
        if _unpack_place(raw, middle * unit)[1] > 0:
            low = middle + 1
        else:
            high = middle
    return low


def truncate(path: str, length: int, size: int) -> None:
    """Clear a file's content from `length` on."""
    file = OpenFile(path, os.O_RDWR)
    file.resize(length)
    file.resize(size)


def wipe(path: str, length: int, size: int) -> None:
    """Clear a file's content from `length` on, if there is any."""
    file = OpenFile(path)
    page_end = min(size, -(-length // PAGE_BYTES) * PAGE_BYTES)
    if any(file.read(length, page_end - length)) or (page_end < size and file.has_content(page_end)):
        truncate(path, length, size)
