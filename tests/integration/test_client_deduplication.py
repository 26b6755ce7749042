"""Messages that are delivered more than once, and processed once."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rmq_client import (
    ClaimResult,
    ClientSettings,
    ConsumeResult,
    Deduplicator,
    MemoryDeduplicationStore,
    Message,
    MessageExt,
    Producer,
    PullConsumer,
    SimpleConsumer,
)
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.push_consumers import consumer_of
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until


async def _send(cluster: RunningCluster, *keys: str) -> None:
    async with Producer(cluster.address, group="p") as producer:
        for key in keys:
            await producer.send(Message("T", key.encode(), keys=[key]))


def _consumed_all(cluster: RunningCluster, count: int) -> bool:
    return cluster.broker.committed() == count


@pytest.mark.parametrize("orderly", [True, False])
@pytest.mark.parametrize("coroutine", [True, False])
async def test_a_listener_processes_each_order_once(orderly: bool, coroutine: bool, tmp_path: Path) -> None:
    calls: Counter[str] = Counter()

    def pay(messages: list[MessageExt]) -> ConsumeResult:
        (key,) = messages[0].keys
        calls[key] += 1
        # The first attempt at b fails, so the next delivery of b is new.
        return ConsumeResult.LATER if (key, calls[key]) == ("b", 1) else ConsumeResult.SUCCESS

    async def pay_later(messages: list[MessageExt]) -> ConsumeResult:
        await asyncio.sleep(0)
        return pay(messages)

    deduplicator = Deduplicator(by="keys")
    listener: Any = deduplicator.listener(pay_later if coroutine else pay)
    async with running_cluster(tmp_path) as cluster:
        await _send(cluster, "a", "b", "a", "c", "b", "a")
        async with consumer_of(cluster, listener, orderly=orderly, suspend_seconds=0.01):
            await until(lambda: _consumed_all(cluster, 6) and calls["b"] == 2)
        assert calls == {"a": 1, "b": 2, "c": 1}


async def test_members_that_share_a_store_share_the_work(tmp_path: Path) -> None:
    store, calls = MemoryDeduplicationStore(), Counter[str]()

    def pay(messages: list[MessageExt]) -> None:
        calls[messages[0].keys[0]] += 1

    listeners = [Deduplicator(store, by="keys").listener(pay) for _ in range(2)]
    async with running_cluster(tmp_path, {"broker-a": {"T": 4}}) as cluster:
        await _send(cluster, *[f"k{number % 10}" for number in range(80)])
        other = ClientSettings(instance_name="other")
        async with (
            consumer_of(cluster, listeners[0]),
            consumer_of(cluster, listeners[1], settings=other),
        ):
            await until(
                lambda: sum(cluster.broker.committed(queue_id=queue) or 0 for queue in range(4)) == 80
            )
        assert calls == {f"k{number}": 1 for number in range(10)}


async def test_a_simple_consumer_skips_redelivered_messages(tmp_path: Path) -> None:
    deduplicator = Deduplicator()
    async with running_cluster(tmp_path) as cluster:
        await _send(cluster, "a")
        async with SimpleConsumer(cluster.address, group="g", topics="T", consume_from="first") as consumer:
            claims: list[ClaimResult] = []
            for _ in range(2):
                (message,) = await consumer.receive(1)
                async with deduplicator.once(message) as claim:
                    claims.append(claim)
                await consumer.change_invisible_time(message, 0)  # the acknowledgement is lost
            (message,) = await consumer.receive(1)
            await consumer.ack(message)
        assert claims == [ClaimResult.NEW, ClaimResult.DONE]


async def test_a_pull_consumer_skips_what_it_reads_again(tmp_path: Path) -> None:
    deduplicator = Deduplicator(by="keys")
    async with running_cluster(tmp_path) as cluster:
        await _send(cluster, "a", "b")
        processed: list[str] = []
        for _ in range(2):  # without a commit, so the group begins at the first message again
            async with PullConsumer(cluster.address, group="g", topics="T", consume_from="first") as consumer:
                count = 0
                while count < 2:
                    for message in await consumer.poll():
                        count += 1
                        async with deduplicator.once(message) as claim:
                            if claim is ClaimResult.NEW:
                                processed += message.keys
        assert processed == ["a", "b"]
