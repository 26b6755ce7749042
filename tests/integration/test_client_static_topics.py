"""The SDK with static topics: logical queues, while they move between two brokers."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from rmq_client import (
    Admin,
    ClientError,
    ClientSettings,
    ConsumeResult,
    Message,
    MessageExt,
    MessageQueue,
    NoQueue,
    Producer,
    PullConsumer,
    SimpleConsumer,
)
from rmq_remoting.codes import RequestCode
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.push_consumers import Inbox, consumer_of, until_assigned
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until

_LOGICAL = "__syslo__global__"
_SECONDS = 15.0
# Only failed requests and refusals may tell a client of a move.
_RARE = ClientSettings(route_refresh_seconds=600)


@asynccontextmanager
async def _static_topic(folder: Path, queues: int = 2) -> AsyncIterator[tuple[RunningCluster, Admin]]:
    """Two brokers, and the topic S whose logical queues broker-a leads."""
    brokers: dict[str, dict[str, int]] = {"broker-a": {}, "broker-b": {}}
    async with running_cluster(folder, brokers) as cluster, Admin(cluster.address) as admin:
        await admin.create_static_topic("S", queues, ["broker-a"])
        yield cluster, admin


@asynccontextmanager
async def _puller(cluster: RunningCluster, settings: ClientSettings = _RARE) -> AsyncIterator[PullConsumer]:
    async with PullConsumer(
        cluster.address, group="g", topics="S", consume_from="first", settings=settings
    ) as consumer:
        yield consumer


async def _send(producer: Producer, numbers: range) -> list[tuple[int, int]]:
    """Send with the number as key; return queues and offsets."""
    sent = [await producer.send(Message("S", b"%d" % number), key=number) for number in numbers]
    assert {result.queue.broker_name for result in sent} == {_LOGICAL}
    return [(result.queue.queue_id, result.queue_offset) for result in sent]


async def _poll(consumer: PullConsumer, count: int) -> list[MessageExt]:
    messages: list[MessageExt] = []
    async with asyncio.timeout(_SECONDS):
        while len(messages) < count:
            with suppress(ClientError):  # a queue has no leader for a moment of a move
                messages += await consumer.poll(timeout_seconds=1)
    return messages


def _by_queue(messages: Sequence[MessageExt]) -> dict[int, list[int]]:
    found: defaultdict[int, list[int]] = defaultdict(list)
    for message in messages:
        assert message.broker_name == _LOGICAL
        found[message.queue_id].append(int(message.body))
    return dict(found)


async def test_keys_keep_their_queue_and_order_over_a_move(tmp_path: Path) -> None:
    async with (
        _static_topic(tmp_path) as (cluster, admin),
        Producer(cluster.address, group="p", settings=_RARE) as producer,
    ):
        places = await _send(producer, range(10))
        await admin.move_static_topic("S", ["broker-b"])
        # The producer follows at once, although its route is old.
        places += await _send(producer, range(10, 20))
        assert [queue_id for queue_id, _ in places] == [number % 2 for number in range(20)]
        assert all(offset < 10 for _, offset in places[:10])
        assert all(offset >= 10_000 for _, offset in places[10:])
        # It shares the connections of `admin`, and the route before the move.
        async with _puller(cluster, ClientSettings()) as consumer:
            messages = await _poll(consumer, 20)
            assert consumer.assigned_queues() == [MessageQueue("S", _LOGICAL, each) for each in (0, 1)]
            assert _by_queue(messages) == {0: list(range(0, 20, 2)), 1: list(range(1, 20, 2))}
            received = {(message.queue_id, message.queue_offset) for message in messages}
            assert received == set(places)
            await consumer.commit()
            lag = await consumer.lag()
            assert lag.total == 0
        # Each broker has the messages that it was sent; the group's offsets are those of logical queues.
        assert [len(broker.messages("S")) for broker in cluster.brokers.values()] == [10, 10]
        stored = await admin.messages_between("S")
        assert _by_queue(stored) == {0: list(range(0, 20, 2)), 1: list(range(1, 20, 2))}


async def test_sends_to_any_queue_follow_a_move(tmp_path: Path) -> None:
    async with (
        _static_topic(tmp_path) as (cluster, admin),
        Producer(cluster.address, group="p", settings=_RARE) as producer,
    ):
        for target in ("broker-b", "broker-a", "broker-b"):
            await producer.send(Message("S", b"before"))
            await admin.move_static_topic("S", [target])
            sent = await producer.send(Message("S", b"after"))
            assert cluster.brokers[target].messages("S")[-1].body == b"after"
            assert sent.queue.broker_name == _LOGICAL
        batch = await producer.send_batch([Message("S", b"%d" % number) for number in range(3)])
        assert {result.queue.broker_name for result in batch} == {_LOGICAL}


async def test_a_group_continues_after_a_move(tmp_path: Path) -> None:
    async with (
        _static_topic(tmp_path) as (cluster, admin),
        Producer(cluster.address, group="p", settings=_RARE) as producer,
    ):
        await _send(producer, range(6))
        async with _puller(cluster) as consumer:
            await _poll(consumer, 6)
            await consumer.commit()
            await _send(producer, range(6, 8))
            await admin.move_static_topic("S", ["broker-b"])
            await _send(producer, range(8, 12))
            # The refusal of the old leader tells this consumer of the move.
            assert _by_queue(await _poll(consumer, 6)) == {0: [6, 8, 10], 1: [7, 9, 11]}
            await consumer.commit()
            queues = consumer.assigned_queues()
            committed = await consumer.committed_offsets(queues)
        assert all(offset is not None and offset >= 10_000 for offset in committed.values())
        await _send(producer, range(12, 14))
        async with _puller(cluster) as consumer:
            assert _by_queue(await _poll(consumer, 2)) == {0: [12], 1: [13]}


async def test_an_ordered_push_consumer_follows_its_queues(tmp_path: Path) -> None:
    async with (
        _static_topic(tmp_path) as (cluster, admin),
        Producer(cluster.address, group="p", settings=_RARE) as producer,
    ):
        inbox = Inbox()
        listener, settings = inbox.as_coroutine, _RARE
        async with consumer_of(cluster, listener, topics=["S"], orderly=True, settings=settings) as consumer:
            await until_assigned(consumer, 2)
            await _send(producer, range(10))
            await until(lambda: len(inbox.messages) == 10, _SECONDS)
            await admin.move_static_topic("S", ["broker-b"])
            await _send(producer, range(10, 20))
            await until(lambda: len(inbox.messages) >= 20, _SECONDS)
        assert _by_queue(inbox.messages) == {0: list(range(0, 20, 2)), 1: list(range(1, 20, 2))}
        assert cluster.brokers["broker-b"].requests(RequestCode.LOCK_BATCH_MQ), "the new leader locks them"


async def test_refused_messages_are_redelivered(tmp_path: Path) -> None:
    """The message is at another broker than the leader, which could not find it by its offset in the log."""
    async with (
        _static_topic(tmp_path) as (cluster, admin),
        Producer(cluster.address, group="p", settings=_RARE) as producer,
    ):
        await _send(producer, range(4))
        await admin.move_static_topic("S", ["broker-b"])
        attempts: list[tuple[int, int]] = []

        async def listen(messages: list[MessageExt]) -> ConsumeResult:
            (message,) = messages
            attempts.append((int(message.body), message.reconsume_times))
            return ConsumeResult.SUCCESS if message.reconsume_times else ConsumeResult.LATER

        async with consumer_of(cluster, listen, topics=["S"]):
            await until(lambda: len(attempts) == 8, _SECONDS)
        assert sorted(attempts) == [(number, times) for number in range(4) for times in (0, 1)]
        assert not any(broker.sent_back for broker in cluster.brokers.values())


async def test_simple_consumers_receive_from_all_brokers(tmp_path: Path) -> None:
    async with (
        _static_topic(tmp_path) as (cluster, admin),
        Producer(cluster.address, group="p") as producer,
    ):
        await _send(producer, range(4))
        await admin.move_static_topic("S", ["broker-b"])
        await _send(producer, range(4, 8))
        bodies: set[int] = set()
        async with (
            SimpleConsumer(cluster.address, group="g", topics=["S"], consume_from="first") as consumer,
            asyncio.timeout(_SECONDS),
        ):
            while len(bodies) < 8:
                for message in await consumer.receive(timeout_seconds=1):
                    bodies.add(int(message.body))
                    await consumer.ack(message)
        assert bodies == set(range(8))


async def test_the_queue_of_a_broker_that_is_down_is_not_replaced(tmp_path: Path) -> None:
    async with _static_topic(tmp_path) as (cluster, admin):
        grown = await admin.create_static_topic("S", 4, ["broker-a", "broker-b"])
        here = {queue.queue_id for queue in grown.queues if queue.leader == "broker-a"}
        assert here == {0, 1}
        await cluster.brokers["broker-b"].stop()
        async with Producer(cluster.address, group="p", settings=_RARE) as producer:  # has no route yet
            assert [queue.queue_id for queue in await producer.queues("S")] == [0, 1, 2, 3]
            for key in range(4):
                if key in here:
                    assert (await producer.send(Message("S", b"here"), key=key)).queue.queue_id == key
                else:
                    with pytest.raises(NoQueue, match="is not registered: start "):
                        await producer.send(Message("S", b"lost"), key=key)
            # A message without a key goes to a queue whose broker runs.
            anywhere = [await producer.send(Message("S", b"any")) for _ in range(4)]
            assert {result.queue.queue_id for result in anywhere} == here
