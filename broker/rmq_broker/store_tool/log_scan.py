"""Walking a whole log: in parts, by several processes, with the results in the order of the log.

A part begins anywhere in a file; where its first record begins is found by looking for one that says the
offset that it stands at. That this was right shows when the part before ends exactly there; where it does
not, the part is read again from where it ends.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from mmap import mmap
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from .layout import Record
from .log_files import FileReader, NumberedFile, NumberedFiles, Problem
from .mapped_file import mapped
from .progress import Progress

PART_BYTES: Final = 32 * 1024 * 1024
# Below this, starting processes takes longer than it saves.
_ALONE_BYTES: Final = 2 * PART_BYTES
_STAT_BLOCK_BYTES: Final = 512

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Collector(Protocol[T_co]):
    """Takes the records of one part, and makes a value of them that is sent to the caller's process."""

    def add(self, data: mmap | bytes, record: Record) -> None:
        """One record, in the order of the log; `data` is the content of its file."""

    def result(self) -> T_co:
        """What was made of them."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A part of the log, between or before records, that has no valid ones."""

    problem: Problem
    until: int


@dataclass(frozen=True, slots=True)
class Stretch(Generic[T]):
    """The records of one part."""

    records: int
    collected: T


@dataclass(frozen=True, slots=True)
class _Part(Generic[T]):
    """What one process found in one part of a file."""

    begin: int | None  # where the first record begins; None where there is none
    end: int  # behind the last record
    is_full: bool  # the file has no more
    problem: Problem | None  # why it goes no further
    damages: list[Damage]
    records: int
    collected: T


@dataclass(frozen=True, slots=True)
class _Task:
    file: NumberedFile
    begin: int  # in the file
    until: int
    exact: bool  # whether a record begins at `begin`


class LogWalk(Generic[T]):
    """All records of a log, as stretches and damages in order. For one use.

    After the last one, `end` is the end of the log and `tail` says what stands there.
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
        """`collector` is called once for each part, in another process: it must be possible to pickle it."""
        self.end = log.start
        self.tail: Problem | None = None
        self._full_file = -1  # where the file begins whose end was reached
        self._files = log.files
        self._scan = partial(_scan, collector)
        self._progress = progress
        self._part_bytes = part_bytes
        self._tail_task = _Task(NumberedFile(Path(), 0, 0), 0, 0, True)  # the part where the log seems to end
        self._jobs = 1 if _stored_bytes(log) <= _ALONE_BYTES else (jobs or os.cpu_count() or 1)

    def __iter__(self) -> Iterator[Stretch[T] | Damage]:
        """Raises OSError where a file cannot be read."""
        for task, part in self._parts():
            self._progress.advance(task.until - task.begin)
            if self.tail is not None and part.begin is not None:
                yield from self._look_again()
            yield from self._take(task, part)

    def _look_again(self) -> Iterator[Stretch[T] | Damage]:
        """The log seemed to end, and goes on: a broker that runs may have written there meanwhile."""
        task = self._tail_task
        begin = self.end - task.file.start
        if task.begin <= begin < task.until:
            part = self._scan(_Task(task.file, begin, task.until, True))
            if part.begin == self.end:
                self.tail = None
                yield from self._take(task, part)

    def _take(self, task: _Task, part: _Part[T]) -> Iterator[Stretch[T] | Damage]:
        """Go on with what was found in a part."""
        file = task.file
        if file.start == self._full_file:
            return
        if self.tail is None:
            if file.start + task.until <= self.end:
                return  # the inside of one long record
            self.end = max(self.end, file.start)  # a missing file is told with the files
            begin = max(self.end - file.start, task.begin)
            if part.begin != begin + file.start:
                part = self._scan(_Task(file, begin, task.until, True))
        elif part.begin is not None:
            yield Damage(self.tail, part.begin)
            self.tail = None
        yield from part.damages
        if part.records:
            yield Stretch(part.records, part.collected)
        if part.is_full:
            self._full_file = file.start
        if part.begin is not None or part.is_full:
            self.end = file.end if part.is_full else part.end
        if self.tail is None and part.problem is not None:
            self.tail, self._tail_task = part.problem, task

    def _parts(self) -> Iterator[tuple[_Task, _Part[T]]]:
        """The parts in order, a few of them worked on ahead."""
        if self._jobs == 1:
            for task in self._tasks():
                yield task, self._scan(task)
            return
        context = multiprocessing.get_context("spawn")
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


def _stored_bytes(log: NumberedFiles) -> int:
    """Bytes of the log that the file system stores: preallocated files may be empty for the most part."""
    size = 0
    for file in log.files:
        with suppress(FileNotFoundError):  # of a broker that runs, and cleans
            size += min(file.size, file.path.stat().st_blocks * _STAT_BLOCK_BYTES)
    return size


def _scan(make: Callable[[], Collector[T]], task: _Task) -> _Part[T]:
    """Read one part of a file."""
    collector = make()
    add = collector.add
    damages: list[Damage] = []
    records = 0
    start = task.file.start
    with ExitStack() as stack:
        try:
            file = stack.enter_context(mapped(task.file.path))
        except FileNotFoundError:  # of a broker that runs, and cleans
            gone = Problem(start + task.begin, "log.vanished", "the file was removed meanwhile")
            return _Part(None, start + task.begin, False, gone, [], 0, collector.result())
        # Read once as a file: an error of the disk is an OSError then, in mapped memory it ends the process.
        is_empty = not list(file.blocks(task.begin, task.until))
        if is_empty and not task.exact:
            return _Part(None, start + task.begin, False, None, [], 0, collector.result())
        reader, data = FileReader(file, start), file.data
        until = min(task.until, len(data))
        found = task.begin if task.exact else reader.next_valid(task.begin, until)
        begin, end, problem = None, task.begin, None
        while found is not None:
            begin = found if begin is None else begin
            for record in reader.records(found, until):
                add(data, record)
                records += 1
            end, problem = reader.position, reader.problem
            if problem is None:
                break
            # Not from the next byte on: a broker may have written a record there meanwhile.
            found = reader.next_valid(end, until)
            if found is None:
                break
            if found > end:
                damages.append(Damage(problem, start + found))
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
