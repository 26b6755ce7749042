"""Groups of SDK consumers with Apache's broker and with this project's: retries, dead letters, order."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from rmq_client import (
    ClientSettings,
    ConsumeContext,
    ConsumeResult,
    Message,
    MessageExt,
    MessageQueue,
    OrderlyContext,
    Producer,
    PullConsumer,
    TopicNotFound,
)
from tests.interop.clusters import Cluster
from tests.interop.consumers import consumer_of
from tests.support.push_consumers import until_assigned
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until

_WAIT_SECONDS = 60.0


async def _dead_letters(address: str, group: str, count: int) -> list[MessageExt]:
    """The first messages of the group's dead-letter topic, which the first dead letter creates."""
    topic = f"%DLQ%{group}"
    async with (
        PullConsumer(address, group=f"reader-of-{group}", consume_from="first") as reader,
        asyncio.timeout(_WAIT_SECONDS),
    ):
        while True:
            try:
                await reader.assign(await reader.queues(topic))
                break
            except TopicNotFound:
                await asyncio.sleep(0.05)
        messages: list[MessageExt] = []
        while len(messages) < count:
            messages += await reader.poll(timeout_seconds=1)
        return messages


async def test_refused_messages_are_redelivered_and_become_dead_letters(cluster: Cluster, topic: str) -> None:
    address = cluster[0].address
    got: list[tuple[bytes, int, str]] = []

    def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        (message,) = messages
        got.append((message.body, message.reconsume_times, message.topic))
        context.delay_level = 1
        return ConsumeResult.LATER if message.body == b"bad" else ConsumeResult.SUCCESS

    async with (
        Producer(address, group="p") as producer,
        consumer_of(address, topic, listen, max_reconsume_times=2) as consumer,
    ):
        sent = await producer.send(Message(topic, b"bad", tags="t", keys=["k"], properties={"x": "y"}))
        await producer.send(Message(topic, b"good"))
        await until(lambda: len(got) == 4, timeout_seconds=_WAIT_SECONDS)
        (dead,) = await _dead_letters(address, consumer.group, 1)
    assert [call for call in got if call[0] == b"bad"] == [(b"bad", times, topic) for times in range(3)]
    assert (dead.body, dead.tags, dead.properties["x"]) == (b"bad", "t", "y")
    assert dead.properties["RETRY_TOPIC"] == topic
    assert dead.msg_id == sent.msg_id


async def test_a_message_becomes_a_dead_letter_at_once(cluster: Cluster, topic: str) -> None:
    address = cluster[0].address
    calls: list[bytes] = []

    async def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        calls.append(messages[0].body)
        context.delay_level = -1
        return ConsumeResult.LATER

    async with Producer(address, group="p") as producer, consumer_of(address, topic, listen) as consumer:
        await producer.send(Message(topic, b"bad"))
        assert [one.body for one in await _dead_letters(address, consumer.group, 1)] == [b"bad"]
    assert calls == [b"bad"]


async def test_order_is_kept_while_members_join_and_leave(cluster: Cluster, topic: str) -> None:
    address = cluster[0].address
    got: dict[int, list[int]] = defaultdict(list)
    busy: set[int] = set()
    overlaps = 0
    total = 0

    async def listen(messages: list[MessageExt]) -> None:
        nonlocal overlaps
        queue_id = messages[0].queue_id
        overlaps += queue_id in busy
        busy.add(queue_id)
        await asyncio.sleep(0.001)
        busy.discard(queue_id)
        got[queue_id] += [int(message.body) for message in messages]

    async def send(producer: Producer) -> None:
        nonlocal total
        for _ in range(100):
            await producer.send(
                Message(topic, b"%d" % total), queue=MessageQueue(topic, "broker-a", total % 4)
            )
            total += 1

    async with (
        Producer(address, group="p") as producer,
        consumer_of(address, topic, listen, orderly=True) as first,
    ):
        await send(producer)
        for number in range(2):
            settings = ClientSettings(instance_name=f"member-{number}")
            async with consumer_of(address, topic, listen, orderly=True, settings=settings) as other:
                await until_assigned(other, 2, timeout_seconds=_WAIT_SECONDS)
                await until_assigned(first, 2, timeout_seconds=_WAIT_SECONDS)
                await send(producer)
            await until_assigned(first, 4, timeout_seconds=_WAIT_SECONDS)
        await until(lambda: sum(map(len, got.values())) >= total, timeout_seconds=_WAIT_SECONDS)
    assert overlaps == 0
    for queue_id in range(4):
        assert got[queue_id] == list(range(queue_id, total, 4)), "in order, without losses and duplicates"


async def test_orderly_messages_become_dead_letters(cluster: Cluster, topic: str) -> None:
    address = cluster[0].address
    calls: list[tuple[bytes, int]] = []

    def listen(messages: list[MessageExt], context: OrderlyContext) -> ConsumeResult:
        (message,) = messages
        calls.append((message.body, message.reconsume_times))
        context.suspend_seconds = 0.01
        return ConsumeResult.LATER if message.body == b"bad" else ConsumeResult.SUCCESS

    queue = MessageQueue(topic, "broker-a", 0)
    async with (
        Producer(address, group="p") as producer,
        consumer_of(address, topic, listen, orderly=True, max_reconsume_times=2) as consumer,
    ):
        # Sent before the group's first heartbeat, for which brokers create its retry topic.
        await producer.send(Message(topic, b"bad"), queue=queue)
        await producer.send(Message(topic, b"good"), queue=queue)
        (dead,) = await _dead_letters(address, consumer.group, 1)
        await until(lambda: (b"good", 0) in calls, timeout_seconds=_WAIT_SECONDS)
    assert dead.body == b"bad"
    bad = [times for body, times in calls if body == b"bad"]
    assert bad == list(range(len(bad)))
    assert len(bad) >= 3
    assert calls[-1] == (b"good", 0)
