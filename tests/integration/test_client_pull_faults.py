"""The pull consumer against brokers in memory: refused and late answers, and positions outside of a queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rmq_client import (
    BrokerError,
    ConsumerTiming,
    MessageExt,
    MessageQueue,
    NotRunning,
    Producer,
    PullConsumer,
    UsageError,
)
from rmq_remoting.codes import RequestCode, ResponseCode
from tests.support.fake_cluster import FakeCluster, Fault
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until

_Q0 = MessageQueue("T", "broker-a", 0)
_Q1 = MessageQueue("T", "broker-a", 1)
_QUICK = ConsumerTiming(
    rebalance_seconds=1.0, rebalance_again_seconds=0.02, takeover_seconds=0.05, commit_seconds=0.0
)


@asynccontextmanager
async def _reader(cluster: FakeCluster, **options: Any) -> AsyncIterator[PullConsumer]:
    async with PullConsumer(cluster.address, **{"group": "g", "consume_from": "first", **options}) as reader:
        yield reader


async def _read(reader: PullConsumer, count: int) -> list[MessageExt]:
    messages: list[MessageExt] = []
    async with asyncio.timeout(10):
        while len(messages) < count:
            messages += await reader.poll()
    return messages


def _put(cluster: FakeCluster, count: int) -> None:
    for number in range(count):
        cluster.broker.put("T", b"%03d" % number)


def _tasks() -> list[str]:
    names = [task.get_name() for task in asyncio.all_tasks()]
    return [name for name in names if name.startswith(("rmq fetch", "rmq share"))]


async def test_an_illegal_offset_continues_at_a_valid_one() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster, _reader(cluster) as reader:
        cluster.broker.queues["T", 0].base = 10
        _put(cluster, 5)
        cluster.broker.offsets["g", "T", 0] = 3
        await reader.assign([_Q0])
        assert (await reader.poll())[0].queue_offset == 10
        await reader.seek(_Q0, 1000)
        await until(lambda: cluster.broker.requests(RequestCode.PULL_MESSAGE))
        async with asyncio.timeout(20):
            while await reader.position(_Q0) != 15:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_failures_raise_once_and_reading_continues() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster, _reader(cluster) as reader:
        _put(cluster, 1)
        cluster.broker.order(
            RequestCode.PULL_MESSAGE,
            Fault(code=ResponseCode.NO_PERMISSION, remark="not for you"),
        )
        await reader.assign([_Q0])
        with pytest.raises(BrokerError, match="not for you"):
            await reader.poll()
        assert len(await reader.poll()) == 1


async def test_busy_brokers_are_retried_at_once() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster, _reader(cluster) as reader:
        _put(cluster, 1)
        cluster.broker.order(RequestCode.PULL_MESSAGE, Fault(code=ResponseCode.SYSTEM_BUSY))
        await reader.assign([_Q0])
        assert len(await reader.poll(timeout_seconds=0.9)) == 1


async def test_a_seek_interrupted_by_stop() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="p"),  # keeps the connections
        _reader(cluster) as reader,
    ):
        await reader.assign([_Q0])
        cluster.broker.order(RequestCode.GET_MAX_OFFSET, Fault(delay_seconds=0.2))
        seeking = asyncio.ensure_future(reader.seek_to_end(_Q0))
        await until(lambda: cluster.broker.requests(RequestCode.GET_MAX_OFFSET))
        await reader.stop()
        with pytest.raises(NotRunning):
            await seeking
        assert _tasks() == []


async def test_an_assignment_interrupted_by_stop() -> None:
    async with FakeCluster({"broker-a": {"T": 2}}) as cluster, _reader(cluster) as reader:
        await reader.assign([_Q0])
        before = len(cluster.broker.requests(RequestCode.HEART_BEAT))
        cluster.broker.order(RequestCode.HEART_BEAT, Fault(delay_seconds=0.2))
        assigning = asyncio.ensure_future(reader.assign([_Q0, _Q1], "a"))
        await until(lambda: len(cluster.broker.requests(RequestCode.HEART_BEAT)) > before)
        await reader.stop()
        with pytest.raises(NotRunning):
            await assigning
        assert _tasks() == []


async def test_a_cancelled_reassignment_completes() -> None:
    async with FakeCluster({"broker-a": {"T": 4}}) as cluster:
        async with _reader(cluster, auto_commit=True, timing=_QUICK) as reader:
            _put(cluster, 10)
            await reader.subscribe("T")
            await _read(reader, 10)
            before = len(cluster.broker.requests(RequestCode.UPDATE_CONSUMER_OFFSET))
            cluster.broker.order(RequestCode.UPDATE_CONSUMER_OFFSET, *[Fault(delay_seconds=0.2)] * 4)
            leaving = asyncio.ensure_future(reader.unsubscribe("T"))
            await until(lambda: len(cluster.broker.requests(RequestCode.UPDATE_CONSUMER_OFFSET)) > before)
            leaving.cancel()
            await asyncio.wait([leaving])
            assert reader.assigned_queues() == []
        assert _tasks() == []


async def test_failed_commits_are_retried() -> None:
    async with FakeCluster({"broker-a": {"T": 4}}) as cluster:
        async with _reader(cluster, auto_commit=True, timing=_QUICK) as reader:
            cluster.broker.order(RequestCode.UPDATE_CONSUMER_OFFSET, Fault(code=1))
            _put(cluster, 4)
            await reader.assign([_Q0])
            await _read(reader, 4)
            await reader.poll(timeout_seconds=0)
        assert cluster.broker.offsets["g", "T", 0] == 4


async def test_a_reader_belongs_to_one_loop() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster, _reader(cluster, topics="T") as reader:
        _put(cluster, 1)

        def elsewhere() -> None:
            for call in (reader.poll, reader.commit, reader.lag):
                with pytest.raises(UsageError, match="of group g belongs to another event loop"):
                    asyncio.run(call())

        await asyncio.to_thread(elsewhere)
        assert len(await reader.poll()) == 1


async def test_a_reader_without_anything_to_read_says_so() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster, _reader(cluster) as reader:
        with pytest.raises(UsageError, match="consumer g reads nothing: name topics with topics="):
            await reader.poll()
        await reader.assign([])
        assert await reader.poll(timeout_seconds=0) == []
