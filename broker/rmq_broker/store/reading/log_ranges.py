"""Ranges of the log: on the loop only what is in memory, in a thread whatever is there.

Nobody waits on the loop for a disk. `preadv` with RWF_NOWAIT tells exactly whether a range is in the page
cache. The memory map does not, and a page that is missing there holds the whole interpreter until it is read.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ..log.mapped_file import MappedFile, file_at

if TYPE_CHECKING:
    from ..log.commit_log import CommitLog

log = logging.getLogger("rmq.store")

Preadv = Callable[[int, Sequence[memoryview], int, int], int]
# Gives the bytes of a range of the log (offset, size), good until the next call; None: they are not there.
ReadRange = Callable[[int, int], bytes | memoryview | None]

_SCRATCH_BYTES: Final = 256 * 1024
# One read of 16 KiB too much costs as much as another read: 0.7 µs in memory, and less than a disk's.
_SMALL_GAP_BYTES: Final = 16 * 1024
# Who reads through a backlog finds so much of it in memory after each read from the disk.
_AHEAD_BYTES: Final = 1024 * 1024
_REMEMBERED_BACKLOGS: Final = 1000
_NO_NOWAIT: Final = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class ColdData(Exception):
    """Some of what was asked for is not in memory: it has to be read in a thread."""


class WarmLog:
    """Reads what is in memory, on the loop.

    `is_exact` ends where the file system does not know RWF_NOWAIT (tmpfs does not): reads may wait there.
    """

    def __init__(self, commit_log: CommitLog, preadv: Preadv = os.preadv) -> None:
        self.is_exact = True
        self._log = commit_log
        self._preadv = preadv
        self._flags = os.RWF_NOWAIT
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))

    def read(self, offset: int, size: int) -> memoryview | None:
        """The bytes of a range within one file, good until the next call; None where they are not there.

        Raises ColdData, OSError.
        """
        found = _find(self._log.files, offset, size)
        if found is None:
            return None
        buffer = self._scratch[:size] if size <= _SCRATCH_BYTES else memoryview(bytearray(size))
        try:
            got = self._preadv(found.descriptor, (buffer,), offset - found.start, self._flags)
        except BlockingIOError:
            raise ColdData from None
        except OSError as error:
            if not self.is_exact or error.errno not in _NO_NOWAIT:
                raise
            log.info(
                "the log's file system cannot tell what is in memory (%s): old messages are read in threads",
                error,
            )
            self.is_exact, self._flags = False, 0
            return self.read(offset, size)
        if got < size:
            raise ColdData
        return buffer


class ColdLog:
    """Reads from the disk, in a thread.

    It holds the files that were there when it was made: one that is removed meanwhile can be read to the end.
    """

    def __init__(self, files: Sequence[MappedFile], backlogs: Backlogs) -> None:
        self.bytes_read = 0
        self._files = tuple(files)
        self._backlogs = backlogs

    def read(self, offset: int, size: int) -> bytes | None:
        """The bytes of a range within one file; None where they are not there. Raises OSError; blocks."""
        file = _find(self._files, offset, size)
        if file is None:
            return None
        descriptor, position = file.descriptor, offset - file.start
        if descriptor < 0:
            return None  # the store has been closed
        # What is read ahead is decided here: the system's own way may be MiBs, for one message.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        data = os.pread(descriptor, size, position)
        self.bytes_read += len(data)
        return data if len(data) == size else None

    def expect(self, ranges: Sequence[Sequence[int]]) -> None:
        """Have the system begin with all these (offset, size, ...): it reads them at once, not in turn."""
        groups = list(_groups(ranges))
        if len(groups) == 1:
            return
        for group in groups:
            size = group.end - group.begin
            file = _find(self._files, group.begin, size)
            if file is not None and file.descriptor >= 0:
                os.posix_fadvise(file.descriptor, group.begin - file.start, size, os.POSIX_FADV_WILLNEED)

    def read_ahead(self, backlog: object, begin: int, end: int) -> None:
        """Have the system read what follows `end`, where this backlog has been read up to `begin` before.

        What has been read is left to the system's page cache, where pages that were read once go first.
        Dropping them here would have them read again: several groups, and all queues of a topic, share them.
        """
        if not self._backlogs.goes_on(backlog, begin, end):
            return
        file = _find(self._files, end, 0)
        if file is None or file.descriptor < 0:
            return
        length = min(_AHEAD_BYTES, file.start + file.wrote - end)
        if length > 0:
            os.posix_fadvise(file.descriptor, end - file.start, length, os.POSIX_FADV_WILLNEED)


class Backlogs:
    """Where queues were read from the disk last: hints, so that several threads may use it."""

    def __init__(self) -> None:
        self._ends: dict[object, int] = {}

    def goes_on(self, backlog: object, begin: int, end: int) -> bool:
        """Whether a read of these log offsets goes on near where the one before it ended."""
        before = self._ends.get(backlog)
        if before is None and len(self._ends) >= _REMEMBERED_BACKLOGS:
            self._ends.clear()
        self._ends[backlog] = end
        return before is not None and 0 <= begin - before <= 2 * _AHEAD_BYTES


def read_records(ranges: Sequence[Sequence[int]], read: ReadRange) -> tuple[bytes, list[int]]:
    """The records at these (offset, size, ...), ascending, and the indexes of those that are there.

    Neighbours are read as one range. Raises as `read` does.
    """
    parts: list[bytes] = []
    there: list[int] = []
    for group in _groups(ranges):
        first, until = group.first, group.until
        whole = read(group.begin, group.end - group.begin)
        if whole is not None:
            view, origin = memoryview(whole), group.begin
            parts.append(b"".join([view[begin - origin : end - origin] for begin, end in group.runs]))
            there += range(first, until)
        elif until - first > 1:
            # Some of them have been removed, or they stand in two files.
            for index in range(first, until):
                record = read(ranges[index][0], ranges[index][1])
                if record is not None:
                    parts.append(bytes(record))
                    there.append(index)
    return parts[0] if len(parts) == 1 else b"".join(parts), there


def iter_stretches(
    ranges: Sequence[Sequence[int]], read: ReadRange
) -> Iterator[tuple[int, bytes | None, Sequence[Sequence[int]]]]:
    """The records at these (offset, size, ...), ascending: stretches of the log, and what of them is in each.

    A stretch is its offset, its bytes and the ranges in it; the bytes are None where one record is not there.
    Neighbours are read together, but not more than may turn out not to be needed. Raises as `read` does.
    """
    start, total = 0, 0
    for index, each in enumerate(ranges):
        if index > start and total + each[1] > _SCRATCH_BYTES:
            yield from _stretches(ranges[start:index], read)
            start, total = index, 0
        total += each[1]
    if ranges:
        yield from _stretches(ranges[start:], read)


def _stretches(
    ranges: Sequence[Sequence[int]], read: ReadRange
) -> Iterator[tuple[int, bytes | None, Sequence[Sequence[int]]]]:
    for group in _groups(ranges):
        members = ranges[group.first : group.until]
        whole = read(group.begin, group.end - group.begin)
        if whole is not None:
            yield group.begin, bytes(whole), members
            continue
        # Some of them have been removed, or they stand in two files.
        for each in members:
            record = read(each[0], each[1])
            yield each[0], None if record is None else bytes(record), (each,)


class _Group(NamedTuple):
    """Ranges that are worth one read, and where in the log they stand: `runs` has neighbours as one."""

    first: int
    until: int
    begin: int
    end: int
    runs: list[tuple[int, int]]


def _groups(ranges: Sequence[Sequence[int]]) -> Iterator[_Group]:
    first, begin = 0, ranges[0][0]
    run_begin = end = begin
    runs: list[tuple[int, int]] = []
    for index, each in enumerate(ranges):
        position = each[0]
        if position != end:
            runs.append((run_begin, end))
            run_begin = position
            until = position + each[1]
            if not 0 <= position - end <= _SMALL_GAP_BYTES or until - begin > _SCRATCH_BYTES:
                yield _Group(first, index, begin, end, runs)
                first, begin, runs = index, position, []
            end = until
        else:
            end += each[1]
    runs.append((run_begin, end))
    yield _Group(first, len(ranges), begin, end, runs)


def _find(files: Sequence[MappedFile], offset: int, size: int) -> MappedFile | None:
    """The file that all of a range is written in."""
    file = file_at(files, offset)
    return file if file is not None and offset + size <= file.start + file.wrote else None
