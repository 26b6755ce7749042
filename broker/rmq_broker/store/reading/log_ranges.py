"""Reading ranges of the commit log: from memory on the event loop, from disk in a thread.

The event loop never waits for a disk. `preadv` with RWF_NOWAIT tells exactly whether a range is in the page
cache. A memory map does not: an access to a missing page blocks the whole interpreter until it is read.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Final, NamedTuple

from rmq_remoting.bounded_cache import ENTRY_OVERHEAD_BYTES, BoundedCache, size_of_small

from ..log.commit_log import CommitLog
from ..log.mapped_file import MappedFile, Preadv, file_at

log = logging.getLogger("rmq.store")

# Returns the bytes of a range of the log (offset, size), valid until the next call; None: they do not exist.
ReadRange = Callable[[int, int], bytes | memoryview | None]
# Takes the offset of a range of the log, its bytes, and the records in it (offset, size, ...). Returns
# whether to go on. The bytes are None for a record that does not exist.
TakeRange = Callable[[int, bytes | None, Sequence[Sequence[int]]], bool]

_SCRATCH_BYTES: Final = 256 * 1024
# Reading 16 KiB too much costs as much as one more read: 0.7 µs from memory, and less than that from disk.
_SMALL_GAP_BYTES: Final = 16 * 1024
# How much a consumer that reads through a backlog finds in memory after each read from disk.
_AHEAD_BYTES: Final = 1024 * 1024
_MAX_QUEUES: Final = 1000
_NO_NOWAIT: Final = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class ColdData(Exception):
    """A part of the data is not in memory: it has to be read in a thread."""


class WarmLog:
    """Reads data that is in memory, on the event loop.

    `is_exact` becomes False if the file system does not support RWF_NOWAIT (tmpfs does not): then reads may
    block.
    """

    def __init__(self, commit_log: CommitLog, preadv: Preadv = os.preadv) -> None:
        self.is_exact = True
        self._log = commit_log
        self.preadv = preadv
        self._flags = os.RWF_NOWAIT
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))

    def read(self, offset: int, size: int) -> memoryview | None:
        """Return the bytes of a range within one file, valid until the next call; None: they do not exist.

        Raises OSError, and ColdData if a part of the range is not in memory.
        """
        found = _find(self._log.files, offset, size)
        if found is None:
            return None
        buffer = self._scratch[:size] if size <= _SCRATCH_BYTES else memoryview(bytearray(size))
        try:
            got = found.read_into(buffer, offset - found.start, self._flags, self.preadv)
        except BlockingIOError:
            raise ColdData from None
        except OSError as error:
            if not self.is_exact or error.errno not in _NO_NOWAIT:
                raise
            log.info(
                "no RWF_NOWAIT on the log's file system cause=%s; old messages are read in threads", error
            )
            self.is_exact, self._flags = False, 0
            return self.read(offset, size)
        if got < size:
            raise ColdData
        return buffer


class ColdLog:
    """Reads from disk, in a thread.

    It keeps the files that exist when it is created: a file that is removed later remains readable.
    """

    def __init__(self, files: Sequence[MappedFile], sequential_reads: SequentialReads | None = None) -> None:
        """`sequential_reads`: None to read nothing ahead."""
        self.bytes_read = 0
        self.bytes_ahead = 0
        self._ahead: tuple[MappedFile, int] | None = None
        self._files = tuple(files)
        self._sequential_reads = sequential_reads

    def read(self, offset: int, size: int) -> bytes | None:
        """Return the bytes of a range within one file; None: they do not exist. Raises OSError; blocks."""
        file = _find(self._files, offset, size)
        if file is None:
            return None
        if not file.is_open:
            return None
        # `read_ahead` decides how much is read ahead: the system itself might read MiBs for one message.
        file.advise(0, 0, os.POSIX_FADV_RANDOM)
        data = file.read(offset - file.start, size)
        self.bytes_read += len(data)
        return data if len(data) == size else None

    def expect(self, ranges: Sequence[Sequence[int]]) -> None:
        """Have the system begin to read all these ranges (offset, size, ...) at once instead of in turn."""
        groups = _groups(ranges)
        if len(groups) == 1:
            return
        for group in groups:
            size = group.end - group.begin
            file = _find(self._files, group.begin, size)
            if file is not None and file.is_open:
                file.advise(group.begin - file.start, size, os.POSIX_FADV_WILLNEED)

    def plan_ahead(self, queue: object, begin: int, end: int) -> None:
        """Choose the part after `end` for `read_ahead`, if the queue's last read ended near `begin`."""
        self._ahead, self.bytes_ahead = None, 0
        if self._sequential_reads is None or not self._sequential_reads.note(queue, begin, end):
            return
        file = _find(self._files, end, 0)
        if file is None or not file.is_open:
            return
        length = min(_AHEAD_BYTES, file.start + file.wrote - end)
        if length > 0:
            self._ahead, self.bytes_ahead = (file, end), length

    def read_ahead(self) -> None:
        """Have the system read the part that `plan_ahead` has chosen.

        Pages that were read stay in the system's page cache, which evicts pages that were used once first.
        Dropping them here would make others read them again: several groups, and all queues of a topic,
        share them.
        """
        if self._ahead is None:
            return
        file, end = self._ahead
        if file.is_open:
            file.advise(end - file.start, self.bytes_ahead, os.POSIX_FADV_WILLNEED)


