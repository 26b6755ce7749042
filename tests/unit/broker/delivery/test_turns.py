"""Turns of connections: rotation, permits, and slices of the loop."""

from __future__ import annotations

import asyncio

from rmq_broker.delivery.turns import LoopSlices, Permits
from tests.support.waiting import loop_passes


async def test_permits_go_to_owners_in_rotation() -> None:
    permits, got = Permits(1), list[str]()

    async def work(owner: str) -> None:
        await permits.acquire(owner)
        got.append(owner)
        permits.release()

    await permits.acquire("first")
    async with asyncio.TaskGroup() as tasks:
        for owner in ("a", "a", "a", "b", "b", "c"):
            tasks.create_task(work(owner))
        await loop_passes()
        assert not got
        permits.release()
    assert got == ["a", "b", "c", "a", "b", "a"]


async def test_as_many_hold_a_permit_as_there_are() -> None:
    permits = Permits(2)
    await permits.acquire("a")
    await permits.acquire("a")
    third = asyncio.create_task(permits.acquire("a"))
    await loop_passes()
    assert not third.done()
    permits.release()
    await third
    permits.release()
    permits.release()
    await permits.acquire("b")
    await permits.acquire("b")


async def test_a_cancelled_turn_loses_no_permit() -> None:
    permits = Permits(1)
    await permits.acquire("a")
    waiting, granted, last = [asyncio.create_task(permits.acquire(owner)) for owner in "bcd"]
    await loop_passes()
    waiting.cancel()
    await loop_passes()
    permits.release()
    granted.cancel()  # in the iteration in which it was granted
    await last
    assert waiting.cancelled() and granted.cancelled()
    permits.release()
    await permits.acquire("e")


async def test_one_slice_runs_in_each_iteration_of_the_loop() -> None:
    slices, iteration, ran = LoopSlices(), 0, list[tuple[int, str]]()

    async def walk(owner: str, count: int) -> None:
        for _ in range(count):
            await slices.pause(owner)
            ran.append((iteration, owner))

    walks = [asyncio.create_task(walk(*each)) for each in (("a", 3), ("a", 3), ("b", 3))]
    while not all(walk.done() for walk in walks):
        await asyncio.sleep(0)
        iteration += 1
    assert len({number for number, _ in ran}) == len(ran) == 9
    assert "".join(owner for _, owner in ran) == "abababaaa"


async def test_a_cancelled_walk_holds_up_no_other() -> None:
    slices = LoopSlices()
    cancelled = asyncio.create_task(slices.pause("a"))
    other = asyncio.create_task(slices.pause("b"))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait_for(other, 20)
    await slices.pause("c")
