"""Group commit for synchronous flushing: one flush of the log serves all messages appended before it.

Messages that are appended during a flush wait for the next one: the slower the disk, the larger the groups
(Apache RocketMQ 5.3.3, GroupCommitService). The next flush also waits a moment for the producers that were
just answered: otherwise producers that send one message after another form two groups, which wait for each
other.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rmq_remoting.daemon.file_errors import is_shortage
from rmq_remoting.repeated_event import RepeatedEvent

from ..durability import Durability, DurabilityListener
from ..offset_waits import OffsetWaits
from .log_flush import LogFlush

log = logging.getLogger("rmq.store.flush")

# The next flush waits that share of the last one's duration for more messages; short waits are left out.
_PAUSE_SHARE: Final = 0.25
_SHORTEST_PAUSE_S: Final = 0.0005
_LONGEST_PAUSE_S: Final = 0.02  # after a disk that stalled
# The pause after a flush for which memory or descriptors were short.
_RETRY_SECONDS: Final = 0.1
# A disk that hangs lets every send time out.
_LOG_SECONDS: Final = 10.0


@dataclass(slots=True)
class CommitStatistics:
    """Plain counters for metrics; they belong to the event loop's thread."""

    flushes: int = 0
    answered: int = 0  # waits that ended with DURABLE
    timed_out: int = 0
    failed: int = 0


