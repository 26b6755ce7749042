"""Background tasks: watched, restarted, cancelled."""

from __future__ import annotations

import asyncio
import logging

import pytest

from rmq_remoting.daemon.tasks import OnDeath, TaskSupervisor


class Clock:
    """Pauses that end when the test says so."""

    def __init__(self) -> None:
        self.asked = asyncio.Queue[float]()
        self._goes_on = asyncio.Semaphore(0)

    async def sleep(self, seconds: float) -> None:
        self.asked.put_nowait(seconds)
        await self._goes_on.acquire()

    async def next_pause(self) -> float:
        """Wait until somebody pauses, tell for how long, and let it go on."""
        seconds = await self.asked.get()
        self._goes_on.release()
        return seconds


class Supervised:
    """A supervisor on a clock of the test's, and what it calls fatal."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.fatal = asyncio.Queue[tuple[str, BaseException]]()
        self.supervisor = TaskSupervisor(
            lambda name, error: self.fatal.put_nowait((name, error)), sleep=self.clock.sleep
        )


async def test_a_task_that_returns_is_not_restarted() -> None:
    made = Supervised()
    done = asyncio.Event()

    async def work() -> None:
        done.set()

    made.supervisor.start("once", work)
    assert made.supervisor.names == ["once"]
    await done.wait()
    await asyncio.sleep(0)
    assert made.supervisor.names == []
    assert not made.supervisor.statistics["once"].running


async def test_a_failed_task_is_restarted_with_growing_pauses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = Supervised()
    runs = 0

    async def work() -> None:
        nonlocal runs
        runs += 1
        raise RuntimeError(f"run {runs}")

    made.supervisor.start("fragile", work)
    pauses = [await made.clock.next_pause() for _ in range(12)]
    assert pauses[:4] == [0.1, 0.2, 0.4, 0.8]
    assert max(pauses) == 30.0
    assert runs == 12
    assert made.supervisor.statistics["fragile"].failures == 12
    assert made.fatal.empty()
    assert "task failed, restarting it task=fragile" in caplog.text
    assert "run 1" in caplog.text
    await made.supervisor.stop()


async def test_a_failed_essential_task_stops_the_daemon() -> None:
    made = Supervised()
    error = RuntimeError("no disk")

    async def work() -> None:
        raise error

    made.supervisor.start("flush", work, on_death=OnDeath.STOP_DAEMON)
    assert await made.fatal.get() == ("flush", error)
    assert made.clock.asked.empty()


async def test_rounds_continue_after_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    made = Supervised()
    rounds = 0

    def action() -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 2:
            raise RuntimeError("bad round")

    made.supervisor.every("scan", 5.0, action)
    pauses = [await made.clock.next_pause() for _ in range(4)]
    assert pauses == [5.0, 5.0, 5.0, 5.0]
    assert rounds == 3
    assert made.supervisor.statistics["scan"].failures == 1
    assert "task round failed task=scan next_in_s=5.0" in caplog.text
    await made.supervisor.stop()


async def test_a_period_may_change_and_the_first_pause_may_differ() -> None:
    made = Supervised()
    period = 5.0

    async def action() -> None:
        nonlocal period
        period += 1

    made.supervisor.every("scan", lambda: period, action, first_after_seconds=0.5)
    assert [await made.clock.next_pause() for _ in range(3)] == [0.5, 6.0, 7.0]
    await made.supervisor.stop()


async def test_stop_cancels_all_tasks_and_refuses_new_ones() -> None:
    made = Supervised()
    cleaned: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("work")

    made.supervisor.start("work", work)
    made.supervisor.every("scan", 5.0, lambda: None)
    await made.clock.asked.get()
    await made.supervisor.stop()
    assert cleaned == ["work"]
    assert made.supervisor.names == []
    with pytest.raises(RuntimeError, match="the daemon is stopping"):
        made.supervisor.start("late", work)


async def test_a_task_that_does_not_end_is_abandoned(caplog: pytest.LogCaptureFixture) -> None:
    made = Supervised()
    release = asyncio.Event()
    started = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                started.set()
                await release.wait()
            except asyncio.CancelledError:
                continue

    made.supervisor.start("stubborn", stubborn)
    await started.wait()
    with caplog.at_level(logging.ERROR):
        await made.supervisor.stop(timeout_seconds=0.01)
    assert "task abandoned, not ended in time task=stubborn" in caplog.text
    release.set()
    await made.supervisor.cancel("stubborn")


async def test_one_task_can_be_cancelled() -> None:
    made = Supervised()
    made.supervisor.every("scan", 5.0, lambda: None)
    made.supervisor.every("flush", 5.0, lambda: None)
    await made.supervisor.cancel("scan")
    await made.supervisor.cancel("no such task")
    assert made.supervisor.names == ["flush"]
    await made.supervisor.stop()


async def test_a_name_is_unique() -> None:
    made = Supervised()
    made.supervisor.every("scan", 5.0, lambda: None)
    with pytest.raises(ValueError, match="'scan' is running already"):
        made.supervisor.every("scan", 5.0, lambda: None)
    await made.supervisor.stop()
