"""Back-pressure: two bounds, order of admission, cancelled waits."""

from __future__ import annotations

import asyncio
import random

import pytest

from rmq_client import InFlightLimits, UsageError
from rmq_client.producer.backpressure import BackPressure
from tests.support.waiting import loop_passes


async def test_messages_and_bytes_are_bounded() -> None:
    pressure = BackPressure(InFlightLimits(max_messages=3, max_bytes=100))
    assert pressure.try_acquire(60)
    assert not pressure.try_acquire(41)
    assert pressure.try_acquire(40)
    pressure.release(60)
    assert pressure.try_acquire(1)
    assert pressure.try_acquire(1)
    assert not pressure.try_acquire(1)
    assert (pressure.messages, pressure.bytes) == (3, 42)


async def test_a_message_above_the_bound_is_admitted_alone() -> None:
    pressure = BackPressure(InFlightLimits(max_messages=3, max_bytes=100))
    assert pressure.try_acquire(1000)
    assert not pressure.try_acquire(1)
    pressure.release(1000)
    assert pressure.try_acquire(1)
    assert not pressure.try_acquire(1000)


async def test_waiting_sends_are_admitted_in_order() -> None:
    pressure = BackPressure(InFlightLimits(max_messages=10, max_bytes=100))
    assert pressure.try_acquire(90)
    order: list[int] = []

    async def enter(number: int, size: int) -> None:
        await pressure.acquire(size)
        order.append(number)

    tasks = [asyncio.ensure_future(enter(number, size)) for number, size in enumerate((50, 5, 30))]
    await loop_passes()
    assert order == []
    assert not pressure.try_acquire(1), "there is room, but others wait"
    pressure.release(90)
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2]


async def test_a_cancelled_wait_admits_the_next_in_line() -> None:
    pressure = BackPressure(InFlightLimits(max_messages=10, max_bytes=100))
    assert pressure.try_acquire(60)
    large = asyncio.ensure_future(pressure.acquire(100))
    small = asyncio.ensure_future(pressure.acquire(40))
    await loop_passes()
    assert not small.done()
    large.cancel()
    await asyncio.wait([large, small])
    assert pressure.bytes == 100


async def test_a_send_cancelled_after_admission_releases_its_room() -> None:
    pressure = BackPressure(InFlightLimits(max_messages=1))
    assert pressure.try_acquire(1)
    waiting = asyncio.ensure_future(pressure.acquire(1))
    await loop_passes()
    pressure.release(1)  # admits a waiting send, which is cancelled before it runs
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert (pressure.messages, pressure.bytes) == (0, 0)


async def test_wait_idle_returns_when_nothing_is_in_flight() -> None:
    pressure = BackPressure(InFlightLimits())
    await pressure.wait_idle()
    assert pressure.try_acquire(1)
    idle = asyncio.ensure_future(pressure.wait_idle())
    await loop_passes()
    assert not idle.done()
    pressure.release(1)
    await idle


@pytest.mark.virtual_time
async def test_any_mixture_of_sends_keeps_the_bounds_and_ends_empty() -> None:
    dice = random.Random(7)
    pressure = BackPressure(InFlightLimits(max_messages=5, max_bytes=50))

    async def use() -> None:
        size = dice.randrange(1, 60)
        await pressure.acquire(size)
        try:
            assert pressure.messages <= 5
            assert pressure.bytes <= 50 or pressure.messages == 1
            await asyncio.sleep(dice.random())
        finally:
            pressure.release(size)

    tasks = [asyncio.ensure_future(use()) for _ in range(200)]
    for task in dice.sample(tasks, 80):
        asyncio.get_running_loop().call_later(dice.random() * 20, task.cancel)
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert not [one for one in outcomes if isinstance(one, AssertionError)]
    assert (pressure.messages, pressure.bytes) == (0, 0)
    await pressure.wait_idle()


def test_bounds_that_admit_nothing_are_refused() -> None:
    with pytest.raises(UsageError, match="must be at least 1"):
        InFlightLimits(max_messages=0)
