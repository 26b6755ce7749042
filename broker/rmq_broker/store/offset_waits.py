"""Waits for an offset of the log, each with a time limit: of a flush, or of replicas."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from .durability import Durability, DurabilityListener

log = logging.getLogger("rmq.store")


class OffsetWaits:
    """Listeners by offset, which is also the order of time; belongs to the loop's thread."""

    __slots__ = ("_clock", "_is_stopped", "_on_time_up", "_timeout_ms", "_timer", "_waiting")

    def __init__(
        self,
        timeout_ms: Callable[[], int],
        on_time_up: Callable[[int], None],
        clock: Callable[[], float],
    ) -> None:
        """`timeout_ms` returns how long a wait lasts at most.

        `on_time_up` is called with the number of waits, the first ones, whose time is up; it completes them.
        """
        self._timeout_ms = timeout_ms
        self._on_time_up = on_time_up
        self._clock = clock
        self._waiting: deque[tuple[int, float, DurabilityListener]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, offset: int, listener: DurabilityListener) -> None:
        """Add a wait for `offset`, which is not below those before it."""
        self._waiting.append((offset, self._clock() + self._timeout_ms() / 1000, listener))
        if self._timer is None:
            self._set_timer()

    def count_up_to(self, offset: int) -> int:
        """Return how many waits, the first ones, end once the log is that far."""
        count = 0
        for entry in self._waiting:
            if entry[0] > offset:
                break
            count += 1
        return count

    def complete(self, count: int, durability: Durability) -> None:
        """Call the first `count` listeners."""
        for _ in range(count):
            listener = self._waiting.popleft()[2]
            try:
                listener(durability)
            except Exception:  # the other listeners are still to be called
                log.exception(
                    "durability listener failed listener=%r durability=%s", listener, durability.name
                )

    def stop(self) -> None:
        """Let no time-out end a wait any more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def expire(self) -> None:
        """End the waits whose time is up."""
        now = self._clock()
        count = 0
        for entry in self._waiting:
            if entry[1] > now:
                break
            count += 1
        if count:
            self._on_time_up(count)
        self._set_timer()

    def _set_timer(self) -> None:
        """Set the timer for the wait that ends first."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting and not self._is_stopped:
            in_seconds = max(0.0, self._waiting[0][1] - self._clock())
            self._timer = asyncio.get_running_loop().call_later(in_seconds, self.expire)
