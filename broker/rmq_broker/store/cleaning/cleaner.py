"""Deleting old messages: commit log files, the oldest first, then queue entries and index files.

When and which: Apache RocketMQ 5.3.3, DefaultMessageStore (CleanCommitLogService, CleanConsumeQueueService).

A file's name is removed first; the file itself goes with its last reader. Freeing the blocks of a file of
1 GiB takes ext4 a quarter of a second, so it is done in a thread. (Truncating the file in steps first was
tried: other files' fsyncs waited just as long, and a concurrent reader, such as a backup, would find the file
short.)
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, ParamSpec, Protocol, TypeVar

from rmq_remoting.daemon.atomic_file import sync_folder
from rmq_remoting.daemon.descriptor_reserve import open_file

from ...clock import Clocks
from ..settings import CleaningSettings
from .disk_space import DiskLevel, DiskSpace
from .file_ages import FileAges

log = logging.getLogger("rmq.store.cleaning")

# How often the use of the disk is checked; a full disk is checked more often.
_CHECK_SECONDS: Final = 5.0
_CHECK_FULL_SECONDS: Final = 1.0
# How many queues are cleaned at a time, in two or three milliseconds, and the pause before the next: there
# may be 20,000 queues, and cleaning them keeps the event loop from running.
_SLICE: Final = 20
_PAUSE_SECONDS: Final = 0.005
# The number of rounds for which a request to delete is valid (as with Apache's broker).
_REQUESTED_ROUNDS: Final = 20
# How soon a file is tried again that only needs a flush. The cleaner does not flush: the flusher does, at a
# pace that disk and queues can sustain, and any client could request more flushes of all queues otherwise.
_FLUSH_PAUSE_MS: Final = 1000
_HOUR_MS: Final = 3_600_000

_Arguments = ParamSpec("_Arguments")
_T = TypeVar("_T")
_P = TypeVar("_P", bound="LogReferrer")


class CleanableLog(Protocol):
    """The commit log, as the cleaner uses it, on the event loop's thread."""

    @property
    def min_offset(self) -> int:
        """Where the log begins."""

    @property
    def oldest_file(self) -> Path | None:
        """The first file, if it may be deleted."""

    @property
    def oldest_waits_for_flush(self) -> bool:
        """Whether the first file may be deleted as soon as it and its messages' entries are flushed."""

    def remove_oldest(self) -> None:
        """Let the log begin with the second file."""


class LogReferrer(Protocol):
    """A part with log offsets in files: a queue, or the index."""

    def delete_before(self, log_begin: int) -> int:
        """Drop references to messages before `log_begin`; return how many files were deleted.

        Called in a thread while other threads read and write. Raises OSError; blocks.
        """


class CleanableQueue(LogReferrer, Protocol):
    """A consume queue, as the cleaner uses it."""

    def advance_min(self, log_begin: int) -> None:
        """Let the queue begin with the first message that is still in the log; delete no files."""


@dataclass(slots=True)
class CleaningStatistics:
    """Plain counters for metrics."""

    log_files_deleted: int = 0
    log_bytes_freed: int = 0
    queue_files_deleted: int = 0
    index_files_deleted: int = 0
    failures: int = 0
    last_round_ms: int = 0  # time of the last round; 0 before the first


