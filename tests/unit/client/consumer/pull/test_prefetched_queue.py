"""Prefetching of one queue, from a script: where it continues, and when it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rmq_client import ClientError, FlowControl, MessageExt, MessageQueue, NotRunning
from rmq_client.consumer.pull.prefetched_queue import PrefetchedQueue
from rmq_client.consumer.requests.pull_client import PullResult
from rmq_client.pull_status import PullStatus
from tests.support.waiting import loop_passes, until

_QUEUE = MessageQueue("T", "b", 0)


class _Source:
    """Answers pulls from a script, and records their offsets. After the script, pulls hang."""

    def __init__(self, *script: PullResult | Exception) -> None:
        self.script = list(script)
        self.offsets: list[int] = []
        self.more = asyncio.Event()
        self.moved: list[MessageQueue] = []

    async def first_offset(self, queue: MessageQueue) -> int:
        return 7

    async def pull(self, queue: MessageQueue, offset: int) -> PullResult:
        self.offsets.append(offset)
        while not self.script:
            self.more.clear()
            await self.more.wait()
        outcome = self.script.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def answer(self, *outcomes: PullResult | Exception) -> None:
        self.script += outcomes
        self.more.set()


@asynccontextmanager
async def _fetched(source: _Source) -> AsyncIterator[PrefetchedQueue]:
    fetched = PrefetchedQueue(
        _QUEUE, source, FlowControl, lambda one: None, lambda one: source.moved.append(one.queue)
    )
    fetched.start(None)
    yield fetched
    await fetched.stop()


def _found(*offsets: int) -> PullResult:
    messages = [MessageExt("T", b"x" * 10, queue_offset=offset) for offset in offsets]
    return PullResult(PullStatus.FOUND, max(offsets) + 1, 0, 100, messages)


def _illegal(next_offset: int, min_offset: int = 0) -> PullResult:
    return PullResult(PullStatus.OFFSET_ILLEGAL, next_offset, min_offset, 100, [])


@pytest.mark.parametrize("goal", [0, 5, 10, 50])
async def test_a_reset_drops_prefetched_messages(goal: int) -> None:
    source = _Source(_found(7, 8, 9))
    async with _fetched(source) as fetched:
        await until(lambda: source.offsets == [7, 10])
        fetched.take(1)
        source.answer(_illegal(goal))
        await until(lambda: source.offsets == [7, 10, goal])
        assert (len(fetched), fetched.position, source.moved) == (0, goal, [_QUEUE])
        source.answer(_found(goal))
        await until(lambda: len(fetched))
        assert [message.queue_offset for message in fetched.take(9)] == [goal]


async def test_prefetched_messages_survive_a_deletion() -> None:
    source = _Source(_found(7, 8, 9))
    async with _fetched(source) as fetched:
        await until(lambda: source.offsets == [7, 10])
        fetched.take(1)
        source.answer(_illegal(50, min_offset=50))
        await until(lambda: source.offsets == [7, 10, 50])
        assert (len(fetched), fetched.position, source.moved) == (2, 8, [])
        assert [message.queue_offset for message in fetched.take(9)] == [8, 9]
        assert fetched.position == 50


async def test_a_stopped_queue_is_never_fetched_again() -> None:
    source = _Source()
    async with _fetched(source) as fetched:
        await loop_passes()
        restarting = asyncio.ensure_future(fetched.restart(20))
        await fetched.stop()
        await restarting
        await fetched.restart(30)
        await loop_passes()
        assert source.offsets == [7]
        assert not [task for task in asyncio.all_tasks() if "rmq fetch" in task.get_name()]


async def test_the_last_of_two_seeks_wins() -> None:
    source = _Source()
    async with _fetched(source) as fetched:
        await loop_passes()
        await asyncio.gather(fetched.restart(20), fetched.restart(30))
        await until(lambda: source.offsets == [7, 30])
        assert len([task for task in asyncio.all_tasks() if "rmq fetch" in task.get_name()]) == 1


async def test_fetching_continues_after_a_cancelled_seek() -> None:
    source = _Source()
    async with _fetched(source) as fetched:
        await loop_passes()
        moving = asyncio.ensure_future(fetched.restart(20))
        await asyncio.sleep(0)
        moving.cancel()
        await asyncio.wait([moving])
        await until(lambda: source.offsets == [7, 20])


@pytest.mark.virtual_time
async def test_fetching_ends_with_the_consumer() -> None:
    source = _Source(NotRunning("stopped"))
    async with _fetched(source) as fetched:
        await asyncio.sleep(60)
        assert source.offsets == [7]
        assert isinstance(fetched.failure, NotRunning)


@pytest.mark.virtual_time
async def test_an_unexpected_error_is_reported_and_fetching_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = _Source(OverflowError("too big"), _found(7))
    async with _fetched(source) as fetched:
        with caplog.at_level(logging.CRITICAL):
            await until(lambda: fetched.failure is not None)
        assert isinstance(fetched.failure, ClientError)
        assert isinstance(fetched.failure.__cause__, OverflowError)
        await until(lambda: len(fetched) == 1)
        assert fetched.failure is None
