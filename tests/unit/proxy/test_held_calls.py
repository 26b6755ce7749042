"""Calls that wait for brokers: results, errors, cancelled callers, and the release of all."""

from __future__ import annotations

import asyncio

import pytest

from rmq_proxy.held_calls import HeldCalls
from tests.support.waiting import loop_passes


@pytest.fixture
def held() -> HeldCalls:
    return HeldCalls()


async def _after(event: asyncio.Event, error: Exception | None = None) -> str:
    await event.wait()
    if error is not None:
        raise error
    return "result"


async def test_a_call_gets_result_or_error(held: HeldCalls) -> None:
    event = asyncio.Event()
    event.set()
    assert await held.wait(asyncio.create_task(_after(event)), "nothing") == "result"
    with pytest.raises(ValueError, match="bad"):
        await held.wait(asyncio.create_task(_after(event, ValueError("bad"))), "nothing")
    assert held.count == 0


@pytest.mark.parametrize("error", [None, ValueError("after the release")])
async def test_a_release_ends_all_waits_and_no_work(held: HeldCalls, error: Exception | None) -> None:
    event = asyncio.Event()
    work = asyncio.create_task(_after(event, error))
    waiting = [asyncio.create_task(held.wait(work, str(number))) for number in range(2)]
    await loop_passes(2)
    assert held.count == 2
    held.release()
    assert await asyncio.gather(*waiting) == ["0", "1"]
    assert await held.wait(work, "2") == "2", "a later call waits"
    assert not work.done()
    event.set()
    await asyncio.wait([work])
    assert held.count == 0


async def test_work_outlives_a_cancelled_caller(held: HeldCalls) -> None:
    event = asyncio.Event()
    work = asyncio.create_task(_after(event))
    caller = asyncio.create_task(held.wait(work, "nothing"))
    await loop_passes(2)
    caller.cancel()
    await asyncio.wait([caller])
    event.set()
    assert await work == "result"
