"""One flush of the commit log at a time, and none after a failure."""

from __future__ import annotations

import logging
from threading import Lock

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
        self.failure: Exception | None = None

    def __call__(self) -> int:
        """Flush, and return the offset up to which the log is on disk. Blocks. Raises OSError."""
        with self._lock:
            if self._closed:
                return 0
            self.check()
            try:
                return self._log.flush()
            except Exception as error:
                self.fail(error)
                raise

    def check(self) -> None:
        """Raise OSError after a failure."""
        if self.failure is not None:
            raise OSError(f"an earlier flush failed: {self.failure}")

    def fail(self, error: Exception) -> None:
        """Refuse messages from now on, because something could not be flushed."""
        self.failure = error
        self._health.refuse("flush", f"flushing to the disk failed: {error}")
        log.exception("flush failed cause=%s; messages are refused until the broker is restarted", error)

    def close(self) -> None:
        """Flush no more; when this returns, no flush is running."""
        with self._lock:
            self._closed = True
