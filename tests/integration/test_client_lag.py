"""Offsets and lag of all kinds of consumers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from rmq_client import (
    ClientSettings,
    ConsumerLag,
    ConsumerQueueLag,
    Message,
    MessageExt,
    MessageQueue,
    NotRunning,
    Producer,
    PullConsumer,
    SimpleConsumer,
    TopicNotFound,
    blocking,
)
from tests.support.clusters import RunningCluster, cluster_in_a_thread, running_cluster
from tests.support.push_consumers import consumer_of, put, until_assigned
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture

_QUEUES = [MessageQueue("T", "broker-a", number) for number in range(2)]
_TWO = {"broker-a": {"T": 2}}


async def _until_lag(lag: Callable[[], Awaitable[ConsumerLag]], expected: list[int]) -> ConsumerLag:
    async with asyncio.timeout(10):
        while True:
            found = await lag()
            if [one.lag for one in found.queues] == expected:
                return found
            await asyncio.sleep(0.01)


class _Gate:
    """A listener that consumes the messages of queue 0 and keeps those of queue 1 waiting."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def __call__(self, messages: list[MessageExt]) -> None:
        if messages[0].queue_id == 1:
            await self.open.wait()


@pytest.mark.parametrize("orderly", [True, False])
@pytest.mark.parametrize("broadcasting", [True, False])
async def test_push_consumers(orderly: bool, broadcasting: bool, tmp_path: Path) -> None:
    gate = _Gate()
    options = {
        "orderly": orderly,
        "broadcasting": broadcasting,
        "offsets_folder": tmp_path / "offsets",
        "consume_from": "first",
    }
    async with running_cluster(tmp_path, _TWO) as cluster:
        put(cluster, 20, queues=2)
        async with consumer_of(cluster, gate, **options) as consumer:
            await until_assigned(consumer, 2)
            lag = await _until_lag(consumer.lag, [0, 10])
            assert (lag.total, lag.by_topic()) == (10, {"T": 10})
            assert lag.queues[0].position == lag.queues[0].end == 10
            await consumer.commit()
            assert (await consumer.committed_offsets())[_QUEUES[0]] == 10
            assert await consumer.committed(_QUEUES[0]) == 10
            assert await consumer.end_offsets() == dict.fromkeys(_QUEUES, 10)
            assert await consumer.beginning_offsets() == dict.fromkeys(_QUEUES, 0)
            gate.open.set()
            await _until_lag(consumer.lag, [0, 0])
        with pytest.raises(NotRunning):
            await consumer.lag()


@pytest.mark.parametrize("orderly", [True, False])
async def test_pop_push_consumers_show_the_lag_of_the_group(orderly: bool, tmp_path: Path) -> None:
    gate = _Gate()
    async with running_cluster(tmp_path, _TWO, defaultMessageRequestMode="POP") as cluster:
        put(cluster, 20, queues=2)
        async with consumer_of(cluster, gate, client_rebalance=False, orderly=orderly) as consumer:
            await until_assigned(consumer, 1)
            lag = await consumer.lag()
            assert [one.queue for one in lag.queues] == _QUEUES
            assert await consumer.end_offsets() == dict.fromkeys(_QUEUES, 10)
            gate.open.set()
            await _until_lag(consumer.lag, [0, 0])


async def test_pull_consumers(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, _TWO) as cluster:
        put(cluster, 20, queues=2)
        async with PullConsumer(cluster.address, group="g", consume_from="first") as consumer:
            await consumer.assign(_QUEUES[:1])
            before = await consumer.lag()
            assert before == ConsumerLag((ConsumerQueueLag(_QUEUES[0], 0, None, 10),))
            count = 0
            while count < 4:
                count += len(await consumer.poll(4 - count))
            (first,) = (await consumer.lag()).queues
            assert (first.position, first.committed, first.lag) == (4, None, 6)
            await consumer.commit()
            (first,) = (await consumer.lag()).queues
            assert (first.position, first.committed, first.lag) == (4, 4, 6)
            assert await consumer.committed_offsets(_QUEUES) == {_QUEUES[0]: 4, _QUEUES[1]: None}
            assert [one.lag for one in (await consumer.lag(_QUEUES)).queues] == [6, 10]
            with pytest.raises(TopicNotFound):
                await consumer.end_offsets([MessageQueue("Unknown", "broker-a", 0)])


async def test_a_group_that_begins_at_the_end_has_no_lag_there(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, _TWO) as cluster:
        async with consumer_of(cluster, lambda messages: None, group="other"):
            pass
        put(cluster, 4, queues=2)
        async with PullConsumer(cluster.address, group="g", topics="T") as consumer:
            for queue in _QUEUES:
                await consumer.seek_to_end(queue)
            assert (await consumer.lag()).total == 0


async def test_simple_consumers_show_the_lag_of_the_group(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, _TWO) as cluster:
        put(cluster, 6, queues=2)
        async with SimpleConsumer(cluster.address, group="g", topics="T", consume_from="first") as consumer:
            assert (await consumer.lag()).total == 6
            left = 6
            while left:
                messages = await consumer.receive(6)
                left -= len(messages)
                await asyncio.gather(*(consumer.ack(message) for message in messages))
            await _until_lag(consumer.lag, [0, 0])
            assert await consumer.end_offsets() == dict.fromkeys(_QUEUES, 3)
            assert await consumer.beginning_offsets(_QUEUES[:1]) == {_QUEUES[0]: 0}


async def test_names_are_those_of_the_application(tmp_path: Path) -> None:
    settings = ClientSettings(namespace="shop")
    async with running_cluster(tmp_path, {"broker-a": {"shop%T": 1}}) as cluster:
        async with Producer(cluster.address, group="p", settings=settings) as producer:
            await producer.send(Message("T", b"x"))
        async with PullConsumer(
            cluster.address, group="g", topics="T", consume_from="first", settings=settings
        ) as consumer:
            assert await consumer.end_offsets() == {_QUEUES[0]: 1}
            assert (await consumer.lag()).by_topic() == {"T": 1}


def test_the_blocking_faces(tmp_path: Path) -> None:
    def put_all(cluster: RunningCluster) -> None:
        with blocking.Producer(cluster.address, group="p") as producer:
            for queue in _QUEUES:
                producer.send(Message("T", b"x"), queue=queue)

    with cluster_in_a_thread(tmp_path, _TWO) as cluster:
        put_all(cluster)
        kinds: list[tuple[Any, dict[str, Any]]] = [
            (blocking.PullConsumer, {"group": "pull"}),
            (blocking.SimpleConsumer, {"group": "simple"}),
            (blocking.PushConsumer, {"group": "push", "listener": lambda messages: None}),
        ]
        for kind, options in kinds:
            with kind(cluster.address, topics="T", consume_from="first", **options) as consumer:
                if kind is blocking.PushConsumer:
                    consumer.wait_ready()
                assert consumer.end_offsets() == dict.fromkeys(_QUEUES, 1)
                assert consumer.beginning_offsets() == dict.fromkeys(_QUEUES, 0)
                assert consumer.lag().total in (0, 2)
                assert set(consumer.committed_offsets()) == set(_QUEUES)
                assert consumer.committed(_QUEUES[0]) in (None, 0, 1)


def test_the_lag_is_never_negative() -> None:
    queue = _QUEUES[0]
    assert ConsumerQueueLag(queue, position=5, committed=5, end=3).lag == 0
