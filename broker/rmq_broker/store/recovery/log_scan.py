"""Reading the commit log from a start point on: its records, damage on the way, and its end.

The log ends at the first record that is not valid. Damage before the offset up to which everything was
certainly written does not end the log: it is logged and skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
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
_READ_BYTES: int = 1024 * 1024  # not `Final`: tests use less
# More than the fixed part of a record, whose fields tell whether it is one.
_HEAD_BYTES: Final = 256
# Of a file that plain records are taken from: it fits into the cache of a processor.
_WINDOW_BYTES: Final = 256 * 1024
# With less left, the next part is taken: the record there may be cut off.
_LITTLE_BYTES: Final = 4 * 1024


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

    __slots__ = (
        "_ahead",
        "_check_crc",
        "_file",
        "_files",
        "_may_be_torn",
        "_position",
        "_start",
        "_walk",
        "_window",
        "_window_at",
        "_window_of",
        "last_timestamp_ms",
        "log_end",
        "records_read",
    )

    def __init__(self, commit_log: CommitLog, start: StartPoint, stop: StopKind, *, check_crc: bool) -> None:
        self._files = list(reversed(commit_log.files))  # to read; the next one is the last
        self._start = start
        # A disk writes a page in sectors, of which any may be missing after a crash of the machine. After a
        # crash of the process every record with a beginning is complete, as its beginning is written last.
        self._may_be_torn = stop is StopKind.MACHINE_CRASHED
        self._check_crc = check_crc
        self._file: MappedFile | None = None  # being read, from `_position` on
        self._position = 0
        self._ahead: _ReadAhead | None = None
        self._walk: RecordWalk | None = None
        # Of `take_plain`: a part of a file, where it begins in the file, and the file.
        self._window, self._window_at = b"", 0
        self._window_of: MappedFile | None = None
        self.log_end = start.begin
        self.records_read = 0
        self.last_timestamp_ms = 0

    def __iter__(self) -> LogScan:
        return self

    def __next__(self) -> RecordSummary:
        """Return the next record. Raises OSError if the disk cannot read it; blocks."""
        while True:
            walk = self._walk
            if walk is None:
                walk = self._begin_walk()
                if walk is None:
                    raise StopIteration
            record = walk.advance()
            if record is not None:
                if not self._may_be_torn or not self._is_torn(record):
                    self.records_read += 1
                    self.last_timestamp_ms = record.store_timestamp_ms
                    return record
                walk.position -= record.size
            self._end_walk(walk)

    def take_plain(self, take: Callable[[bytes, int, int], tuple[int, int]]) -> int:
        """Pass the log behind the last record to `take`, and count the records that it took as read.

        Its arguments are bytes of the log, the position behind the last record in them, and their log offset.
        It returns the position behind the last record that it took, and the number of these records, which
        this method returns.
        """
        walk, file, ahead = self._walk, self._file, self._ahead
        if walk is None or file is None or ahead is None or self._may_be_torn:
            return 0
        begin = walk.position - self._window_at
        if self._window_of is not file or not 0 <= begin < len(self._window) - _LITTLE_BYTES:
            self._window_of, self._window_at, begin = file, walk.position, 0
            end = min(walk.position + _WINDOW_BYTES, ahead.read_up_to)
            self._window = file.map[walk.position : end]
        behind, records = take(self._window, begin, file.start + self._window_at)
        walk.position = self._window_at + behind
        self.records_read += records
        return records

    def _begin_walk(self) -> RecordWalk | None:
        """Walk on in the present file or the next; None: the log ends here."""
        while (file := self._file) is None or self._position >= file.size:
            if not self._files:
                return None
            self._file = file = self._files.pop()
            self._position = max(0, self._start.begin - file.start)
            self._ahead = _ReadAhead(file, self._position)
        ahead = self._ahead
        assert ahead is not None
        ahead.read_record(self._position)
        self._walk = walk = RecordWalk(
            file.map, self._position, file.start, check_crc=self._check_crc, limit=ahead.read_up_to
        )
        return walk

    def _end_walk(self, walk: RecordWalk) -> None:
        """Find out where the log goes on behind the last record of a walk."""
        self._walk = None
        file, ahead = self._file, self._ahead
        assert file is not None and ahead is not None
        self.log_end = file.start + walk.position
        if walk.is_full:
            self.log_end = file.start + file.size
            self._position = file.size
        elif ahead.read_record(walk.position):
            self._position = walk.position  # the walk ended where the part ends that had been read
        elif self.log_end >= self._start.certain_end:
            self._position = file.size
            self._files.clear()
        else:
            ahead.read_to(file.size)
            found = self._behind_damage(file, walk.position)
            self._position = file.size if found is None else found

    def _is_torn(self, record: RecordSummary) -> bool:
        """Whether a record that looks valid lacks a sector of its properties, which no checksum covers."""
        log_end = record.physical_offset + record.size
        if log_end <= self._start.certain_end or b"\0" not in record.properties:
            return False
        file = self._file
        assert file is not None
        end = log_end - file.start
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
