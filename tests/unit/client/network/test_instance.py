"""Work of a client instance that comes during or after its stop."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from rmq_client import ClientSettings, NotRunning
from rmq_client.network.instance import ClientInstance
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until


async def _instance() -> ClientInstance:
    return await ClientInstance.acquire("127.0.0.1:1", ClientSettings())


async def _nothing() -> None:
    """Work that ends at once."""


async def test_calls_after_the_stop_are_refused() -> None:
    instance = await _instance()
    await instance.release()
    with pytest.raises(NotRunning, match="stopped") as caught:
        await instance.run(_nothing())
    assert not caught.value.is_outcome_unknown


async def test_coroutines_for_an_ended_loop_are_refused() -> None:
    instance = await _instance()
    await instance.release()
    instance._has_ended = False  # as in a thread that has checked it just before
    with pytest.raises(NotRunning, match="stopped"):
        await instance.run(_nothing())


async def test_the_outcome_of_work_interrupted_by_stop_is_unknown() -> None:
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


async def test_a_cancelled_caller_gets_cancelled_error() -> None:
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
