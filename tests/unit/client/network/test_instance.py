"""What an instance does with work that comes as it ends, or after it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from rmq_client import ClientSettings, NotRunning
from rmq_client.network.instance import ClientInstance
from tests.support.waiting import until
from tests.unit.client.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture


async def _instance() -> ClientInstance:
    return await ClientInstance.acquire("127.0.0.1:1", ClientSettings())


async def _nothing() -> None:
    """Work that is done at once."""


async def test_work_after_the_end_is_refused() -> None:
    instance = await _instance()
    await instance.release()
    with pytest.raises(NotRunning, match="stopped") as caught:
        await instance.run(_nothing())
    assert not caught.value.is_outcome_unknown


async def test_work_for_a_loop_that_has_ended_is_refused() -> None:
    instance = await _instance()
    await instance.release()
    instance._has_ended = False  # as for a thread that has looked at it just before
    with pytest.raises(NotRunning, match="stopped"):
        await instance.run(_nothing())


async def test_work_that_the_end_cuts_off_may_have_been_done() -> None:
    instance = await _instance()
    began: list[None] = []

    async def work() -> None:
        began.append(None)
        await asyncio.sleep(60)

    working = asyncio.ensure_future(instance.run(work()))
    await until(lambda: began)
    await instance.release()
    with pytest.raises(NotRunning, match="stopped") as caught:
        await working
    assert caught.value.is_outcome_unknown


async def test_who_cancels_its_own_work_sees_that() -> None:
    instance = await _instance()
    ended: list[None] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(None)

    working = asyncio.ensure_future(instance.run(work()))
    await asyncio.sleep(0.05)
    working.cancel()
    with suppress(asyncio.CancelledError):
        await working
    assert working.cancelled()
    await until(lambda: ended)
    await instance.release()
