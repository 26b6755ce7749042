"""Long work on the loop without holding it up: jobs that pause themselves, one at a time, in order.

A job is a generator that yields wherever it may be interrupted. Registering 10,000 topics takes some 20 ms of
processor time; in slices of half a millisecond a route look-up beside it waits that long at most. (A thread
is no way out: it would take turns of 5 ms with the loop on the interpreter, and route tables would need
locks.) The order makes registrations and unregistrations of one broker happen as they were sent.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError

log = logging.getLogger("rmq.namesrv.lane")

T = TypeVar("T")
Steps = Generator[None, None, T]

_SLICE_SECONDS: Final = 0.0005
_MAX_WAITING_BYTES: Final = 256 * 1024 * 1024


@dataclass(slots=True)
class LaneStatistics:
    """Plain counters of the lane, read by the metrics collector."""

    jobs: int = 0
    slices: int = 0
    busy_seconds: float = 0.0
    longest_step_seconds: float = 0.0
    rejected: int = 0


@dataclass(slots=True)
class _Job:
    steps: Steps[Any]
    size_bytes: int
    future: asyncio.Future[Any] | None = None


def run_to_end(steps: Steps[T]) -> T:
    """Run a job here and now, without pauses."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


class SerialLane:
    """Runs jobs in the order of their coming. All methods belong to the loop's thread.

    `max_waiting_bytes` bounds what the waiting jobs hold in memory; how many they are is bounded by the tier
    that their requests came through.
    """

    def __init__(
        self,
        *,
        slice_seconds: float = _SLICE_SECONDS,
        max_waiting_bytes: int = _MAX_WAITING_BYTES,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.statistics = LaneStatistics()
        self._slice_seconds = slice_seconds
        self._max_waiting_bytes = max_waiting_bytes
        self._clock = clock
        self._jobs: deque[_Job] = deque()
        self._waiting_bytes = 0

    @property
    def depth(self) -> int:
        """Jobs that have not ended yet."""
        return len(self._jobs)

    def run(self, steps: Steps[T], size_bytes: int = 0) -> T | asyncio.Future[T]:
        """The result of a job if one slice is enough for it, else a promise of it.

        `size_bytes` is what the job holds in memory. Raises what the job raises, and CommandError
        (SYSTEM_BUSY) where too much waits already.
        """
        if self._waiting_bytes + size_bytes > self._max_waiting_bytes and self._jobs:
            self.statistics.rejected += 1
            steps.close()
            raise CommandError(
                ResponseCode.SYSTEM_BUSY,
                f"{len(self._jobs)} registrations of {self._waiting_bytes} bytes wait already: try again",
            )
        self.statistics.jobs += 1
        job = _Job(steps, size_bytes)
        if not self._jobs:
            ended, result = self._slice(job)
            if ended:
                return result  # type: ignore[no-any-return]
        loop = asyncio.get_running_loop()
        job.future = loop.create_future()
        self._jobs.append(job)
        self._waiting_bytes += size_bytes
        if len(self._jobs) == 1:
            loop.call_soon(self._go_on)
        return job.future

    def submit(self, what: str, steps: Steps[object]) -> None:
        """Run a job that nobody waits for; an error ends in the log."""
        try:
            outcome = self.run(steps)
        except Exception:
            log.exception("%s failed", what)
            return
        if isinstance(outcome, asyncio.Future):
            outcome.add_done_callback(lambda ended: _log_failure(what, ended))

    def stop(self) -> None:
        """Give up what has not ended."""
        while self._jobs:
            job = self._jobs.popleft()
            job.steps.close()
            if job.future is not None:
                job.future.cancel()
        self._waiting_bytes = 0

    def _go_on(self) -> None:
        """One slice of the first job; the loop sees to its connections before the next one."""
        if not self._jobs:
            return
        job = self._jobs[0]
        future = job.future
        assert future is not None
        ended, result = False, None
        try:
            ended, result = self._slice(job)
        except Exception as error:
            ended = True
            if not future.cancelled():
                future.set_exception(error)
        if ended:
            self._jobs.popleft()
            self._waiting_bytes -= job.size_bytes
            if not future.done():
                future.set_result(result)
        if self._jobs:
            asyncio.get_running_loop().call_soon(self._go_on)

    def _slice(self, job: _Job) -> tuple[bool, Any]:
        """Whether the job has ended, and its result."""
        clock, steps, statistics = self._clock, job.steps, self.statistics
        statistics.slices += 1
        began = now = clock()
        due = began + self._slice_seconds
        try:
            while now < due:
                before = now
                next(steps)
                now = clock()
                statistics.longest_step_seconds = max(statistics.longest_step_seconds, now - before)
        except StopIteration as end:
            return True, end.value
        finally:
            statistics.busy_seconds += clock() - began
        return False, None


def _log_failure(what: str, ended: asyncio.Future[Any]) -> None:
    if not ended.cancelled() and (error := ended.exception()) is not None:
        log.error("%s failed", what, exc_info=error)
