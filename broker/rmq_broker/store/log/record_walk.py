"""Walking a log file from record to record, and searching for the next record behind damage."""

from __future__ import annotations

from collections.abc import Iterator
from mmap import mmap
from struct import Struct
from typing import Final

from .record import BLANK_BYTES, MAGIC_BLANK, RecordSummary, parse_record

_unpack_blank: Final = Struct(">ii").unpack_from
_FIRST_BYTES_OF_MAGIC: Final = b"\xda\xa3\x20"  # of both versions
_MAGIC_AT: Final = 4


class ScanEnd:
    """How a walk over a file ended: at the blank that closes a full file, or at an invalid record."""

    __slots__ = ("is_full", "position")

    def __init__(self) -> None:
        self.is_full = False
        self.position = 0


def walk_records(
    data: mmap,
    position: int,
    file_start: int,
    end: ScanEnd,
    *,
    check_crc: bool = True,
    limit: int | None = None,
) -> Iterator[RecordSummary]:
    """Iterate over the valid records of one file from `position` on, before `limit`.

    `end.position` is kept at the end of the last record; when the iteration is over, `end.is_full` tells
    whether the file's closing blank follows.
    """
    if limit is None:
        limit = len(data)
    end.position = position
    while position + BLANK_BYTES <= limit:
        record = parse_record(data, position, file_start, check_crc=check_crc, limit=limit)
        if record is None:
            size, magic = _unpack_blank(data, position)
            end.is_full = magic == MAGIC_BLANK and size == len(data) - position
            return
        position += record.size
        end.position = position
        yield record


def next_record(data: mmap, position: int, file_start: int, until: int) -> int | None:
    """Return where the first valid record begins between `position` and `until`; None if there is none."""
    while (magic_at := data.find(_FIRST_BYTES_OF_MAGIC, position + _MAGIC_AT, until)) >= 0:
        position = magic_at - _MAGIC_AT
        if parse_record(data, position, file_start) is not None:
            return position
        position += 1
    return None
