"""Scan of a whole log in parts, by several processes, with the results in the order of the log.

A part may begin anywhere in a file. Its first record is found by searching for a record that contains its own
offset. The guess was right if the part before ends exactly there. Otherwise the part is read again from the
end of the part before.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from mmap import mmap
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar, runtime_checkable

from .layout import Record
from .log_files import FileReader, NumberedFile, NumberedFiles, Problem
from .mapped_file import MappedFile, mapped
from .progress import Progress

PART_BYTES: Final = 32 * 1024 * 1024
# Below this size, starting processes takes longer than it saves.
_SINGLE_PROCESS_BYTES: Final = 2 * PART_BYTES
_STAT_BLOCK_BYTES: Final = 512
# Of a file that are read at a time: they fit into the cache of a processor.
_WINDOW_BYTES: int = 1024 * 1024  # not `Final`: tests use less
_LARGE_BYTES: Final = 16 * 1024 * 1024  # more than any record
_SIZE_BYTES: Final = 4  # of the size that begins a record

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Collector(Protocol[T_co]):
    """Collects the records of one part into a value, which is sent to the caller's process."""

    def add(self, data: mmap | bytes, record: Record) -> None:
        """Add a record, in the order of the log; `data` is the content of its file."""

    def result(self) -> T_co:
        """Return the collected value."""


@runtime_checkable
class BulkCollector(Protocol):
    """A collector that also takes many records at once."""

    def add_plain(self, data: bytes, position: int, until: int, start: int) -> tuple[int, int]:
        """Add records from `position` on and before `until`, as long as they are valid and plain.

        `start` is the log offset of the first byte of `data`, a part of a file. Returns the position behind
        the last record, and the number of records.
        """


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """A range of the log without valid records, followed by a valid one at `until`."""

    problem: Problem
    until: int


@dataclass(frozen=True, slots=True)
class ScannedRecords(Generic[T]):
    """The valid records of one part: their number, and the collected value."""

    records: int
    collected: T


@dataclass(frozen=True, slots=True)
class _Part(Generic[T]):
    """Result of scanning one part of a file."""

    begin: int | None  # of the first record; None without records
    end: int  # behind the last record
    is_full: bool  # no record follows in the file
    problem: Problem | None  # why the scan ended before the part did
    damages: list[DamagedRange]
    records: int
    collected: T


@dataclass(frozen=True, slots=True)
class _Task:
    file: NumberedFile
    begin: int  # in the file
    until: int
    exact: bool  # whether a record must begin at `begin`


class LogScan(Generic[T]):
    """All records of a log in order, with the damaged ranges between them. An object can be iterated once.

    After the iteration, `end` is the end of the log and `tail` the reason why no record follows.
    """

    def __init__(
        self,
        log: NumberedFiles,
        collector: Callable[[], Collector[T]],
        progress: Progress,
        *,
        jobs: int | None = None,
        part_bytes: int = PART_BYTES,
    ) -> None:
        """`collector` is called once for each part, in another process, so it must be picklable."""
        self.end = log.start
        self.tail: Problem | None = None
        self._full_file = -1  # start of the file whose end was reached
        self._files = log.files
        self._scan = partial(_scan, collector)
        self._progress = progress
        self._part_bytes = part_bytes
        self._tail_task = _Task(
            NumberedFile(Path(), 0, 0), 0, 0, True
        )  # the part in which the log seems to end
        self._jobs = 1 if _stored_bytes(log) <= _SINGLE_PROCESS_BYTES else (jobs or _usable_processors())

    def __iter__(self) -> Iterator[ScannedRecords[T] | DamagedRange]:
        """Yield the results in order. Raises OSError."""
        for task, part in self._parts():
            self._progress.advance(task.until - task.begin)
            if self.tail is not None and part.begin is not None:
                yield from self._rescan_tail()
            yield from self._merge(task, part)

    def _rescan_tail(self) -> Iterator[ScannedRecords[T] | DamagedRange]:
        """Read the apparent end again: a running broker may have written records there meanwhile."""
        task = self._tail_task
        begin = self.end - task.file.start
        if task.begin <= begin < task.until:
            part = self._scan(_Task(task.file, begin, task.until, True))
            if part.begin == self.end:
                self.tail = None
                yield from self._merge(task, part)

    def _merge(self, task: _Task, part: _Part[T]) -> Iterator[ScannedRecords[T] | DamagedRange]:
        """Continue the log with the result of a part."""
        file = task.file
        if file.start == self._full_file:
            return
        if self.tail is None:
            if file.start + task.until <= self.end:
                return  # one long record spans the part
            self.end = max(self.end, file.start)  # missing files are reported with the files
            begin = max(self.end - file.start, task.begin)
            if part.begin != begin + file.start:
                part = self._scan(_Task(file, begin, task.until, True))
        elif part.begin is not None:
            yield DamagedRange(self.tail, part.begin)
            self.tail = None
        yield from part.damages
        if part.records:
            yield ScannedRecords(part.records, part.collected)
        if part.is_full:
            self._full_file = file.start
        if part.begin is not None or part.is_full:
            self.end = file.end if part.is_full else part.end
        if self.tail is None and part.problem is not None:
            self.tail, self._tail_task = part.problem, task

    def _parts(self) -> Iterator[tuple[_Task, _Part[T]]]:
        """Yield the parts in order; a few of them are scanned ahead."""
        if self._jobs == 1:
            for task in self._tasks():
                yield task, self._scan(task)
            return
        # A copy of this process starts at once, but would lack its other threads and what they were doing.
        context = multiprocessing.get_context("fork" if threading.active_count() == 1 else "spawn")
        with ProcessPoolExecutor(self._jobs, mp_context=context) as pool:
            waiting: deque[tuple[_Task, Future[_Part[T]]]] = deque()
            try:
                for task in self._tasks():
                    waiting.append((task, pool.submit(self._scan, task)))
                    if len(waiting) > 2 * self._jobs:
                        done, future = waiting.popleft()
                        yield done, future.result()
                while waiting:
                    done, future = waiting.popleft()
                    yield done, future.result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _tasks(self) -> Iterator[_Task]:
        for file in self._files:
            for begin in range(0, file.size, self._part_bytes):
                yield _Task(file, begin, min(file.size, begin + self._part_bytes), begin == 0)


