"""Reading the commit log from a start point on: its records, damage on the way, and its end.

The log ends at the first record that is not valid. Damage before the offset up to which everything was
certainly written does not end the log: it is logged and skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from ..log.commit_log import CommitLog
from ..log.mapped_file import MappedFile
from ..log.record import BLANK_BYTES, RecordSummary
from ..log.record_walk import RecordWalk, next_record
from .start_point import StartPoint
from .stop_marker import StopKind

log = logging.getLogger("rmq.store.recovery")

# The smallest part of a file that a disk writes as a whole.
_SECTOR_BYTES: Final = 512
_READ_BYTES: Final = 1024 * 1024
# More than the fixed part of a record, whose fields tell whether it is one.
_HEAD_BYTES: Final = 256


class _ReadAhead:
    """Reads a file before a walk through its mapping does.

    A page that the disk cannot read raises OSError here. Through the mapping it would kill the process.
    """

    def __init__(self, file: MappedFile, position: int) -> None:
        self.read_up_to = position
        self._file = file
        self._step_bytes = _READ_BYTES

    def read_record(self, position: int) -> bool:
        """Read the record at a position, if there is one; return whether a part of it was unread.

        Raises OSError; blocks.
        """
        file, before = self._file, self.read_up_to
        self.read_to(min(position + _HEAD_BYTES, file.size))
        size = int.from_bytes(file.map[position : position + 4])
        if position + size <= file.size:
            self.read_to(position + size)
        return self.read_up_to > before

    def read_to(self, end: int) -> None:
        """Read up to a position at least. Raises OSError if a page before it cannot be read; blocks."""
        while (begin := self.read_up_to) < end:
            until = min(max(end, begin + self._step_bytes), self._file.size)
            try:
                self._file.read(begin, until - begin)
            except OSError:
                if until == end:
                    raise
                self._step_bytes = 0  # further reads end where their caller asks
            else:
                self.read_up_to = until


class LogScan:
    """Iterates over the valid records once; afterwards `log_end` is the offset behind the last of them."""

    def __init__(self, commit_log: CommitLog, start: StartPoint, stop: StopKind, *, check_crc: bool) -> None:
        self._log = commit_log
        self._start = start
        self._stop = stop
        self._check_crc = check_crc
        self.log_end = start.begin
        self.records_read = 0
        self.last_timestamp_ms = 0

    def __iter__(self) -> Iterator[RecordSummary]:
        for file in self._log.files:
            begin = max(0, self._start.begin - file.start)
            position: int | None = begin
            ahead = _ReadAhead(file, begin)
            while position is not None and position < file.size:
                ahead.read_record(position)
                walk = RecordWalk(
                    file.map,
                    position,
                    file.start,
                    check_crc=self._check_crc,
                    limit=ahead.read_up_to,
                )
                for record in walk:
                    if b"\0" in record.properties and self._is_torn(file, record):
                        walk.position = record.physical_offset - file.start
                        break
                    self.records_read += 1
                    self.last_timestamp_ms = record.store_timestamp_ms
                    yield record
                self.log_end = file.start + walk.position
                if walk.is_full:
                    self.log_end = file.start + file.size
                    break
                if ahead.read_record(walk.position):
                    position = walk.position  # the walk ended where the part ends that had been read
                    continue
                if self.log_end >= self._start.certain_end:
                    return
                ahead.read_to(file.size)
                position = self._behind_damage(file, walk.position)

    def _is_torn(self, file: MappedFile, record: RecordSummary) -> bool:
        """Return whether a record that looks valid lacks a part of its properties, which no checksum covers.

        After a crash of the machine any sector may be missing, that is, zero: a disk writes a page in
        sectors. After a crash of the process there is no such record, because a record's beginning is
        written last.
        """
        end = record.physical_offset + record.size - file.start
        if file.start + end <= self._start.certain_end or self._stop is not StopKind.MACHINE_CRASHED:
            return False
        begin = end - len(record.properties)
        # A sector that the properties share with the bytes before them was written.
        first = -(-begin // _SECTOR_BYTES) * _SECTOR_BYTES
        return any(
            not any(record.properties[sector - begin : sector - begin + _SECTOR_BYTES])
            for sector in range(first, end, _SECTOR_BYTES)
        )

    def _behind_damage(self, file: MappedFile, position: int) -> int | None:
        """The position of the next record of a file behind damage; None: there is none in this file."""
        # A record may begin at `certain_end`.
        until = min(file.size, self._start.certain_end - file.start + BLANK_BYTES)
        found = next_record(file.map, position + 1, file.start, until)
        log.error(
            "the commit log is damaged at %d (file %s): the messages up to %s are lost",
            file.start + position,
            file.path.name,
            "the end of the file" if found is None else file.start + found,
        )
        return found
