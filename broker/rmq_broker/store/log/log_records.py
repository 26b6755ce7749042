"""The log as a sequence of records, from which the index makes entries of messages stored earlier."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from .commit_log import CommitLog
from .mapped_file import MappedFile
from .record import RecordSummary, parse_record
from .record_walk import RecordWalk, next_record

log = logging.getLogger("rmq.store")

_READ_BYTES: Final = 1024 * 1024
_CHUNK_BYTES: Final = 256 * 1024


class LogRecords:
    """Reads records of a log that is being appended to."""

    def __init__(self, commit_log: CommitLog, entries_end: Callable[[], int]) -> None:
        """`entries_end` returns the offset up to which messages have entries."""
        self._log = commit_log
        self._entries_end = entries_end

    @property
    def min_offset(self) -> int:
        """The offset where the log begins."""
        return self._log.min_offset

    @property
    def max_offset(self) -> int:
        """The offset up to which messages have entries."""
        return self._entries_end()

    def records_from(self, offset: int) -> RecordsFrom:
        """Iterate over the valid records from `offset` to the present `max_offset`; damage is skipped."""
        return RecordsFrom(self._log, max(offset, self._log.min_offset), self.max_offset)

    def chunk(self, offset: int) -> bytes:
        """Return bytes from `offset` on, of one file and before `max_offset`; none if there are none."""
        file = self._log.file_of(offset)
        if file is None or not file.is_open:
            return b""
        begin = offset - file.start
        end = min(file.size, self.max_offset - file.start, begin + _CHUNK_BYTES)
        data: bytes = file.map[begin : max(begin, end)]
        return data

    def raw_record(self, offset: int) -> bytes | None:
        """Return the bytes of the record that begins at `offset`; None if there is no valid one.

        Raises OSError; blocks.
        """
        if not 0 <= offset < self.max_offset:
            return None
        data = self._log.raw_record(offset)
        return None if parse_record(data, 0, offset) is None else data

    def warm(self, offset: int, size: int) -> None:
        """Read bytes of the log into the page cache. Raises OSError; blocks."""
        end = offset + size
        while offset < end and (file := self._log.file_of(offset)) is not None:
            part = min(end - offset, file.start + file.size - offset, _READ_BYTES)
            if not file.is_open or not file.read(offset - file.start, part):
                return
            offset += part


class RecordsFrom:
    """Iterates over the valid records of a log between two offsets, in order; damage is skipped."""

    __slots__ = ("_end", "_file", "_log", "_offset", "_walk")

    def __init__(self, commit_log: CommitLog, offset: int, end: int) -> None:
        """A record should begin at `offset`, and one should end at `end`."""
        self._log = commit_log
        self._offset = offset  # where the next walk begins
        self._end = end
        self._file: MappedFile | None = None
        self._walk: RecordWalk | None = None

    def __iter__(self) -> RecordsFrom:
        return self

    def __next__(self) -> RecordSummary:
        while True:
            walk = self._walk
            if walk is None:
                walk = self._walk = self._begin_walk()
                if walk is None:
                    raise StopIteration
            record = walk.advance()
            if record is not None:
                return record
            self._end_walk(walk)

    def _begin_walk(self) -> RecordWalk | None:
        """Begin at `_offset`; None at the end."""
        if self._offset >= self._end:
            return None
        file = self._file = self._log.file_of(self._offset)
        if file is None:
            return None
        limit = min(file.size, self._end - file.start)
        return RecordWalk(file.map, self._offset - file.start, file.start, check_crc=False, limit=limit)

    def _end_walk(self, walk: RecordWalk) -> None:
        """Go on in the next file, or behind damage in this one."""
        self._walk = None
        file = self._file
        if file is None:
            return
        self._offset = file.start + walk.position
        if walk.is_full:
            self._offset = file.start + file.size
        elif self._offset < self._end:
            until = min(file.size, self._end - file.start)
            found = next_record(file.map, walk.position + 1, file.start, until)
            self._offset = file.start + (file.size if found is None else found)
