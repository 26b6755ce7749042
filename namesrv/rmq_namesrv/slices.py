"""Long jobs on the loop without blocking it: cooperative, one at a time, in order.

A job is a generator that yields at each point where it may be interrupted. The registration of 10,000 topics
takes about 20 ms of CPU time; with slices of half a millisecond a route request waits for it no longer than
that. A thread would be no better: it would alternate with the loop every 5 ms, and the route tables would
need locks. Since jobs run in order, registrations and unregistrations of a broker take effect in the order of
their requests.
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
    """Run a job at once, without pauses."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


class SerialLane:
    """Runs jobs in the order of their arrival. All methods belong to the loop's thread.

    `max_waiting_bytes` bounds the memory of waiting jobs; the tier of their requests bounds their number.
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
        """Run a job; return its result if one slice is enough for it, else a future of the result.

        `size_bytes` is the memory that the job holds. Raises the job's own errors, and CommandError
        (SYSTEM_BUSY) if too many bytes wait.
        """
        if self._waiting_bytes + size_bytes > self._max_waiting_bytes and self._jobs:
            self.statistics.rejected += 1
            steps.close()
            raise CommandError(
                ResponseCode.SYSTEM_BUSY,
                f"{len(self._jobs)} registrations of {self._waiting_bytes} bytes wait already, the limit is "
                f"{self._max_waiting_bytes} bytes; retry",
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
            loop.call_soon(self._run_slice)
        return job.future

    def submit(self, name: str, steps: Steps[object]) -> None:
        """Run a job whose result nobody waits for; its failure is logged."""
        try:
            outcome = self.run(steps)
        except Exception:
            log.exception("job failed job=%s", name)
            return
        if isinstance(outcome, asyncio.Future):
            outcome.add_done_callback(lambda ended: _log_failure(name, ended))

    def stop(self) -> None:
        """Cancel all jobs that have not ended."""
        while self._jobs:
            job = self._jobs.popleft()
            job.steps.close()
            if job.future is not None:
                job.future.cancel()
        self._waiting_bytes = 0

    def _run_slice(self) -> None:
        """Run one slice of the first job; the loop serves its connections before the next slice."""
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
            asyncio.get_running_loop().call_soon(self._run_slice)

    def _slice(self, job: _Job) -> tuple[bool, Any]:
        """Run one slice; return whether the job has ended, and its result."""
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


def _log_failure(name: str, ended: asyncio.Future[Any]) -> None:
    if not ended.cancelled() and (error := ended.exception()) is not None:
        log.error("job failed job=%s", name, exc_info=error)
