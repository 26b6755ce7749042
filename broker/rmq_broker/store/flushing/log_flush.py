"""One flush of the commit log at a time, and none after a failure."""

from __future__ import annotations

import logging
from threading import Lock

from rmq_remoting.daemon.file_errors import advice_for, is_shortage

from ..log.commit_log import CommitLog
from ..write_health import WriteHealth

log = logging.getLogger("rmq.store.flush")


class LogFlush:
    """Flushes the commit log, from any thread, one thread at a time.

    After a failed fsync the kernel may have dropped the dirty pages, and the next fsync would succeed without
    them. So a failure is final: each later flush raises, and messages are refused.
    """

    def __init__(self, commit_log: CommitLog, health: WriteHealth) -> None:
        self._log = commit_log
        self._health = health
        self._lock = Lock()
        self._closed = False
        self._is_postponed = False
        self.failure: Exception | None = None

    def __call__(self) -> int:
        """Flush, and return the offset up to which the log is on disk. Blocks. Raises OSError."""
        with self._lock:
            if self._closed:
                return 0
            self.check()
            try:
                end = self._log.flush()
            except Exception as error:
                if not is_shortage(error):
                    self.fail(error)
                raise
            self._is_postponed = False
            return end

    def postpone(self, error: Exception) -> None:
        """Log, once, that a flush was not possible for lack of memory or descriptors; it is tried again."""
        if not self._is_postponed:
            self._is_postponed = True
            log.error("flush not possible cause=%r; tried again and again%s", error, advice_for(error))

    def check(self) -> None:
        """Raise OSError after a failure."""
        if self.failure is not None:
            raise OSError(f"an earlier flush failed: {self.failure}")

    def fail(self, error: Exception) -> None:
        """Refuse messages from now on, because something could not be flushed."""
        self.failure = error
        self._health.refuse("flush", f"flushing to the disk failed: {error}")
        log.exception("flush failed cause=%s; messages are refused until the broker is restarted", error)

    def entries_missing(self, physical_offset: int, error: Exception) -> None:
        """Flush no more and refuse messages: a record has no entries, which only a start can rebuild."""
        self.failure = error
        self._health.refuse("flush", "memory ran out while a message was stored; restart the broker")
        log.critical(
            "queue entry not made physical_offset=%d cause=%r; messages are refused until the broker is "
            "restarted, which rebuilds it",
            physical_offset,
            error,
        )

    def close(self) -> None:
        """Flush no more; when this returns, no flush is running."""
        with self._lock:
            self._closed = True
