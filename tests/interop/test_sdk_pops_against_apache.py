"""SDK consumers that pop, with Apache's broker and with this project's."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rmq_client import (
    ClientSettings,
    ConsumeContext,
    ConsumeResult,
    ConsumerTiming,
    Message,
    MessageExt,
    MessageQueue,
    PopSettings,
    Producer,
    PushConsumer,
    ReceiptExpired,
    SimpleConsumer,
)
from rmq_remoting.bodies.assignment import MessageRequestMode
from tests.interop.clusters import Cluster
from tests.support.broker_requests import succeeded
from tests.support.pop_requests import set_mode
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.raw_client import raw_client
from tests.support.waiting import until

_WAIT_SECONDS = 30.0
_LONG_SECONDS = 60.0
_SHORT_SECONDS = 1.0


@asynccontextmanager
async def _consumer(
    address: str, topic: str, expression: str = "*", **options: Any
) -> AsyncIterator[SimpleConsumer]:
    options = {
        "group": f"g-{topic}",
        "topics": {topic: expression},
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
            messages += await consumer.receive(32, timeout_seconds=5, **options)
    return messages


async def test_acknowledged_messages_are_not_redelivered(cluster: Cluster, topic: str) -> None:
    address = cluster[0].address
    bodies = [b"%d" % number for number in range(40)]
    await _send(address, topic, *bodies)
    async with _consumer(address, topic) as consumer:
        messages = await _receive(consumer, len(bodies))
        assert sorted(message.body for message in messages) == sorted(bodies)
        assert {message.delivery_attempt for message in messages} == {1}
        assert {message.topic for message in messages} == {topic}
        await asyncio.gather(*(consumer.ack(message) for message in messages))
        assert await consumer.receive(32, timeout_seconds=0.5) == []


async def test_unacknowledged_messages_are_redelivered(cluster: Cluster, topic: str) -> None:
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


async def test_a_longer_or_a_zero_invisible_time(cluster: Cluster, topic: str) -> None:
    address = cluster[0].address
    await _send(address, topic, b"one")
    async with _consumer(address, topic) as consumer:
        (message,) = await _receive(consumer, 1, invisible_seconds=5)
        old = message.receipt_handle
        await consumer.change_invisible_time(message, _LONG_SECONDS)
        assert message.receipt_handle != old
        await consumer.change_invisible_time(message, 0)
        (again,) = await _receive(consumer, 1)
        assert again.delivery_attempt == 2
        await consumer.ack(again)


async def test_a_held_receive_gets_the_next_message(cluster: Cluster, topic: str) -> None:
    address = cluster[0].address
    async with _consumer(address, topic, "paid") as consumer:
        waiting = asyncio.ensure_future(consumer.receive(8, timeout_seconds=_WAIT_SECONDS))
        await asyncio.sleep(0.5)  # brokers do not report held notifications
        await _send(address, topic, b"other", tags="sent")
        await _send(address, topic, b"mine", tags="paid")
        (message,) = await waiting
        assert message.body == b"mine"
        await consumer.ack(message)


async def test_prefetched_messages_become_visible_again(cluster: Cluster, topic: str) -> None:
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


async def _set_mode(cluster: Cluster, topic: str, mode: MessageRequestMode) -> None:
    async with raw_client(cluster[1].port) as client:
        succeeded(await client.ask(set_mode(topic, f"g-{topic}", mode)))


async def _until_assigned(consumer: PushConsumer, expected: list[MessageQueue]) -> None:
    async with asyncio.timeout(_WAIT_SECONDS):
        while await consumer.assigned_queues() != expected:  # noqa: ASYNC110  # another thread rebalances
            await asyncio.sleep(0.02)


@asynccontextmanager
async def _push_consumer(
    cluster: Cluster, topic: str, listener: Any, **options: Any
) -> AsyncIterator[PushConsumer]:
    async with PushConsumer(
        cluster[0].address,
        group=f"g-{topic}",
        topics=[topic],
        listener=listener,
        consume_from="first",
        client_rebalance=False,
        timing=ConsumerTiming(rebalance_seconds=1.0, rebalance_again_seconds=0.1),
        **options,
    ) as consumer:
        yield consumer


async def test_a_push_consumer_pops(cluster: Cluster, topic: str) -> None:
    namesrv, broker = cluster
    await _set_mode(cluster, topic, MessageRequestMode.POP)
    got: list[tuple[bytes, int]] = []

    async def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        (message,) = messages
        got.append((message.body, message.delivery_attempt))
        context.delay_level = 1
        is_bad = message.body == b"7" and message.delivery_attempt == 1
        return ConsumeResult.LATER if is_bad else ConsumeResult.SUCCESS

    async with _push_consumer(cluster, topic, listen) as consumer:
        await _until_assigned(consumer, [MessageQueue(topic, broker.broker_name, -1)])
        await _send(namesrv.address, topic, *(b"%d" % number for number in range(40)))
        await until(lambda: len(got) == 41, timeout_seconds=_WAIT_SECONDS)
    assert sorted(got) == sorted([*((b"%d" % number, 1) for number in range(40)), (b"7", 2)])
    async with _consumer(namesrv.address, topic) as left:
        assert await left.receive(32, timeout_seconds=0.5) == []


async def test_members_pop_in_order(cluster: Cluster, topic: str) -> None:
    """Two members share four queues; one message is refused once, and one member stops in between."""
    await _set_mode(cluster, topic, MessageRequestMode.POP)
    got: dict[int, list[int]] = defaultdict(list)
    busy: set[int] = set()
    refused: list[MessageExt] = []
    callers: set[str] = set()
    both_were_called = asyncio.Event()

    def listener(name: str) -> Any:
        async def listen(messages: list[MessageExt]) -> ConsumeResult:
            (message,) = messages
            callers.add(name)
            if len(callers) == 2:
                both_were_called.set()
            await (
                both_were_called.wait()
            )  # a member with enough messages leaves other queues to the other member
            assert message.queue_id not in busy, "two concurrent calls for one queue"
            if message.body == b"37" and not refused:
                refused.append(message)
                return ConsumeResult.LATER
            busy.add(message.queue_id)
            await asyncio.sleep(0.001)
            busy.discard(message.queue_id)
            got[message.queue_id].append(message.queue_offset)
            return ConsumeResult.SUCCESS

        return listen

    def count() -> int:
        return sum(map(len, got.values()))

    options: dict[str, Any] = {
        "orderly": True,
        "suspend_seconds": 0.05,
        "pop": PopSettings(max_messages=2, max_unacknowledged=0),
    }
    second = ClientSettings(instance_name="second")
    bodies = [b"%d" % number for number in range(120)]
    async with (
        _push_consumer(cluster, topic, listener("one"), **options),
        _push_consumer(cluster, topic, listener("two"), settings=second, **options) as two,
    ):
        await _send(cluster[0].address, topic, *bodies[:80])
        await until(lambda: count() >= 80, timeout_seconds=_WAIT_SECONDS)
        await two.stop()
        await _send(cluster[0].address, topic, *bodies[80:])
        await until(lambda: count() >= 120, timeout_seconds=_WAIT_SECONDS)
    assert len(refused) == 1
    assert {queue_id: list(range(len(offsets))) for queue_id, offsets in got.items()} == got


async def test_the_broker_decides_between_pull_and_pop(cluster: Cluster, topic: str) -> None:
    """By default both brokers let a group pull."""
    namesrv, broker = cluster
    got: list[bytes] = []

    async def listen(messages: list[MessageExt]) -> None:
        got.extend(message.body for message in messages)

    async with _push_consumer(cluster, topic, listen) as consumer:
        await _until_assigned(consumer, [MessageQueue(topic, broker.broker_name, n) for n in range(4)])
        bodies = [b"%d" % number for number in range(20)]
        await _send(namesrv.address, topic, *bodies)
        await until(lambda: len(got) == 20, timeout_seconds=_WAIT_SECONDS)
        assert sorted(got) == sorted(bodies)
        # A group that is set to pop continues at its offset.
        await _set_mode(cluster, topic, MessageRequestMode.POP)
        await _until_assigned(consumer, [MessageQueue(topic, broker.broker_name, -1)])
        await _send(namesrv.address, topic, b"popped")
        await until(lambda: b"popped" in got, timeout_seconds=_WAIT_SECONDS)
    assert sorted(got) == sorted([*bodies, b"popped"])
