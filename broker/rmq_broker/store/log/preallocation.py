"""Space ahead of the log's end, allocated in a thread: no append waits for the file system to allocate it.

Commit log files are large, and allocating them costs time: the first pages of a new file take milliseconds
to be written, and each later page microseconds. The preallocator writes zeros to the next megabytes before
the appends reach them, and creates the next file while the last part of the current one is being filled.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from .commit_log import CommitLog
from .mapped_file import MappedFile

log = logging.getLogger("rmq.store.preallocation")

_AHEAD_BYTES: Final = 16 * 1024 * 1024
_PAUSE_AFTER_FAILURE_SECONDS: Final = 1.0


class LogPreallocator:
    """Keeps reserved, touched space ahead of a log's appends, from `start` to `close`.

    `request` belongs to the appending thread; the work is done in a thread of its own.
    """

    def __init__(
        self,
        *,
        touch: bool,
        ahead_bytes: int = _AHEAD_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`touch`: write zeros ahead; otherwise only reserve the space.

        With synchronous flushing the space must not be touched: the file system would write the touched
        megabytes to disk together with the first messages in them.
        """
        self._touch = touch
        self._ahead_bytes = ahead_bytes
        self._clock = clock
        self._executor: ThreadPoolExecutor | None = None  # while started
        self._is_busy = False
        self._not_before = 0.0

    def start(self) -> None:
        """Begin to answer requests."""
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="store-preallocation")

    def request(self, commit_log: CommitLog, file: MappedFile) -> None:
        """Allocate space behind the appends to `file`, the last file of the log; returns at once."""
        if self._executor is None or self._is_busy or self._clock() < self._not_before:
            return
        self._is_busy = True
        self._executor.submit(self._allocate, commit_log, file)

    def close(self) -> None:
        """Finish the allocation that is running, and end the thread."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=True, cancel_futures=True)
            self._is_busy = False

    # --- in the thread ---

    def _allocate(self, commit_log: CommitLog, file: MappedFile) -> None:
        try:
            self._reserve(file, max(file.wrote, file.reserved - self._ahead_bytes) + 2 * self._ahead_bytes)
            if file.reserved >= file.size:
                commit_log.prepare_next(file, self._allocate_first)
                file.preallocate_at = file.size
            else:
                file.preallocate_at = file.reserved - self._ahead_bytes
        except OSError as error:
            # Refusing messages is up to the append that finds no space.
            log.warning(
                "preallocation failed file=%s cause=%s; tried again in %.0f s",
                file.path,
                error,
                _PAUSE_AFTER_FAILURE_SECONDS,
            )
            self._not_before = self._clock() + _PAUSE_AFTER_FAILURE_SECONDS
        except Exception:
            # Nobody looks at this task's result.
            log.exception("preallocation failed file=%s", file.path)
            self._not_before = self._clock() + _PAUSE_AFTER_FAILURE_SECONDS
        finally:
            self._is_busy = False

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
