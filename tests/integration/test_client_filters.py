"""SQL92 expressions: every consumer with a broker of ours, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_client import (
    BrokerError,
    Message,
    MessageExt,
    Producer,
    PullConsumer,
    PushConsumer,
    SimpleConsumer,
    Sql,
)
from tests.support.clusters import running_cluster
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until

_WANTED = Sql("amount > 5 AND region = 'eu'")
_BODIES = [b"6", b"7", b"8", b"9"]


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    """Yield the name server of a broker that filters by properties; amounts 0 to 9 in two regions are
    sent.
    """
    async with running_cluster(tmp_path, {"broker-a": {"T": 2}}, enablePropertyFilter=True) as cluster:
        async with Producer(cluster.address, group="p") as producer:
            for region in ("eu", "us"):
                for amount in range(10):
                    properties = {"amount": str(amount), "region": region}
                    await producer.send(Message("T", b"%d" % amount, properties=properties))
        yield cluster.address


@pytest.mark.parametrize("client_rebalance", [True, False])
async def test_push(address: str, client_rebalance: bool) -> None:
    got: list[bytes] = []

    async def listen(messages: list[MessageExt]) -> None:
        got.extend(message.body for message in messages)

    async with PushConsumer(
        address,
        group="g",
        topics={"T": _WANTED},
        listener=listen,
        consume_from="first",
        client_rebalance=client_rebalance,
    ):
        await until(lambda: len(got) >= 4)
    assert sorted(got) == _BODIES


async def test_pull(address: str) -> None:
    async with PullConsumer(address, group="g", consume_from="first") as consumer:
        await consumer.assign(await consumer.queues("T"), _WANTED)
        got = [message async for message in _first(consumer, 4)]
        assert sorted(message.body for message in got) == _BODIES
        assert await consumer.poll(timeout_seconds=0.05) == []
        # Another expression from here on.
        await consumer.assign(await consumer.queues("T"), Sql("amount = 3"))
        for queue in consumer.assigned_queues():
            await consumer.seek_to_beginning(queue)
        got = [message async for message in _first(consumer, 2)]
        assert [message.body for message in got] == [b"3", b"3"]


async def _first(consumer: PullConsumer, count: int) -> AsyncIterator[MessageExt]:
    async with asyncio.timeout(10):
        for _ in range(count):
            for message in await consumer.poll(max_messages=1):
                yield message


async def test_simple(address: str) -> None:
    got: list[bytes] = []
    async with SimpleConsumer(address, group="g", topics={"T": _WANTED}, consume_from="first") as consumer:
        async with asyncio.timeout(10):
            while len(got) < 4:
                for message in await consumer.receive(timeout_seconds=1):
                    got.append(message.body)
                    await consumer.ack(message)
    assert sorted(got) == _BODIES


async def test_a_wrong_expression_raises_with_its_position(address: str) -> None:
    wrong = Sql("amount LIKE 5")

    async def listen(messages: list[MessageExt]) -> None:
        """Never called."""

    for consumer in (
        PushConsumer(address, group="g", topics={"T": wrong}, listener=listen),
        SimpleConsumer(address, group="g", topics={"T": wrong}),
    ):
        with pytest.raises(BrokerError, match="character 8: LIKE"):
            await consumer.start()
    async with PullConsumer(address, group="g") as reader:
        with pytest.raises(BrokerError, match="character 8: LIKE"):
            await reader.assign(await reader.queues("T"), wrong)
        with pytest.raises(BrokerError, match="character 8: LIKE"):
            await reader.subscribe("T", wrong)
        await reader.subscribe("T", _WANTED)
