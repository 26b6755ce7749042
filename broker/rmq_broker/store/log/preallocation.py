"""Space ahead of the log's end, allocated in threads: no append waits for the file system to allocate it.

Commit log files are large, and allocating them costs time: the first pages of a new file take milliseconds
to be written, and each later page microseconds. The preallocator writes zeros to the next megabytes before
the appends reach them. It creates the next file long before the current one is full, since its name has to be
flushed, which takes seconds on a busy disk.
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Barrier, Lock
from typing import Final

from ..errors import LogBusy
from .commit_log import CommitLog
from .mapped_file import MappedFile

log = logging.getLogger("rmq.store.preallocation")

_AHEAD_BYTES: Final = 16 * 1024 * 1024
# The next file is created when less than this is left in the current one.
_NEXT_AHEAD_BYTES: Final = 256 * 1024 * 1024
_PAUSE_AFTER_FAILURE_SECONDS: Final = 1.0
_THREADS: Final = 2  # one extends the space, the other creates the next file


@dataclass(slots=True)
class _Job:
    """One kind of work, done by one thread at a time, and not before a pause after a failure."""

    is_busy: bool = False
    failure: Exception | None = None
    not_before: float = 0.0


class LogPreallocator:
    """Keeps reserved, touched space ahead of a log's appends, from `start` to `close`.

    `request` and `refusal` belong to the appending thread; the work is done in threads of their own. One
    extends the space in the current file while the other creates the next file.
    """

    def __init__(
        self,
        *,
        touch: bool,
        ahead_bytes: int = _AHEAD_BYTES,
        next_ahead_bytes: int = _NEXT_AHEAD_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`touch`: write zeros ahead; otherwise only reserve the space.

        With synchronous flushing the space must not be touched: the file system would write the touched
        megabytes to disk together with the first messages in them.
        """
        self._touch = touch
        self._ahead_bytes = ahead_bytes
        self._next_ahead_bytes = next_ahead_bytes
        self._clock = clock
        self._executor: ThreadPoolExecutor | None = None  # while started
        self._extending = _Job()
        self._creating = _Job()
        self._marking = Lock()
        self._on_progress: Callable[[], None] = _nothing

    def start(self, on_progress: Callable[[], None] | None = None) -> None:
        """Begin to answer requests. `on_progress` is called in a thread after each work and each failure.

        Raises OSError if there is no memory for the threads.
        """
        self._on_progress = on_progress or _nothing
        self._executor = executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="store-preallocation")
        # All threads are started now, because memory may be short when one is needed.
        all_run = Barrier(_THREADS)
        try:
            for _ in range(_THREADS):
                executor.submit(all_run.wait)
        except (MemoryError, RuntimeError) as error:
            all_run.abort()
            self.close()
            raise OSError(
                errno.ENOMEM, f"the threads that allocate the commit log cannot be started: {error}"
            ) from error

    def allocate_first(self, commit_log: CommitLog) -> None:
        """Allocate space for the first appends, before `start`; blocks. A failure is logged."""
        file = commit_log.current
        if file is not None:
            self._run(self._extending, commit_log, file, partial(self._extend, file.wrote))
        if file is None or file.size - file.wrote <= self._ahead_bytes:
            self._run(self._creating, commit_log, file, self._create)

    @property
    def is_running(self) -> bool:
        """Whether requests are answered."""
        return self._executor is not None

    @property
    def is_busy(self) -> bool:
        """Whether a thread is allocating space."""
        return self._extending.is_busy or self._creating.is_busy

    def request(self, commit_log: CommitLog, file: MappedFile | None, until: int) -> None:
        """Allocate space behind the position `until` of `file`; returns at once.

        `file` is the last file of the log, None if the log has no file yet.
        """
        if file is None:
            self._submit(self._creating, commit_log, file, self._create)
            return
        if file.reserved < file.size:
            if until > file.reserved - self._ahead_bytes:
                self._submit(self._extending, commit_log, file, partial(self._extend, until))
        elif not self.is_busy:
            self._mark(commit_log, file)
        if not commit_log.has_next and file.size - until <= self._next_ahead_bytes:
            self._submit(self._creating, commit_log, file, self._create)

    def refusal(self) -> OSError | LogBusy:
        """Return why there is no space: the error of the disk, or that the disk is slow."""
        failure = self._extending.failure or self._creating.failure
        if failure is None:
            return LogBusy("the disk has not provided space for the commit log yet")
        if isinstance(failure, OSError):
            return OSError(failure.errno, failure.strerror, failure.filename)
        return OSError(errno.EIO, f"preallocation failed: {failure!r}")

    def close(self) -> None:
        """Finish the allocation that is running, and end the threads; blocks."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=True, cancel_futures=True)
            self._extending.is_busy = self._creating.is_busy = False

    def _submit(
        self,
        job: _Job,
        commit_log: CommitLog,
        file: MappedFile | None,
        work: Callable[[CommitLog, MappedFile | None], None],
    ) -> None:
        if self._executor is None or job.is_busy or self._clock() < job.not_before:
            return
        job.is_busy = True
        try:
            self._executor.submit(self._run, job, commit_log, file, work)
        except Exception as error:  # memory is short
            self._failed(job, error)
            job.is_busy = False

    # --- in the threads, and before `start` ---

    def _run(
        self,
        job: _Job,
        commit_log: CommitLog,
        file: MappedFile | None,
        work: Callable[[CommitLog, MappedFile | None], None],
    ) -> None:
        try:
            try:
                work(commit_log, file)
                job.failure = None
                if file is not None:
                    self._mark(commit_log, file)
            except Exception as error:
                self._failed(job, error)
                self._log_failure(commit_log, error)
        finally:  # also if there is no memory for the log line
            job.is_busy = False
            self._on_progress()

    def _log_failure(self, commit_log: CommitLog, error: Exception) -> None:
        """Log an error. Refusing messages is up to the append that finds no space."""
        if isinstance(error, OSError):
            log.warning(
                "preallocation failed folder=%s cause=%s; tried again in %.0f s",
                commit_log.folder,
                error,
                _PAUSE_AFTER_FAILURE_SECONDS,
            )
        else:
            log.error("preallocation failed folder=%s", commit_log.folder, exc_info=error)

    def _failed(self, job: _Job, error: Exception) -> None:
        job.failure = error
        job.not_before = self._clock() + _PAUSE_AFTER_FAILURE_SECONDS

    def _extend(self, until: int, commit_log: CommitLog, file: MappedFile | None) -> None:
        assert file is not None
        behind = max(until, file.wrote, file.reserved - self._ahead_bytes)
        self._reserve(file, behind + 2 * self._ahead_bytes)

    def _create(self, commit_log: CommitLog, file: MappedFile | None) -> None:
        commit_log.prepare_next(file, self._allocate_first)

    def _allocate_first(self, file: MappedFile) -> None:
        """Allocate space in a new file; the first append beyond it requests more."""
        file.sync_name()
        self._reserve(file, self._ahead_bytes)
        file.preallocate_at = file.reserved - self._ahead_bytes

    def _reserve(self, file: MappedFile, until: int) -> None:
        if self._touch:
            file.touch(until)
        else:
            file.reserve(min(until, file.size))

    def _mark(self, commit_log: CommitLog, file: MappedFile) -> None:
        """Set the position behind which an append requests more."""
        with self._marking:
            if file.reserved < file.size:
                file.preallocate_at = file.reserved - self._ahead_bytes
            elif commit_log.has_next:
                file.preallocate_at = file.size
            else:
                file.preallocate_at = file.size - self._next_ahead_bytes


def _nothing() -> None:
    pass
