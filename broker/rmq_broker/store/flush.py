"""Flushing in the background: the log and the queues go to the disk in a thread, the loop never waits."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from threading import Lock

from ..config import StoreSettings
from .checkpoint import Checkpoint
from .commit_log import CommitLog
from .consume_queues import ConsumeQueues

log = logging.getLogger("rmq.store.flush")


class Flusher:
    """Asynchronous flushing: every so often, the log first and then the queues, then the checkpoint."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        checkpoint: Checkpoint,
        checkpoint_path: Path,
        settings: StoreSettings,
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._checkpoint = checkpoint
        self._checkpoint_path = checkpoint_path
        self._settings = settings
        self._one_at_a_time = Lock()
        self._closed = False
        self._saved: Checkpoint | None = None
        self.failure: Exception | None = None
        self.last_timestamp_ms = 0  # of the newest message appended; kept by the store

    async def run(self) -> None:
        """Flush until cancelled. A failing flush ends it: the store refuses writes from then on."""
        loop = asyncio.get_running_loop()
        since_queues_ms = 0
        while self.failure is None and not self._closed:
            interval_ms = self._settings.flush_interval_commit_log_ms
            await asyncio.sleep(interval_ms / 1000)
            since_queues_ms += interval_ms
            with_queues = since_queues_ms >= self._settings.flush_interval_consume_queue_ms
            if with_queues:
                since_queues_ms = 0
            try:
                await loop.run_in_executor(None, self.flush, with_queues)
            except Exception:
                return  # `flush` has logged it, and keeps it in `failure`

    def flush(self, with_queues: bool = True) -> None:
        """Flush now; blocks. Raises OSError; after a failure once, always.

        Nothing is tried again: after a failed fsync the kernel may have dropped the dirty pages, and the next
        one would succeed without them.
        """
        with self._one_at_a_time:
            if self._closed:
                return
            if self.failure is not None:
                raise OSError(f"an earlier flush failed: {self.failure}")
            try:
                self._flush(with_queues)
            except Exception as error:
                self.failure = error
                log.exception("flushing failed, no more messages are accepted: %s", error)
                raise

    def close(self) -> None:
        """Flush no more; when this returns no flush is under way."""
        with self._one_at_a_time:
            self._closed = True

    def _flush(self, with_queues: bool) -> None:
        timestamp_ms = self.last_timestamp_ms
        self._log.flush()
        checkpoint = self._checkpoint
        # Not the largest so far: where the clock was set back, what is younger than that is not all on disk.
        checkpoint.log_timestamp_ms = timestamp_ms
        if with_queues:
            for queue in self._queues:
                queue.flush()
            checkpoint.queue_timestamp_ms = timestamp_ms
            if checkpoint != self._saved:
                checkpoint.save(self._checkpoint_path)
                self._saved = replace(checkpoint)