class GroupCommit:
    """Flushes on request, in a thread of its own, from `start` until `begin_stop` or `close`.

    `request` and `when_flushed` belong to the event loop's thread.
    """

    __slots__ = (
        "_began",
        "_clock",
        "_flush",
        "_flushed_to",
        "_flusher",
        "_is_flushing",
        "_is_idle",
        "_longest_pause_s",
        "_loop",
        "_on_flushed",
        "_pause",
        "_requested",
        "_timed_out",
        "_timeout_ms",
        "_waits",
        "_wanted",
        "is_running",
        "statistics",
    )

    _loop: asyncio.AbstractEventLoop

    def __init__(
        self,
        flush: LogFlush,
        *,
        timeout_ms: Callable[[], int],
        on_flushed: Callable[[int], None],
        clock: Callable[[], float] = time.monotonic,
        longest_pause_s: float = _LONGEST_PAUSE_S,
    ) -> None:
        """`flush` blocks and returns the log offset up to which the log is on disk; it may raise.

        `timeout_ms` returns how long a wait lasts at most. `on_flushed` is called on the event loop with the
        offset that a flush returned, before the listeners.
        """
        self._flush = flush
        self._timeout_ms = timeout_ms
        self._on_flushed = on_flushed
        self._clock = clock
        self._longest_pause_s = longest_pause_s
        self._waits = OffsetWaits(timeout_ms, self._time_up, clock)
        self._timed_out = RepeatedEvent(_LOG_SECONDS, clock)
        self._requested = False
        self._is_flushing = False  # from the request to the thread until its result
        self._began = 0.0
        self._pause: asyncio.TimerHandle | None = None  # before a flush, until `_wanted` listeners wait
        self._wanted = 0
        self._flushed_to = 0  # as far as the event loop knows
        # Held by the thread while no flush is requested; a semaphore costs ten times as much.
        self._is_idle = threading.Lock()
        self._is_idle.acquire()
        self._flusher: threading.Thread | None = None
        self.is_running = False
        self.statistics = CommitStatistics()

    def start(self) -> None:
        """Start the thread; in a running event loop, once."""
        self._loop = asyncio.get_running_loop()
        self._flusher = threading.Thread(target=self._run, name="store-group-commit", daemon=True)
        self.is_running = True
        self._flusher.start()

    def request(self) -> bool:
        """Have all that is appended by the end of this loop iteration flushed; False: not running."""
        if not self._requested and self.is_running:
            self._requested = True
            if not self._is_flushing:
                self._loop.call_soon(self._start_flush)
        return self.is_running

    def when_flushed(self, offset: int, listener: DurabilityListener) -> None:
        """Call `listener` once the log is on disk up to `offset`, the end of the log's newest record.

        The call is made in a later iteration of the event loop, even if that part of the log is on disk
        already. Otherwise a flush is requested: the caller may be the only one that waits for it.
        """
        self._waits.add(offset, listener)
        if offset <= self._flushed_to:
            self._loop.call_soon(self._complete_flushed)
        elif self._pause is not None and len(self._waits) >= self._wanted:
            self._end_pause()
            self._loop.call_soon(self._start_flush)
        else:
            self.request()

    @property
    def waiting(self) -> int:
        """Number of listeners that wait for a flush now."""
        return len(self._waits)

    def expire(self) -> None:
        """End the waits whose time is up. A timer does that, too."""
        self._waits.expire()

    def begin_stop(self) -> None:
        """Flush a last time, and end the thread. Afterwards, `join` and `close` are to be called."""
        self.is_running = False
        self._end_pause()
        self._wake()

    def join(self, timeout_s: float) -> None:
        """Wait until the thread has ended; blocks."""
        if self._flusher is not None:
            self._flusher.join(timeout_s)

    def close(self) -> None:
        """End without another flush; listeners that still wait get FLUSH_TIMED_OUT."""
        self.begin_stop()
        self._waits.stop()
        self._complete(len(self._waits), Durability.FLUSH_TIMED_OUT)

    # --- on the event loop ---

    def _start_flush(self) -> None:
        self._requested = False
        self._end_pause()
        self._is_flushing = True
        self._began = self._clock()
        self._wake()

    def _end_pause(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    def _wake(self) -> None:
        """Have the thread flush the log up to its present end; one flush serves all calls before it."""
        if self._is_idle.locked():
            self._is_idle.release()

    def _flushed(self, offset: int) -> None:
        self.statistics.flushes += 1
        self._on_flushed(offset)
        self._flushed_to = max(self._flushed_to, offset)
        self._is_flushing = False
        pause_s = min((self._clock() - self._began) * _PAUSE_SHARE, self._longest_pause_s)
        answered = self._complete_flushed()
        if not self._requested or not self.is_running:
            return
        if answered and pause_s >= _SHORTEST_PAUSE_S:
            self._wanted = len(self._waits) + answered
            self._pause = self._loop.call_later(pause_s, self._start_flush)
        else:
            self._start_flush()

    def _complete_flushed(self) -> int:
        """Call the listeners whose part of the log is on disk, and return their number."""
        count = self._waits.count_up_to(self._flushed_to)
        self._complete(count, Durability.DURABLE)
        return count

    def _failed(self) -> None:
        self._is_flushing = self._requested = False
        self._complete(len(self._waits), Durability.FLUSH_FAILED)

    def _complete(self, count: int, durability: Durability) -> None:
        """Call the first `count` listeners."""
        self._count(count, durability)
        self._waits.complete(count, durability)

    def _count(self, count: int, durability: Durability) -> None:
        statistics = self.statistics
        match durability:
            case Durability.DURABLE:
                statistics.answered += count
            case Durability.FLUSH_TIMED_OUT:
                statistics.timed_out += count
            case Durability.FLUSH_FAILED:
                statistics.failed += count

    def _time_up(self, count: int) -> None:
        if sends := self._timed_out.occurred(count):
            log.warning(
                "flush timed out sends=%d timeout_ms=%d; answered before they are on disk",
                sends,
                self._timeout_ms(),
            )
        self._complete(count, Durability.FLUSH_TIMED_OUT)

    # --- in the thread ---

    def _run(self) -> None:
        while True:
            self._is_idle.acquire()
            is_last = not self.is_running
            try:
                is_sent = self._send(self._flushed, self._flush())
            except Exception as error:
                if is_shortage(error):
                    self._flush.postpone(error)
                    time.sleep(_RETRY_SECONDS)
                    is_sent = self._send(self._wake)
                else:  # the flush has logged the error, and messages are refused from now on
                    is_sent = self._send(self._failed)
            if is_last or not is_sent:
                return

    def _send(self, function: Callable[..., None], *arguments: object) -> bool:
        """Have the event loop call a function; False where the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            return False
        return True
