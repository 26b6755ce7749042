"""An event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rmq_client.loop_thread import LoopThread
from tests.support.waiting import until


async def test_coroutines_run_there_and_can_be_cancelled() -> None:
    thread = LoopThread("test-loop")

    async def where() -> str:
        return threading.current_thread().name

    assert await asyncio.wrap_future(thread.submit(where())) == "test-loop"
    ended = threading.Event()

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    waiting = asyncio.ensure_future(asyncio.wrap_future(thread.submit(wait())))
    await asyncio.wrap_future(thread.submit(where()))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await until(ended.is_set)
    await thread.stop()


async def test_stop_cancels_running_tasks() -> None:
    thread = LoopThread("test-loop")
    running = thread.submit(asyncio.sleep(60))
    await thread.stop()
    assert running.cancelled() or running.done()
    assert not [one for one in threading.enumerate() if one.name == "test-loop"]
    thread.signal_stop()


async def test_an_error_reaches_the_caller() -> None:
    thread = LoopThread("test-loop")

    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await asyncio.wrap_future(thread.submit(fail()))
    await thread.stop()
