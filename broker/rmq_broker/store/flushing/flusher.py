"""Flushing in the background: a thread writes the log and the queues to disk, the event loop never waits.

Apache RocketMQ 5.3.3, FlushRealTimeService and FlushConsumeQueueService.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Final

from rmq_remoting.daemon.file_errors import advice_for, is_shortage

from ..log.commit_log import CommitLog
from ..log.mapped_file import PAGE_BYTES
from ..queues.consume_queues import ConsumeQueues
from ..recovery.checkpoint import Checkpoint
from ..recovery.fine_checkpoint import FineCheckpoint
from ..settings import StoreSettings
from ..write_health import WriteHealth
from .log_flush import LogFlush

log = logging.getLogger("rmq.store.flush")

# Flushing queues costs a system call each. The pause between two passes is at least this multiple of a pass,
# so that many queues do not take all of the time.
_PAUSE_PER_PASS: Final = 10
# Writing queues out costs several system calls each, and time of the event loop's thread. Thousands of queues
# are written out less often, in larger pieces. The longest pause bounds how much of the log is read again
# after a crash of the process.
_PAUSE_PER_WRITING: Final = 20
_LONGEST_PAUSE_SECONDS: Final = 10.0
_QUEUES: Final = "queues"  # a cause of refusing messages


@dataclass(frozen=True, slots=True)
class FlushPosition:
    """How far the store is at a moment: a flush that begins then covers it.

    timestamp_ms  when the newest message was stored
    entries_end   log offset up to which every message has its queue entry
    """

    timestamp_ms: int
    entries_end: int


class Flusher:
    """Flushes at intervals: the log, then the queues, then the checkpoints."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        checkpoint: Checkpoint,
        settings: StoreSettings,
        health: WriteHealth,
        position: Callable[[], FlushPosition],
        index_timestamp_ms: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`position` is called on the event loop's thread, or while nothing is appended.

        `index_timestamp_ms` returns the store time up to which the index is on disk.
        """
        self._log = commit_log
        self._queues = queues
        self._checkpoint = checkpoint
        self._checkpoint_path = settings.checkpoint_path
        self._fine = FineCheckpoint(0, 0)
        self._fine_path = settings.fine_checkpoint_path
        self._settings = settings
        self._health = health
        self._position = position
        self._index_timestamp_ms = index_timestamp_ms
        self._clock = clock
        self._one_at_a_time = Lock()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="store-flush")
        self._closed = False
        self._saved: Checkpoint | None = None
        self._log_flushed_at = self._queues_written_at = self._queues_flushed_at = clock()
        self._queues_pass_seconds = self._queues_write_seconds = 0.0
        self.flush_log = LogFlush(commit_log, health)
        # Why queue entries cannot be written to their files: they stay in memory, and it is tried again.
        self._blocked: OSError | None = None
        # Whether all entries up to the position were written; otherwise no checkpoint may count them.
        self._is_complete = True
        self._unsaved: set[Path] = set()  # checkpoints that could not be written

    def opened(self, fine: FineCheckpoint) -> None:
        """The store has been opened; `fine` is the content of `rmq_checkpoint`."""
        self._fine = fine
        self._log.entries_flushed_to = fine.flushed

    @property
    def failure(self) -> Exception | None:
        """Why the log cannot be flushed any more; None if it can."""
        return self.flush_log.failure

    async def run(self) -> None:
        """Flush until cancelled. A failing flush ends it: messages are refused from then on."""
        loop = asyncio.get_running_loop()
        settings = self._settings
        while self.failure is None and not self._closed:
            tick_ms = min(settings.flush_interval_commit_log_ms, settings.flush_interval_consume_queue_ms)
            await asyncio.sleep(tick_ms / 1000)
            try:
                await loop.run_in_executor(self._executor, self._tick, self._position())
            except Exception as error:
                if self.failure is not None:
                    return  # logged already
                self.flush_log.postpone(error)

    def flush(self) -> None:
        """Flush everything now; blocks. Raises OSError, also after an earlier failure."""
        self._in_turn(self._flush_all, self._position())

    def close(self) -> None:
        """Flush no more; when this returns, no flush is running."""
        with self._one_at_a_time:
            self._closed = True
        self.flush_log.close()
        self._executor.shutdown(wait=True, cancel_futures=True)

    # --- in the thread ---

    def _tick(self, position: FlushPosition) -> None:
        self._in_turn(self.flush_due, position)

    def _in_turn(self, flush: Callable[[FlushPosition], None], position: FlushPosition) -> None:
        with self._one_at_a_time:
            if self._closed:
                return
            self.flush_log.check()
            try:
                flush(position)
            except Exception as error:
                if self.failure is None and not is_shortage(error):
                    self.flush_log.fail(error)
                raise

    def flush_due(self, position: FlushPosition) -> None:
        """Flush what is due by now; `run` calls it often, in a thread of its own. Raises OSError; blocks."""
        settings, now = self._settings, self._clock()
        since_log_ms = (now - self._log_flushed_at) * 1000
        least_bytes = settings.flush_commit_log_least_pages * PAGE_BYTES
        if since_log_ms >= settings.flush_commit_log_thorough_interval_ms or (
            since_log_ms >= settings.flush_interval_commit_log_ms and self._log.unflushed_bytes >= least_bytes
        ):
            self._flush_log(position)
        pause = min(_PAUSE_PER_WRITING * self._queues_write_seconds, _LONGEST_PAUSE_SECONDS)
        if now - self._queues_written_at < max(pause, settings.flush_interval_consume_queue_ms / 1000):
            return
        self._write_out_queues(position)
        if now - self._queues_flushed_at >= _PAUSE_PER_PASS * self._queues_pass_seconds:
            self._flush_queues(position)

    def _flush_all(self, position: FlushPosition) -> None:
        self._flush_log(position)
        self._write_out_queues(position)
        if self._blocked is not None:
            raise self._blocked
        self._flush_queues(position)

    def _flush_log(self, position: FlushPosition) -> None:
        self.flush_log()
        self._log_flushed_at = self._clock()
        # Not the largest time so far: after the clock was set back, newer messages may have smaller times.
        self._checkpoint.log_timestamp_ms = position.timestamp_ms

    def _write_out_queues(self, position: FlushPosition) -> None:
        """Write the queues' entries to their files, where they survive a crash of the process."""
        began = self._clock()
        try:
            self._is_complete = self._queues.write_out()
        except OSError as error:
            self._block(error)
            return
        finally:
            self._queues_written_at = self._clock()
            self._queues_write_seconds = self._queues_written_at - began
        if self._blocked is not None:
            log.warning("queue entries are written again; messages are accepted")
            self._blocked = None
            self._health.allow(_QUEUES)
        if self._is_complete:
            self._save_fine(replace(self._fine, written=position.entries_end), durable=False)

    def _flush_queues(self, position: FlushPosition) -> None:
        has_news = self._checkpoint.queue_timestamp_ms != position.timestamp_ms or bool(self._unsaved)
        if self._blocked is not None or not (has_news or self._fine.flushed < position.entries_end):
            return
        if not self._is_complete:  # a deletion of topics is under way
            return
        began = self._clock()
        # The log first: the checkpoint's time of the queues has to hold for the log as well.
        self._flush_log(position)
        # A failure is final, also for lack of space (thin disks, NFS): the kernel may have dropped pages, and
        # a second fsync would succeed without them.
        self._queues.flush()
        self._queues_flushed_at = self._clock()
        self._queues_pass_seconds = self._queues_flushed_at - began
        checkpoint = self._checkpoint
        checkpoint.queue_timestamp_ms = position.timestamp_ms
        checkpoint.index_timestamp_ms = self._index_timestamp_ms()
        path = self._checkpoint_path
        if checkpoint != self._saved and self._has_saved(path, lambda: checkpoint.save(path)):
            self._saved = replace(checkpoint)
        end = self._log.entries_flushed_to = position.entries_end
        self._save_fine(FineCheckpoint(max(self._fine.written, end), end), durable=True)

    def _block(self, error: OSError) -> None:
        if self._blocked is None:
            log.error(
                "queue entries not written cause=%s; kept in memory and tried again, messages are refused%s",
                error,
                advice_for(error),
            )
        self._blocked = error
        self._health.refuse(_QUEUES, f"no queue entries can be written: {error}")

    def _save_fine(self, checkpoint: FineCheckpoint, *, durable: bool) -> None:
        if checkpoint != self._fine and self._has_saved(
            self._fine_path, lambda: checkpoint.save(self._fine_path, durable=durable)
        ):
            self._fine = checkpoint

    def _has_saved(self, path: Path, save: Callable[[], None]) -> bool:
        """Write a checkpoint, and tell whether that succeeded. Without it the next start only reads more.

        The file is written as a whole each time: unlike a flush, this can be tried again.
        """
        try:
            save()
        except OSError as error:
            if path not in self._unsaved:
                log.error(
                    "checkpoint not written path=%s cause=%s; tried again, a restart would read more",
                    path,
                    error,
                )
                self._unsaved.add(path)
            return False
        if path in self._unsaved:
            log.warning("checkpoint written again path=%s", path)
            self._unsaved.discard(path)
        return True
