"""Walking a log file from record to record, and searching for the next record behind damage."""

from __future__ import annotations

from mmap import mmap
from struct import Struct
from typing import Final

from .record import BLANK_BYTES, MAGIC_BLANK, RecordSummary, parse_record

_unpack_blank: Final = Struct(">ii").unpack_from
_FIRST_BYTES_OF_MAGIC: Final = b"\xda\xa3\x20"  # of both versions
_MAGIC_AT: Final = 4


class RecordWalk:
    """Iterates over the valid records of one file from `position` on, before `limit`.

    `position` is kept at the end of the last record. When the walk is over, `is_full` tells whether the blank
    that closes a full file follows; otherwise there is no valid record.
    """

    __slots__ = ("_check_crc", "_data", "_file_start", "_limit", "is_full", "position")

    def __init__(
        self,
        data: mmap,
        position: int,
        file_start: int,
        *,
        check_crc: bool = True,
        limit: int | None = None,
    ) -> None:
        self.position = position
        self.is_full = False
        self._data = data
        self._file_start = file_start
        self._check_crc = check_crc
        self._limit = len(data) if limit is None else limit

    def __iter__(self) -> RecordWalk:
        return self

    def __next__(self) -> RecordSummary:
        record = self.advance()
        if record is None:
            raise StopIteration
        return record

    def advance(self) -> RecordSummary | None:
        """Return the next record, or None: the walk is over."""
        position = self.position
        if position + BLANK_BYTES > self._limit:
            return None
        record = parse_record(
            self._data, position, self._file_start, check_crc=self._check_crc, limit=self._limit
        )
        if record is None:
            size, magic = _unpack_blank(self._data, position)
            self.is_full = magic == MAGIC_BLANK and size == len(self._data) - position
            return None
        self.position = position + record.size
        return record


def next_record(data: mmap, position: int, file_start: int, until: int) -> int | None:
    """Return where the first valid record begins between `position` and `until`; None if there is none."""
    while (magic_at := data.find(_FIRST_BYTES_OF_MAGIC, position + _MAGIC_AT, until)) >= 0:
        position = magic_at - _MAGIC_AT
        if parse_record(data, position, file_start) is not None:
            return position
        position += 1
    return None
