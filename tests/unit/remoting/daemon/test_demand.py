"""A periodic task without work sleeps until work comes."""

from __future__ import annotations

import asyncio

from rmq_remoting.daemon.demand import Demand
from rmq_remoting.daemon.tasks import TaskSupervisor


class Work:
    """Pieces of work, and the task that does them."""

    def __init__(self) -> None:
        self.pieces = 0
        self.rounds = 0
        self.pauses = 0
        self.demand = Demand(lambda: self.pieces > 0)

    def add(self) -> None:
        self.pieces += 1
        self.demand.arise()

    def do(self) -> None:
        self.pieces -= 1
        self.rounds += 1

    async def sleep(self, seconds: float) -> None:
        self.pauses += 1
        await asyncio.sleep(0)

    def start(self) -> TaskSupervisor:
        supervisor = TaskSupervisor(lambda name, error: None, sleep=self.sleep)
        supervisor.every("work", 1.0, self.do, demand=self.demand)
        return supervisor


async def _some_iterations() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_without_work_there_is_no_round_and_no_pause() -> None:
    work = Work()
    supervisor = work.start()
    await _some_iterations()
    assert (work.rounds, work.pauses) == (0, 0)
    for rounds in (1, 2):
        work.add()
        await _some_iterations()
        assert (work.rounds, work.pauses) == (rounds, rounds)
    await supervisor.stop()


async def test_work_that_came_before_the_task() -> None:
    work = Work()
    work.add()
    work.add()
    supervisor = work.start()
    await _some_iterations()
    assert work.rounds == 2
    await supervisor.stop()


async def test_a_task_that_was_cancelled_while_it_slept_can_start_again() -> None:
    work = Work()
    supervisor = work.start()
    await _some_iterations()
    await supervisor.cancel("work")
    work.add()
    supervisor.every("work", 1.0, work.do, demand=work.demand)
    await _some_iterations()
    work.add()
    await _some_iterations()
    assert work.rounds == 2
    await supervisor.stop()


async def test_work_that_was_done_by_others_is_no_round() -> None:
    work = Work()
    supervisor = work.start()
    await _some_iterations()
    work.add()
    work.pieces = 0
    await _some_iterations()
    assert work.rounds == 0
    await supervisor.stop()
