"""Our consumers that pop with Apache's own broker, and the same with ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rmq_client import (
    ConsumeContext,
    ConsumeResult,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PushConsumer,
    ReceiptExpired,
    SimpleConsumer,
)
from rmq_remoting.bodies.assignment import MessageRequestMode, SetMessageRequestModeRequestBody
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from tests.interop.clusters import Cluster
from tests.support.pop_requests import polling_count, polling_info
from tests.support.raw_client import raw_client
from tests.support.waiting import until
from tests.unit.client.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture

_WAIT_SECONDS = 30.0
_LONG_SECONDS = 60.0
_SHORT_SECONDS = 1.0


@asynccontextmanager
async def _consumer(
    address: str, topic: str, expression: str = "*", **options: Any
) -> AsyncIterator[SimpleConsumer]:
    options = {
        "group": f"g-{topic}",
        "subscriptions": {topic: expression},
        "consume_from": "first",
        "invisible_seconds": _LONG_SECONDS,
        **options,
    }
    async with SimpleConsumer(address, **options) as consumer:
        yield consumer


async def _send(address: str, topic: str, *bodies: bytes, tags: str | None = None) -> None:
    async with Producer(address, group="p") as producer:
        for body in bodies:
            await producer.send(Message(topic, body, tags=tags))


async def _receive(consumer: SimpleConsumer, count: int, **options: Any) -> list[MessageExt]:
    messages: list[MessageExt] = []
    async with asyncio.timeout(_WAIT_SECONDS):
        while len(messages) < count:
            messages += await consumer.receive(32, await_seconds=5, **options)
    return messages


async def test_what_is_acknowledged_is_done_with(cluster: Cluster, topic: str) -> None:
    address = cluster[0].address
    bodies = [b"%d" % number for number in range(40)]
    await _send(address, topic, *bodies)
    async with _consumer(address, topic) as consumer:
        messages = await _receive(consumer, len(bodies))
        assert sorted(message.body for message in messages) == sorted(bodies)
        assert {message.delivery_attempt for message in messages} == {1}
        assert {message.topic for message in messages} == {topic}
        await asyncio.gather(*(consumer.ack(message) for message in messages))
        assert await consumer.receive(32, await_seconds=0.5) == []


async def test_what_is_not_acknowledged_comes_again(cluster: Cluster, topic: str) -> None:
    address = cluster[0].address
    await _send(address, topic, b"one")
    async with _consumer(address, topic) as consumer:
        (first,) = await _receive(consumer, 1, invisible_seconds=_SHORT_SECONDS)
        (again,) = await _receive(consumer, 1)
        assert (again.body, again.topic, again.delivery_attempt) == (b"one", topic, 2)
        assert again.receipt_handle != first.receipt_handle
        with pytest.raises(ReceiptExpired):
            await consumer.ack(first)
        await consumer.ack(again)


async def test_a_message_is_kept_for_longer_or_given_back(cluster: Cluster, topic: str) -> None:
    address = cluster[0].address
    await _send(address, topic, b"one")
    async with _consumer(address, topic) as consumer:
        (message,) = await _receive(consumer, 1, invisible_seconds=5)
        old = message.receipt_handle
        await consumer.change_invisible_duration(message, _LONG_SECONDS)
        assert message.receipt_handle != old
        await consumer.change_invisible_duration(message, 0)
        (again,) = await _receive(consumer, 1)
        assert again.delivery_attempt == 2
        await consumer.ack(again)


async def test_who_waits_gets_what_comes(cluster: Cluster, topic: str) -> None:
    address, port = cluster[0].address, cluster[1].port
    async with _consumer(address, topic, "paid") as consumer:
        waiting = asyncio.ensure_future(consumer.receive(8, await_seconds=_WAIT_SECONDS))
        async with raw_client(port) as client, asyncio.timeout(_WAIT_SECONDS):
            asked = polling_info(topic, f"g-{topic}")
            while polling_count(await client.ask(asked)) == 0:  # noqa: ASYNC110  # another process holds it
                await asyncio.sleep(0.02)
        await _send(address, topic, b"other", tags="sent")
        await _send(address, topic, b"mine", tags="paid")
        (message,) = await waiting
        assert message.body == b"mine"
        await consumer.ack(message)


async def test_what_was_not_handed_out_goes_back(cluster: Cluster, topic: str) -> None:
    address = cluster[0].address
    await _send(address, topic, *(b"%d" % number for number in range(20)))
    done = []
    async with _consumer(address, topic) as consumer:
        async for message in consumer:
            done.append(message.body)
            await consumer.ack(message)
            if len(done) == 3:
                break
    async with _consumer(address, topic) as consumer:
        rest = await _receive(consumer, 17)
        assert sorted([*done, *(message.body for message in rest)], key=int) == [b"%d" % n for n in range(20)]
        await asyncio.gather(*(consumer.ack(message) for message in rest))


async def test_a_push_consumer_pops(cluster: Cluster, topic: str) -> None:
    namesrv, broker = cluster
    group = f"g-{topic}"
    mode = SetMessageRequestModeRequestBody(consumer_group=group, topic=topic, mode=MessageRequestMode.POP)
    async with raw_client(broker.port) as client:
        answer = await client.ask(
            RemotingCommand.request(RequestCode.SET_MESSAGE_REQUEST_MODE, body=mode.encode())
        )
        assert answer.code == ResponseCode.SUCCESS
    got: list[tuple[bytes, int]] = []

    async def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        (message,) = messages
        got.append((message.body, message.delivery_attempt))
        context.delay_level = 1
        is_bad = message.body == b"7" and message.delivery_attempt == 1
        return ConsumeResult.LATER if is_bad else ConsumeResult.SUCCESS

    async with PushConsumer(
        namesrv.address,
        group=group,
        topics=[topic],
        listener=listen,
        consume_from="first",
        client_rebalance=False,
    ) as consumer:
        assert await consumer.assigned_queues() == [MessageQueue(topic, broker.broker_name, -1)]
        await _send(namesrv.address, topic, *(b"%d" % number for number in range(40)))
        await until(lambda: len(got) == 41, timeout_seconds=_WAIT_SECONDS)
    assert sorted(got) == sorted([*((b"%d" % number, 1) for number in range(40)), (b"7", 2)])
    async with _consumer(namesrv.address, topic) as left:
        assert await left.receive(32, await_seconds=0.5) == []