def _usable_processors() -> int:
    return len(os.sched_getaffinity(0))


def _stored_bytes(log: NumberedFiles) -> int:
    """Return the bytes of the log that the file system stores; preallocated files may be mostly empty."""
    size = 0
    for file in log.files:
        with suppress(FileNotFoundError):  # a running broker deletes old files
            size += min(file.size, file.path.stat().st_blocks * _STAT_BLOCK_BYTES)
    return size


def _scan(make: Callable[[], Collector[T]], task: _Task) -> _Part[T]:
    """Scan one part of a file."""
    collector = make()
    damages: list[DamagedRange] = []
    records = 0
    start = task.file.start
    with ExitStack() as stack:
        try:
            file = stack.enter_context(mapped(task.file.path))
        except FileNotFoundError:  # a running broker deletes old files
            gone = Problem(start + task.begin, "log.vanished", "the file was removed during the scan")
            return _Part(None, start + task.begin, False, gone, [], 0, collector.result())
        # Read through the descriptor first: a disk error raises OSError then. In mapped memory it would end
        # the process.
        is_empty = next(file.blocks(task.begin, task.until), None) is None
        if is_empty and not task.exact:
            return _Part(None, start + task.begin, False, None, [], 0, collector.result())
        reader = FileReader(file, start)
        until = min(task.until, len(file.data))
        of_part = _RecordsOfPart(file, reader, collector, start)
        found = task.begin if task.exact else reader.next_valid(task.begin, until)
        begin, end, problem = None, task.begin, None
        while found is not None:
            begin = found if begin is None else begin
            records += of_part.add(found, until)
            end, problem = reader.position, reader.problem
            if problem is None:
                break
            # Search from the same byte again: a running broker may have written a record there meanwhile.
            found = reader.next_valid(end, until)
            if found is None:
                break
            if found > end:
                damages.append(DamagedRange(problem, start + found))
            problem = None
    if task.exact and records == 0 and not damages and problem is not None:
        begin = None
    return _Part(
        None if begin is None else start + begin,
        start + end,
        reader.is_full,
        problem,
        damages,
        records,
        collector.result(),
    )


class _RecordsOfPart:
    """Passes the records of a part to a collector: plain ones in bulk, if the collector takes them so."""

    def __init__(
        self, file: MappedFile, reader: FileReader, collector: Collector[object], start: int
    ) -> None:
        """`start`: log offset of the file."""
        self._file = file
        self._reader = reader
        self._add = collector.add
        self._add_plain = collector.add_plain if isinstance(collector, BulkCollector) else None
        self._start = start
        self._window = b""
        self._window_at = 0
        self._read_to = 0  # up to there the file was read through the descriptor

    def add(self, position: int, until: int) -> int:
        """Add the records from `position` on; return their number. The reader notes their end."""
        if self._add_plain is None:
            return self._add_each(position, until)
        reader, records = self._reader, 0
        while True:
            position, added = self._add_bulk(self._add_plain, position, until)
            records += added
            if position >= until:
                reader.end_at(position)
                return records
            # One record that is not plain, or that is invalid.
            records += self._add_each(position, position + 1)
            position = reader.position
            if reader.problem is not None or reader.is_full or position >= until:
                return records

    def _add_each(self, position: int, until: int) -> int:
        file, records = self._file, 0
        end = min(max(until, position + self._size_at(position)), len(file.data))
        for _ in file.blocks(max(position, self._read_to), end):
            pass
        self._read_to = max(self._read_to, end)
        for record in self._reader.records(position, until):
            self._add(file.data, record)
            records += 1
        return records

    def _add_bulk(
        self, add: Callable[[bytes, int, int, int], tuple[int, int]], position: int, until: int
    ) -> tuple[int, int]:
        """Add plain records; return the position behind them, and their number."""
        records = 0
        while position < until:
            if not self._has(position):
                wanted = min(max(self._size_at(position), _WINDOW_BYTES), _LARGE_BYTES)
                self._window, self._window_at = self._file.read(position, wanted), position
            begin = self._window_at
            behind, added = add(self._window, position - begin, until - begin, self._start + begin)
            records += added
            position = begin + behind
            if not added or self._has(position):
                break
        return position, records

    def _has(self, position: int) -> bool:
        """Return whether the window has the record at a position, as far as a window can have it."""
        window, at = self._window, position - self._window_at
        if at < 0 or at >= len(window):
            return False
        if self._window_at + len(window) >= len(self._file.data):
            return True
        size = int.from_bytes(window[at : at + _SIZE_BYTES], "big", signed=True)
        return at + _SIZE_BYTES <= len(window) and (at + size <= len(window) or size > _LARGE_BYTES)

    def _size_at(self, position: int) -> int:
        return int.from_bytes(self._file.read(position, _SIZE_BYTES), "big", signed=True)
