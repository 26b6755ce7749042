"""The log as a sequence of records, from which the index makes entries of messages stored earlier."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

from .commit_log import CommitLog
from .record import RecordSummary, parse_record
from .record_walk import RecordWalk, next_record

log = logging.getLogger("rmq.store")

_READ_BYTES: Final = 1024 * 1024


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

    def records_from(self, offset: int) -> Iterator[RecordSummary]:
        """Iterate over the valid records from `offset` to `max_offset`, in order; damage is skipped."""
        offset = max(offset, self._log.min_offset)
        while (file := self._log.file_of(offset)) is not None:
            position = offset - file.start
            until = min(file.wrote, self.max_offset - file.start)
            if position >= until:
                if file.wrote < file.size or self.max_offset <= file.start + file.size:
                    return
                offset = file.start + file.size
                continue
            walk = RecordWalk(file.map, position, file.start, check_crc=False)
            for record in walk:
                if record.physical_offset >= self.max_offset:
                    return
                yield record
                offset = record.physical_offset + record.size
            if walk.is_full:
                offset = file.start + file.size
            elif file.start + walk.position < self.max_offset:
                found = next_record(file.map, walk.position + 1, file.start, until)
                offset = file.start + (file.size if found is None else found)
            else:
                return

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
