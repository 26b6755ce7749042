"""Jobs in slices: one at a time, in order, with pauses for other work."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rmq_namesrv.slices import SerialLane, Steps, run_to_end
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError
from tests.support.waiting import loop_passes


class StepClock:
    """Each look at it finds one more step passed."""

    def __init__(self, step_seconds: float) -> None:
        self.step_seconds = step_seconds
        self.now = 0.0

    def __call__(self) -> float:
        self.now += self.step_seconds
        return self.now


def counting(steps: int, done: list[str] | None = None, name: str = "") -> Steps[int]:
    for _ in range(steps):
        yield
    if done is not None:
        done.append(name)
    return steps


def failing(steps: int) -> Steps[int]:
    yield from counting(steps)
    raise CommandError(ResponseCode.SYSTEM_ERROR, "no")


def lane(**options: Any) -> SerialLane:
    """A lane whose slices are four steps long."""
    return SerialLane(slice_seconds=0.004, clock=StepClock(0.001), **options)


def test_a_job_can_be_run_without_pauses() -> None:
    assert run_to_end(counting(5)) == 5


async def test_a_short_job_ends_at_once() -> None:
    short = lane()
    assert short.run(counting(2)) == 2
    assert short.depth == 0


async def test_a_long_job_returns_a_future() -> None:
    long = lane()
    promise = long.run(counting(10))
    assert isinstance(promise, asyncio.Future)
    assert long.depth == 1
    assert await promise == 10
    assert long.depth == 0
    assert long.statistics.slices > 2


async def test_other_work_runs_between_two_slices() -> None:
    log: list[str] = []
    busy = lane()
    promise = busy.run(counting(20, log, "job"))
    assert isinstance(promise, asyncio.Future)
    for _ in range(3):
        await asyncio.sleep(0)
        log.append("other")
    await promise
    assert log == ["other", "other", "other", "job"]


async def test_jobs_end_in_the_order_of_their_arrival() -> None:
    done: list[str] = []
    busy = lane()
    jobs = [busy.run(counting(9, done, "long")), busy.run(counting(0, done, "short"))]
    assert done == []
    for job in jobs:
        assert isinstance(job, asyncio.Future)
        await job
    assert done == ["long", "short"]


async def test_an_error_is_raised_at_once_or_by_the_future() -> None:
    busy = lane()
    with pytest.raises(CommandError):
        busy.run(failing(1))
    promise = busy.run(failing(9))
    behind = busy.run(counting(1))
    assert isinstance(promise, asyncio.Future)
    assert isinstance(behind, asyncio.Future)
    with pytest.raises(CommandError):
        await promise
    assert await behind == 1


async def test_too_many_waiting_bytes_are_refused() -> None:
    busy = lane(max_waiting_bytes=100)
    first = busy.run(counting(9), 90)
    assert isinstance(first, asyncio.Future)
    with pytest.raises(CommandError) as refused:
        busy.run(counting(9), 20)
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    assert busy.statistics.rejected == 1
    await first
    alone = busy.run(counting(9), 200)
    assert isinstance(alone, asyncio.Future)
    assert await alone == 9, "one that is too large by itself runs when it is alone"


async def test_a_failure_of_a_submitted_job_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    busy = lane()
    busy.submit("sweeping", failing(1))
    busy.submit("sweeping", failing(9))
    await loop_passes(9)
    assert [record.message for record in caplog.records] == ["job failed job=sweeping"] * 2


async def test_a_stop_cancels_waiting_jobs() -> None:
    busy = lane()
    jobs = [busy.run(counting(9)), busy.run(counting(9))]
    busy.stop()
    await loop_passes()
    assert all(isinstance(job, asyncio.Future) and job.cancelled() for job in jobs)
    assert busy.depth == 0


async def test_a_cancelled_future_does_not_stop_the_lane() -> None:
    busy = lane()
    unwanted, wanted = busy.run(counting(9)), busy.run(counting(9))
    assert isinstance(unwanted, asyncio.Future)
    assert isinstance(wanted, asyncio.Future)
    unwanted.cancel()
    assert await wanted == 9
