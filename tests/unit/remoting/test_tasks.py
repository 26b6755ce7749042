"""Functions for asyncio tasks."""

from __future__ import annotations

import asyncio

import pytest

from rmq_remoting.tasks import cancel_all, finished, shielded
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


async def test_a_shielded_future_returns_its_result_and_raises_its_error() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    waiting = [asyncio.create_task(shielded(future)) for _ in range(2)]
    await loop_passes(1)
    future.set_result(7)
    assert [await each for each in waiting] == [7, 7]
    assert await shielded(future) == 7

    failed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(shielded(failed))
    await loop_passes(1)
    failed.set_exception(ValueError("an error"))
    with pytest.raises(ValueError, match="an error"):
        await task


async def test_a_shielded_future_continues_after_its_callers_cancellation_without_a_report(
    loop_errors: list[dict[str, object]],
) -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    taken: list[BaseException | None] = []
    future.add_done_callback(lambda ended: taken.append(ended.exception()))
    task = asyncio.create_task(shielded(future))
    await loop_passes(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not future.done()

    error = ValueError("an error")
    future.set_exception(error)
    await loop_passes(3)
    assert taken == [error]
    assert not loop_errors


async def test_work_is_finished_before_a_cancellation_takes_effect() -> None:
    go_on, done = asyncio.Event(), list[str]()

    async def work() -> str:
        await go_on.wait()
        done.append("work")
        return "result"

    waiting = asyncio.create_task(finished(work()))
    await loop_passes()
    for _ in range(2):
        waiting.cancel()
        await loop_passes()
    assert not waiting.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert done == ["work"]
    assert await finished(work()) == "result"


async def test_an_error_of_finished_work_is_raised() -> None:
    async def work() -> None:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        await finished(work())
