"""Synchronous flushing: one flush answers everybody who waits for it.

What is appended while a flush is under way waits for the next one: the slower the disk, the larger the groups
(Apache RocketMQ 5.3.3, GroupCommitService).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .flusher import LogFlush

log = logging.getLogger("rmq.store.flush")

_CLOSE_SECONDS: Final = 10.0


class Durability(Enum):
    """What is known of a message on disk when the wait for its flush ends.

    FLUSHED    it is on disk
    TIMED_OUT  the flush is still running: the message may be on disk later
    FAILED     the flush failed: the message may be on disk or not
    """

    FLUSHED = "flushed"
    TIMED_OUT = "timed out"
    FAILED = "failed"


# Called once, on the event loop, when a wait for a flush ends.
DurabilityListener = Callable[[Durability], None]


@dataclass(slots=True)
class CommitStatistics:
    """Plain counters for metrics; they belong to the loop."""

    flushes: int = 0
    answered: int = 0  # once they were on the disk
    timed_out: int = 0
    failed: int = 0


class GroupCommit:
    """Flushes when asked to, in a thread of its own; `request` and `wait` belong to the loop's thread."""

    def __init__(
        self,
        flush: LogFlush,
        *,
        timeout_ms: Callable[[], int],
        on_flushed: Callable[[int], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`timeout_ms`: how long an answer waits at most. `on_flushed` is told, on the loop, how far the log
        is on the disk.
        """
        self._flush = flush
        self._timeout_ms = timeout_ms
        self._on_flushed = on_flushed
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        # By the offset that they wait for, which is also by the time that they came.
        self._waiting: deque[tuple[int, float, DurabilityListener]] = deque()
        self._requested = False
        self._flushed_to = 0  # as far as the loop was told
        self._wake = threading.Semaphore(0)
        self._stopping = False
        self.statistics = CommitStatistics()
        self._timer: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._run, name="store-group-commit", daemon=True)
        self._thread.start()

    def request(self) -> None:
        """Flush what was appended until the end of this iteration of the loop."""
        if not self._requested:
            self._requested = True
            self._loop.call_soon(self._start_flush)

    def when_flushed(self, offset: int, listener: DurabilityListener) -> None:
        """Call `listener` once the log is on disk up to `offset`, the end of the log's newest record.

        The call is made in a later iteration of the event loop, even if that part of the log is on disk
        already. Otherwise a flush is requested: the caller may be the only one that waits for it.
        """
        self._waiting.append((offset, self._clock() + self._timeout_ms() / 1000, listener))
        if self._timer is None:
            self._set_timer()
        if offset <= self._flushed_to:
            self._loop.call_soon(self._settle_flushed)
        else:
            self.request()

    @property
    def waiting(self) -> int:
        """How many answers wait for the disk now."""
        return len(self._waiting)

    async def stop(self) -> None:
        """Flush a last time, answer all who wait, end the thread."""
        self._stopping = True
        self._wake.release()
        await self._loop.run_in_executor(None, self._thread.join, _CLOSE_SECONDS)
        await asyncio.sleep(0)  # what the thread has told last
        self.close()

    def close(self) -> None:
        """End without another flush: who waits still is told so."""
        self._stopping = True
        self._wake.release()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._settle(len(self._waiting), Durability.TIMED_OUT)

    # --- on the loop ---

    def _start_flush(self) -> None:
        self._requested = False
        self._wake.release()

    def _flushed(self, offset: int) -> None:
        self.statistics.flushes += 1
        self._on_flushed(offset)
        self._flushed_to = max(self._flushed_to, offset)
        self._settle_flushed()

    def _settle_flushed(self) -> None:
        """Answer those whose wait is over."""
        count = 0
        for entry in self._waiting:
            if entry[0] > self._flushed_to:
                break
            count += 1
        self._settle(count, Durability.FLUSHED)

    def _failed(self) -> None:
        self._settle(len(self._waiting), Durability.FAILED)

    def _settle(self, count: int, end: Durability) -> None:
        """Answer the first `count` of those who wait."""
        self._count(count, end)
        for _ in range(count):
            listener = self._waiting.popleft()[2]
            try:
                listener(end)
            except Exception:  # the others are still to be called
                log.exception("durability listener failed listener=%r durability=%s", listener, end.name)

    def _count(self, count: int, end: Durability) -> None:
        statistics = self.statistics
        match end:
            case Durability.FLUSHED:
                statistics.answered += count
            case Durability.TIMED_OUT:
                statistics.timed_out += count
            case Durability.FAILED:
                statistics.failed += count

    def _set_timer(self) -> None:
        """Look again when the time of the one who waits longest is up."""
        self._timer = None
        if self._waiting and not self._stopping:
            in_seconds = max(0.0, self._waiting[0][1] - self._clock())
            self._timer = self._loop.call_later(in_seconds, self._time_up)

    def _time_up(self) -> None:
        now = self._clock()
        count = 0
        for entry in self._waiting:
            if entry[1] > now:
                break
            count += 1
        if count:
            log.warning("%d sends are answered before they are on the disk: the flush takes too long", count)
        self._settle(count, Durability.TIMED_OUT)
        self._set_timer()

    # --- in the thread ---

    def _run(self) -> None:
        while True:
            self._wake.acquire()
            while self._wake.acquire(blocking=False):  # one flush for all who asked by now
                pass
            last = self._stopping
            try:
                told = self._tell(self._flushed, self._flush())
            except Exception:  # the flush has logged it, and accepts nothing from now on
                told = self._tell(self._failed)
            if last or not told:
                return

    def _tell(self, what: Callable[..., None], *arguments: object) -> bool:
        try:
            self._loop.call_soon_threadsafe(what, *arguments)
        except RuntimeError:  # the loop is closed
            return False
        return True
