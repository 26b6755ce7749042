"""Tiers: where requests run, how many may wait there, and for how long.

An inline tier runs processors on the event loop, for work of microseconds that never blocks. A pool tier is a
named, bounded thread pool, for work that may block. A request that exceeds a tier's bounds is refused with
SYSTEM_BUSY.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from .codes import ResponseCode
from .errors import CommandError


@dataclass(slots=True)
class TierStatistics:
    """Plain counters of one tier, read by the metrics collector."""

    accepted: int = 0
    rejected_full: int = 0
    rejected_late: int = 0
    failed: int = 0
    waiting: int = 0
    running: int = 0  # in a thread of a pool
    held: int = 0  # long polls: they have bounds of their own, and take nothing from the capacity
    max_waiting: int = 0
    wait_seconds_total: float = 0.0

    def add_waiting(self) -> None:
        """Count a request that begins to wait."""
        self.waiting += 1
        self.max_waiting = max(self.max_waiting, self.waiting)

    def end_waiting(self, waited_seconds: float) -> None:
        """Count the end of a wait."""
        self.waiting -= 1
        self.wait_seconds_total += waited_seconds


# Of a capacity that is half used no connection may hold more than this part, or this number if it is greater.
_SHARE: Final = 16
_LEAST_SHARE: Final = 64


def share_of(capacity: int, least: int = _LEAST_SHARE) -> int:
    """Return how much of a capacity one connection may use once half of it is used."""
    return max(capacity // _SHARE, least)


def has_share(used: int, own: int, capacity: int, least: int = _LEAST_SHARE) -> bool:
    """Whether a connection may use more of a capacity, of which `used` is used, `own` by itself.

    One connection alone can use half of the capacity; the other half is for those that use less than a share.
    """
    return used < capacity // 2 or (used < capacity and own < share_of(capacity, least))


class BoundedTier:
    """Bounds and counters that every tier has, and the refusals that follow from the bounds.

    The dispatcher admits requests by them, and so does a processor that passes part of its work on to a tier.
    One connection alone can fill half of the capacity; the other half is for those that hold less.
    """

    def __init__(self, name: str, *, threads: int, capacity: int, max_wait_ms: int) -> None:
        self.name = name
        self.threads = threads
        self.capacity = capacity
        self.max_wait_ms = max_wait_ms
        self.max_wait_seconds = max_wait_ms / 1000
        self.statistics = TierStatistics()
        # Below this number of waiting requests every connection has room.
        self.half = capacity // 2
        self._share = share_of(capacity)
        self._shares: dict[object, int] = {}  # the waiting requests by connection

    def has_room(self, owner: object) -> bool:
        """Whether another request of this connection may wait."""
        waiting = self.statistics.waiting
        if waiting < self.half:
            return True
        return waiting < self.capacity and self._shares.get(owner, 0) < self._share

    def enter(self, owner: object) -> None:
        """Count a request of a connection that begins to wait."""
        self.statistics.add_waiting()
        self._shares[owner] = self._shares.get(owner, 0) + 1

    def leave(self, owner: object, waited_seconds: float) -> None:
        """Count the end of a wait."""
        self.statistics.end_waiting(waited_seconds)
        left = self._shares[owner] - 1
        if left:
            self._shares[owner] = left
        else:
            del self._shares[owner]

    def start(self, owner: object, waited_seconds: float) -> None:
        """Count a request that has a thread of a pool after its wait."""
        self.leave(owner, waited_seconds)
        self.statistics.running += 1

    def head_wait_seconds(self) -> float:
        """Return for how long the oldest request has been waiting for a thread; 0 for a tier without any."""
        return 0.0

    def refuse_full(self) -> CommandError:
        """Count a request without room, and return the refusal to answer it with."""
        self.statistics.rejected_full += 1
        waiting = self.statistics.waiting
        remark = f"[REJECTREQUEST]system busy: {waiting} requests of tier {self.name} are under way already"
        if waiting < self.capacity:
            remark += f", {self._share} or more of them from this connection"
        return CommandError(ResponseCode.SYSTEM_BUSY, remark)

    def refuse_late(self, waited_seconds: float) -> CommandError:
        """Count a request that waited longer than `max_wait_ms`, and return the refusal."""
        self.statistics.rejected_late += 1
        return CommandError(
            ResponseCode.SYSTEM_BUSY,
            f"[TIMEOUT_CLEAN_QUEUE]broker busy: waited {waited_seconds * 1000:.0f} ms in tier {self.name}, "
            f"the limit is {self.max_wait_ms} ms; {self.statistics.waiting} requests wait there",
        )


class InlineTier(BoundedTier):
    """Runs processors on the loop. Its capacity bounds the answers that its processors defer."""

    kind: Final = "inline"

    def __init__(self, name: str, *, capacity: int, max_wait_ms: int) -> None:
        super().__init__(name, threads=0, capacity=capacity, max_wait_ms=max_wait_ms)

    def stop(self) -> None:
        """Nothing to stop: the tier does not own the loop."""


class _Job:
    """Work of a pool, which does nothing once it was refused."""

    __slots__ = ("_queued", "_work", "is_refused")

    def __init__(self, work: Callable[[], None], queued: deque[float]) -> None:
        self._work = work
        self._queued = queued
        self.is_refused = False

    def __call__(self) -> None:
        if not self.is_refused:
            with suppress(IndexError):
                self._queued.popleft()  # threads take jobs in the order of their submission
            self._work()


class PoolTier(BoundedTier):
    """A bounded thread pool. Its processors run in a thread and may block; they never touch a connection."""

    kind: Final = "pool"

    def __init__(
        self,
        name: str,
        *,
        threads: int,
        capacity: int,
        max_wait_ms: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(name, threads=threads, capacity=capacity, max_wait_ms=max_wait_ms)
        self._clock = clock
        self._executor = ThreadPoolExecutor(max_workers=threads, thread_name_prefix=name)
        self._is_stopped = False
        # When each job that has no thread yet was submitted, by the clock.
        self._queued: deque[float] = deque()
        # The same for work that its owner submits when a thread is free.
        self._not_submitted: dict[object, float] = {}

    def head_wait_seconds(self) -> float:
        """Return for how long the oldest request has been waiting for a thread; from any thread."""
        now = self._clock()
        oldest = now
        with suppress(IndexError):
            oldest = min(oldest, self._queued[0])
        with suppress(RuntimeError):  # changed by the loop meanwhile
            oldest = min(oldest, next(iter(self._not_submitted.values()), now))
        return now - oldest

    def wait_begins(self, work: object) -> None:
        """Note that work waits, on the loop, to be submitted."""
        self._not_submitted[work] = self._clock()

    def wait_ends(self, work: object) -> None:
        """Note that work was submitted, or given up."""
        self._not_submitted.pop(work, None)

    def submit(self, work: Callable[[], None]) -> None:
        """Queue `work`; the caller has checked the capacity.

        Raises CommandError (SYSTEM_BUSY) after `stop`, and if a thread cannot be started.
        """
        job = _Job(work, self._queued)
        self._queued.append(self._clock())
        try:
            self._executor.submit(job)
        except RuntimeError as error:
            job.is_refused = True  # the executor may have queued it nevertheless
            with suppress(IndexError):  # a thread has taken it in the meantime
                self._queued.pop()
            cause = "is shutting down" if self._is_stopped else f"is short of threads: {error}"
            remark = f"[REJECTREQUEST]system busy: tier {self.name} {cause}"
            raise CommandError(ResponseCode.SYSTEM_BUSY, remark) from None

    def stop(self) -> None:
        """Drop queued work; work that runs ends by itself."""
        self._is_stopped = True
        self._executor.shutdown(wait=False, cancel_futures=True)


Tier = InlineTier | PoolTier
