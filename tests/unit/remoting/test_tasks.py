"""Functions for asyncio tasks."""

from __future__ import annotations

import asyncio

from rmq_remoting.tasks import cancel_all
from tests.support.waiting import loop_passes


async def test_all_tasks_have_ended_after_their_cancellation() -> None:
    cleaned: list[int] = []

    async def work(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await loop_passes(3)
            cleaned.append(number)
            if number == 1:
                raise ValueError("an error while it ends")

    tasks = [asyncio.create_task(work(number)) for number in range(3)]
    await loop_passes(1)
    await cancel_all(iter(tasks))
    assert cleaned == [0, 1, 2]
    assert [task.cancelled() for task in tasks] == [True, False, True]
    assert isinstance(tasks[1].exception(), ValueError)


async def test_no_task_is_no_error() -> None:
    await cancel_all([])