class SequentialReads:
    """Detects queues that are read in order from disk; for any thread."""

    def __init__(self) -> None:
        self.ends: BoundedCache[object, int] = BoundedCache(
            "sequential_reads",
            max_entries=_MAX_QUEUES,
            max_bytes=_MAX_QUEUES * ENTRY_OVERHEAD_BYTES,
            size_of=size_of_small,
        )
        self._lock = Lock()

    def note(self, queue: object, begin: int, end: int) -> bool:
        """Note a read of these log offsets, and tell whether it begins near the end of the one before it."""
        with self._lock:
            before = self.ends.get(queue)
            self.ends.put(queue, end)
        return before is not None and 0 <= begin - before <= 2 * _AHEAD_BYTES


def read_records(ranges: Sequence[Sequence[int]], read: ReadRange) -> tuple[bytes, list[int]]:
    """Return the records at these (offset, size, ...), ascending, and the indexes of those that exist.

    Adjacent records are read as one range. Raises as `read` does.
    """
    parts: list[bytes] = []
    found: list[int] = []
    for group in _groups(ranges):
        first, until = group.first, group.until
        whole = read(group.begin, group.end - group.begin)
        if whole is not None:
            view, origin = memoryview(whole), group.begin
            parts.append(b"".join([view[begin - origin : end - origin] for begin, end in group.runs]))
            found += range(first, until)
        elif until - first > 1:
            # Some of the records have been removed, or they are in two files.
            for index in range(first, until):
                record = read(ranges[index][0], ranges[index][1])
                if record is not None:
                    parts.append(bytes(record))
                    found.append(index)
    return parts[0] if len(parts) == 1 else b"".join(parts), found


def read_in_ranges(ranges: Sequence[Sequence[int]], read: ReadRange, take: TakeRange) -> None:
    """Read the records at these (offset, size, ...), ascending, in ranges, until `take` has enough.

    Adjacent records are read together, up to a size that bounds unneeded reads. Raises as `read` does.
    """
    start, total = 0, 0
    for index, each in enumerate(ranges):
        if index > start and total + each[1] > _SCRATCH_BYTES:
            if not _read_groups(ranges[start:index], read, take):
                return
            start, total = index, 0
        total += each[1]
    if ranges:
        _read_groups(ranges[start:], read, take)


def _read_groups(ranges: Sequence[Sequence[int]], read: ReadRange, take: TakeRange) -> bool:
    for group in _groups(ranges):
        members = ranges[group.first : group.until]
        whole = read(group.begin, group.end - group.begin)
        if whole is not None:
            if not take(group.begin, bytes(whole), members):
                return False
            continue
        # Some of the records have been removed, or they are in two files.
        for each in members:
            record = read(each[0], each[1])
            if not take(each[0], None if record is None else bytes(record), (each,)):
                return False
    return True


class _Group(NamedTuple):
    """Records worth one read, by index, and their range of the log; `runs`: ranges of adjacent records."""

    first: int
    until: int
    begin: int
    end: int
    runs: list[tuple[int, int]]


def _groups(ranges: Sequence[Sequence[int]]) -> list[_Group]:
    groups: list[_Group] = []
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
                groups.append(_Group(first, index, begin, end, runs))
                first, begin, runs = index, position, []
            end = until
        else:
            end += each[1]
    runs.append((run_begin, end))
    groups.append(_Group(first, len(ranges), begin, end, runs))
    return groups


def _find(files: Sequence[MappedFile], offset: int, size: int) -> MappedFile | None:
    """The file that holds all of a range, as far as it is written."""
    file = file_at(files, offset)
    return file if file is not None and offset + size <= file.start + file.wrote else None
