"""Flushing in the background: the log and the queues go to the disk in a thread, the loop never waits.

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

from ..log.commit_log import CommitLog
from ..log.mapped_file import PAGE_BYTES
from ..queues.consume_queues import ConsumeQueues
from ..recovery.checkpoint import Checkpoint
from ..recovery.fine_checkpoint import FineCheckpoint
from ..settings import StoreSettings
from ..write_health import WriteHealth

log = logging.getLogger("rmq.store.flush")

# Flushing queues costs a call each: where there are many, they get this part of the time at most.
_PAUSE_PER_PASS: Final = 10
# Writing them out costs several each, in time that the loop's thread would have: thousands of queues are
# written out less often, in larger pieces. What a killed process has to read again of the log stays bounded.
_PAUSE_PER_WRITING: Final = 20
_LONGEST_PAUSE_SECONDS: Final = 10.0
_QUEUES: Final = "queues"


class LogFlush:
    """Flushes the log, one thread at a time, and never again after a failure.

    After a failed fsync the kernel may have dropped the dirty pages, and the next one would succeed without
    them.
    """

    def __init__(self, commit_log: CommitLog, health: WriteHealth) -> None:
        self._log = commit_log
        self._health = health
        self._one_at_a_time = Lock()
        self._closed = False
        self.failure: Exception | None = None

    def __call__(self) -> int:
        """Flush; blocks. The offset up to which the log is on the disk. Raises OSError."""
        with self._one_at_a_time:
            if self._closed:
                return 0
            self.check()
            try:
                return self._log.flush()
            except Exception as error:
                self.fail(error)
                raise

    def check(self) -> None:
        """Raises OSError after a failure."""
        if self.failure is not None:
            raise OSError(f"an earlier flush failed: {self.failure}")

    def fail(self, error: Exception) -> None:
        """Something could not be flushed: from now on nothing is accepted."""
        self.failure = error
        self._health.refuse("flush", f"flushing to the disk failed: {error}")
        log.exception("flushing failed, no more messages are accepted: %s", error)

    def close(self) -> None:
        """Flush no more; when this returns no flush is under way."""
        with self._one_at_a_time:
            self._closed = True


@dataclass(frozen=True, slots=True)
class Reached:
    """How far the store was at a moment: what a flush that begins then covers."""

    timestamp_ms: int  # when the newest message was stored
    entries_end: int  # up to here in the log every message has its queue entry


class Flusher:
    """Every so often: the log, then the queues, then the checkpoints."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        checkpoint: Checkpoint,
        settings: StoreSettings,
        health: WriteHealth,
        reached: Callable[[], Reached],
        index_timestamp_ms: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`reached` is asked on the loop's thread, or while nobody appends. `index_timestamp_ms`: up to when
        messages are found by an index that is on the disk.
        """
        self._log = commit_log
        self._queues = queues
        self._checkpoint = checkpoint
        self._checkpoint_path = settings.checkpoint_path
        self._fine = FineCheckpoint(0, 0)
        self._fine_path = settings.fine_checkpoint_path
        self._settings = settings
        self._health = health
        self._reached = reached
        self._index_timestamp_ms = index_timestamp_ms
        self._clock = clock
        self._one_at_a_time = Lock()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="store-flush")
        self._closed = False
        self._saved: Checkpoint | None = None
        self._log_flushed_at = self._queues_written_at = self._queues_flushed_at = clock()
        self._queues_pass_seconds = self._queues_write_seconds = 0.0
        self.flush_log = LogFlush(commit_log, health)
        # Why queue entries cannot be written to their files now: they are kept in memory, and tried again.
        self._blocked: OSError | None = None
        self._unsaved: set[Path] = set()  # checkpoints that cannot be written now

    def opened(self, fine: FineCheckpoint) -> None:
        """The store has been opened; `fine` is what `rmq_checkpoint` says now."""
        self._fine = fine
        self._log.entries_flushed_to = fine.flushed

    @property
    def failure(self) -> Exception | None:
        """Why nothing can be flushed any more, or None."""
        return self.flush_log.failure

    async def run(self) -> None:
        """Flush until cancelled. A failing flush ends it: the store refuses writes from then on."""
        loop = asyncio.get_running_loop()
        settings = self._settings
        while self.failure is None and not self._closed:
            tick_ms = min(settings.flush_interval_commit_log_ms, settings.flush_interval_consume_queue_ms)
            await asyncio.sleep(tick_ms / 1000)
            try:
                await loop.run_in_executor(self._executor, self._tick, self._reached())
            except Exception:
                return  # logged where it happened, and kept in `failure`

    def flush(self) -> None:
        """Flush all now; blocks. Raises OSError; after a failure once, always."""
        self._in_turn(self._flush_all, self._reached())

    def close(self) -> None:
        """Flush no more; when this returns no flush is under way."""
        with self._one_at_a_time:
            self._closed = True
        self.flush_log.close()
        self._executor.shutdown(wait=True, cancel_futures=True)

    # --- in the thread ---

    def _tick(self, reached: Reached) -> None:
        self._in_turn(self._flush_what_is_due, reached)

    def _in_turn(self, flush: Callable[[Reached], None], reached: Reached) -> None:
        with self._one_at_a_time:
            if self._closed:
                return
            self.flush_log.check()
            try:
                flush(reached)
            except Exception as error:
                if self.failure is None:
                    self.flush_log.fail(error)
                raise

    def _flush_what_is_due(self, reached: Reached) -> None:
        settings, now = self._settings, self._clock()
        since_log_ms = (now - self._log_flushed_at) * 1000
        least_bytes = settings.flush_commit_log_least_pages * PAGE_BYTES
        if since_log_ms >= settings.flush_commit_log_thorough_interval_ms or (
            since_log_ms >= settings.flush_interval_commit_log_ms and self._log.unflushed_bytes >= least_bytes
        ):
            self._flush_log(reached)
        pause = min(_PAUSE_PER_WRITING * self._queues_write_seconds, _LONGEST_PAUSE_SECONDS)
        if now - self._queues_written_at < max(pause, settings.flush_interval_consume_queue_ms / 1000):
            return
        self._write_out_queues(reached)
        if now - self._queues_flushed_at >= _PAUSE_PER_PASS * self._queues_pass_seconds:
            self._flush_queues(reached)

    def _flush_all(self, reached: Reached) -> None:
        self._flush_log(reached)
        self._write_out_queues(reached)
        if self._blocked is not None:
            raise self._blocked
        self._flush_queues(reached)

    def _flush_log(self, reached: Reached) -> None:
        self.flush_log()
        self._log_flushed_at = self._clock()
        # Not the largest so far: where the clock was set back, what is younger than that is not all on disk.
        self._checkpoint.log_timestamp_ms = reached.timestamp_ms

    def _write_out_queues(self, reached: Reached) -> None:
        """Bring the queues' entries into their files: there they outlive this process."""
        began = self._clock()
        try:
            self._queues.write_out()
        except OSError as error:
            self._block(error)
            return
        finally:
            self._queues_written_at = self._clock()
            self._queues_write_seconds = self._queues_written_at - began
        if self._blocked is not None:
            log.warning("queue entries can be written again")
            self._blocked = None
            self._health.allow(_QUEUES)
        self._save_fine(replace(self._fine, written=reached.entries_end), durable=False)

    def _flush_queues(self, reached: Reached) -> None:
        has_news = self._checkpoint.queue_timestamp_ms != reached.timestamp_ms or bool(self._unsaved)
        if self._blocked is not None or not (has_news or self._fine.flushed < reached.entries_end):
            return
        began = self._clock()
        # The log first: what the checkpoint says of the queues has to be true of the log as well.
        self._flush_log(reached)
        # Whatever the error is, also one for want of space (thin disks, NFS), the kernel may have dropped
        # pages: to try again would be to take them for flushed.
        self._queues.flush()
        self._queues_flushed_at = self._clock()
        self._queues_pass_seconds = self._queues_flushed_at - began
        checkpoint = self._checkpoint
        checkpoint.queue_timestamp_ms = reached.timestamp_ms
        checkpoint.index_timestamp_ms = self._index_timestamp_ms() or checkpoint.index_timestamp_ms
        path = self._checkpoint_path
        if checkpoint != self._saved and self._has_saved(path, lambda: checkpoint.save(path)):
            self._saved = replace(checkpoint)
        end = self._log.entries_flushed_to = reached.entries_end
        self._save_fine(FineCheckpoint(max(self._fine.written, end), end), durable=True)

    def _block(self, error: OSError) -> None:
        if self._blocked is None:
            log.error("queue entries cannot be written, they stay in memory for now: %s", error)
        self._blocked = error
        self._health.refuse(_QUEUES, f"no queue entries can be written: {error}")

    def _save_fine(self, checkpoint: FineCheckpoint, *, durable: bool) -> None:
        if checkpoint != self._fine and self._has_saved(
            self._fine_path, lambda: checkpoint.save(self._fine_path, durable=durable)
        ):
            self._fine = checkpoint

    def _has_saved(self, path: Path, save: Callable[[], None]) -> bool:
        """Whether a checkpoint was written. Where it was not a start has more to read, that is all.

        It is written anew each time, as a whole: unlike a flush it can be tried again.
        """
        try:
            save()
        except OSError as error:
            if path not in self._unsaved:
                log.error("%s cannot be written now, a start would have more to read: %s", path, error)
                self._unsaved.add(path)
            return False
        if path in self._unsaved:
            log.warning("%s can be written again", path)
            self._unsaved.discard(path)
        return True