class Cleaner:
    """Deletes files by age, time of day and use of the disk; belongs to the event loop's thread."""

    def __init__(
        self,
        commit_log: CleanableLog,
        queues: Iterable[CleanableQueue],
        indexes: Sequence[LogReferrer],
        disk: DiskSpace,
        settings: CleaningSettings,
        clocks: Clocks,
    ) -> None:
        """`queues` is iterated over in each round: it may grow and shrink."""
        self._log = commit_log
        self._queues = queues
        self._indexes = indexes
        self._disk = disk
        self._settings = settings
        self._clocks = clocks
        self._ages = FileAges(clocks)
        self._in_log = asyncio.Lock()
        self._behind_log = asyncio.Lock()
        self._wake = asyncio.Event()
        self._round_done = asyncio.Event()
        self._stopping = False
        # Times by the steady clock.
        self._requested_until_ms = -1
        self._next_round_ms = 0
        self._log_again_ms = 0  # after a failure: when to try again
        self._behind_again_ms = 0
        # No queue or index refers to the log before this offset; 0 after a start: unknown.
        self.cleaned_to = 0
        self._is_stuck = False
        self.statistics = CleaningStatistics()

    # --- life ---

    async def run(self) -> None:
        """Clean until `stop` is called or the task is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._run_log_rounds(), name="clean the log")
            tasks.create_task(self._run_queue_rounds(), name="clean behind the log")

    async def _run_log_rounds(self) -> None:
        while not self._stopping:
            await self.look()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._pause_seconds())
            self._wake.clear()

    async def _run_queue_rounds(self) -> None:
        """Clean queues and index after each round, while the other task goes on checking the disk."""
        while not self._stopping:
            await self._round_done.wait()
            self._round_done.clear()
            await self.follow()

    async def stop(self) -> None:
        """Delete no more; when this returns, no deletion is running."""
        self._stopping = True
        self._wake.set()
        self._round_done.set()
        async with self._in_log, self._behind_log:
            pass

    # --- on request ---

    def delete_expired(self) -> None:
        """Delete all expired files now, at any hour; returns at once."""
        log.info(
            "deletion of expired files requested file_reserved_hours=%d", self._settings.file_reserved_hours
        )
        rounds_ms = _REQUESTED_ROUNDS * self._settings.clean_resource_interval_ms
        self._requested_until_ms = self._clocks.steady_ms() + rounds_ms
        self._next_round_ms = self._log_again_ms = 0
        self._wake.set()

    async def clean_queues(self) -> None:
        """Drop references to deleted messages from queues and index; returns when that is done."""
        async with self._behind_log:
            self.cleaned_to = self._behind_again_ms = 0
            await self._clean_behind_log()

    # --- rounds ---

    async def look(self) -> None:
        """Check the use of the disk, and delete the log files that are due."""
        async with self._in_log:
            if self._stopping:
                return
            before = self._disk.level
            level = await _in_thread(self._disk.check)
            self._ages.look()
            now_ms = self._clocks.steady_ms()
            became_urgent = level >= DiskLevel.FORCE and level > before
            if now_ms < self._next_round_ms and not became_urgent:
                return
            self._next_round_ms = now_ms + self._settings.clean_resource_interval_ms
            self.statistics.last_round_ms = self._clocks.now_ms()
            deleted = await self._clean_log(level)
            if self._is_requested and deleted == self._settings.delete_file_batch_max:
                self._next_round_ms = 0  # more files may be due, and their deletion was requested
            elif self._is_needed_now and self._log.oldest_waits_for_flush:
                self._next_round_ms = min(self._next_round_ms, now_ms + _FLUSH_PAUSE_MS)
            self._round_done.set()

    async def follow(self) -> None:
        """Drop references to messages that were deleted from the log, if any were."""
        async with self._behind_log:
            await self._clean_behind_log()

    @property
    def _is_requested(self) -> bool:
        return self._clocks.steady_ms() <= self._requested_until_ms

    @property
    def _is_needed_now(self) -> bool:
        return self._is_requested or self._disk.level >= DiskLevel.FORCE

    def _pause_seconds(self) -> float:
        regular = _CHECK_FULL_SECONDS if self._disk.level is DiskLevel.REFUSE else _CHECK_SECONDS
        return min(regular, max(0.0, (self._next_round_ms - self._clocks.steady_ms()) / 1000))

    # --- the log ---

    async def _clean_log(self, level: DiskLevel) -> int:
        """Delete at most `deleteFileBatchMax` log files; return how many."""
        if self._clocks.steady_ms() < self._log_again_ms:
            return 0
        for deleted in range(self._settings.delete_file_batch_max):
            path = self._log.oldest_file
            if path is None:
                self._warn_if_stuck(level)
            if self._stopping or path is None or not await self._is_due(path, level):
                return deleted
            if deleted:
                await asyncio.sleep(self._settings.delete_commit_log_files_interval_ms / 1000)
            if not await self._delete_log_file(path):
                return deleted
            self._is_stuck = False
            # Files that are not expired are deleted only until there is enough space.
            level = await _in_thread(self._disk.check)
        return self._settings.delete_file_batch_max

    async def _is_due(self, path: Path, level: DiskLevel) -> bool:
        settings = self._settings
        if level >= DiskLevel.FORCE and settings.clean_file_forcibly_enable:
            return True
        if not self._is_requested and level < DiskLevel.CLEAN and not self._is_the_hour():
            return False
        try:
            modified_ms = (await _in_thread(path.stat)).st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return True  # deleted by another program
        except OSError as error:
            self._log_failed(error)
            return False
        return self._ages.age_ms(modified_ms) >= settings.file_reserved_hours * _HOUR_MS

    def _is_the_hour(self) -> bool:
        return datetime.fromtimestamp(self._clocks.now_seconds()).hour in self._settings.delete_hours

    async def _delete_log_file(self, path: Path) -> bool:
        """Delete the first file of the log; False if that failed.

        The log drops the file only after that: a file that could not be deleted has to be followed by the
        next one when the directory is opened again.
        """
        try:
            descriptor = await _in_thread(_unlink, path)
        except OSError as error:
            self._log_failed(error)
            return False
        self._log.remove_oldest()
        freed_bytes = await _in_thread(_free_blocks, descriptor)
        self.statistics.log_files_deleted += 1
        self.statistics.log_bytes_freed += freed_bytes
        log.info("log file deleted path=%s log_begin=%d", path, self._log.min_offset)
        return True

    def _log_failed(self, error: OSError) -> None:
        self._log_again_ms = self._clocks.steady_ms() + self._settings.redelete_hanged_file_interval_ms
        self._failed(error)

    def _warn_if_stuck(self, level: DiskLevel) -> None:
        if level >= DiskLevel.FORCE and not self._is_stuck:
            self._is_stuck = True
            log.warning("disk nearly full, and no commit log file can be deleted; add disk space")

    # --- queues and index ---

    async def _clean_behind_log(self) -> None:
        log_begin = self._log.min_offset
        if log_begin <= self.cleaned_to or self._clocks.steady_ms() < self._behind_again_ms:
            return
        statistics = self.statistics
        failures = statistics.failures
        queues = list(self._queues)
        # Consumers need the new first offsets at once. Deleting the files may take minutes, with its pauses.
        await self._each(queues, lambda queue: _advance_min(queue, log_begin))
        statistics.queue_files_deleted += await self._each(
            queues, lambda queue: queue.delete_before(log_begin)
        )
        statistics.index_files_deleted += await self._each(
            self._indexes, lambda index: index.delete_before(log_begin)
        )
        if statistics.failures > failures:
            self._behind_again_ms = self._clocks.steady_ms() + self._settings.redelete_hanged_file_interval_ms
        elif not self._stopping:
            self.cleaned_to = log_begin

    async def _each(self, those: Sequence[_P], clean: Callable[[_P], int]) -> int:
        """Clean all of them in a thread, with pauses; return how many files were deleted."""
        deleted = 0
        rest = iter(those)
        while not self._stopping:
            found, is_last = await _in_thread(self._slice, rest, clean)
            deleted += found
            if is_last:
                break
            pause_ms = self._settings.delete_consume_queue_files_interval_ms if found else 0
            await asyncio.sleep(max(_PAUSE_SECONDS, pause_ms / 1000))
        return deleted

    def _slice(self, rest: Iterator[_P], clean: Callable[[_P], int]) -> tuple[int, bool]:
        """Clean the next few until files are deleted; return how many, and whether that was the last."""
        for _ in range(_SLICE):
            one = next(rest, None)
            if one is None:
                return 0, True
            try:
                deleted = clean(one)
            except OSError as error:
                self._failed(error)
                continue
            if deleted:
                return deleted, False
        return 0, False

    # --- small things ---

    def _failed(self, error: OSError) -> None:
        self.statistics.failures += 1
        seconds = self._settings.redelete_hanged_file_interval_ms / 1000
        log.error("deletion failed cause=%s; tried again in %.0f s", error, seconds)


async def _in_thread(
    function: Callable[_Arguments, _T], /, *arguments: _Arguments.args, **keywords: _Arguments.kwargs
) -> _T:
    return await asyncio.to_thread(function, *arguments, **keywords)


def _advance_min(queue: CleanableQueue, log_begin: int) -> int:
    queue.advance_min(log_begin)
    return 0


def _unlink(path: Path) -> int | None:
    """Remove a file's name; return a descriptor that keeps the file, None if none existed. Raises OSError."""
    try:
        descriptor = open_file(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        path.unlink(missing_ok=True)
        # Names have to disappear in order also after a power cut: a log with a gap cannot be opened.
        sync_folder(path.parent)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _free_blocks(descriptor: int | None) -> int:
    """Close a file without a name; return the bytes on disk that are freed, now or by its last reader."""
    if descriptor is None:
        return 0
    try:
        return os.fstat(descriptor).st_blocks * 512
    finally:
        os.close(descriptor)
