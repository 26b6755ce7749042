"""Namespaces in the SDK: brokers see full names, the application its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rmq_client import (
    Admin,
    BatchPolicy,
    ClientSettings,
    ConsumeContext,
    ConsumeHook,
    ConsumeResult,
    HookContext,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    PullWish,
    PushConsumer,
    RawPuller,
    ShareChange,
    SimpleConsumer,
    TopicNotFound,
    Tracing,
    TransactionState,
    by_configuration,
)
from rmq_client.producer.encoded import EncodedProducer
from rmq_client.producer.encoding import Outgoing
from rmq_client.producer.policies import RetryPolicy
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.push_consumers import QUICK
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until

_SHOP = ClientSettings(namespace="shop")
_TRACES = "RMQ_SYS_TRACE_TOPIC"
_QUICK_TRACES = Tracing(linger_seconds=0.01)


@asynccontextmanager
async def _cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    topics = {"shop%T": 2, "T": 1, _TRACES: 1}
    async with running_cluster(tmp_path, {"broker-a": topics}) as cluster:
        yield cluster


def _bodies(cluster: RunningCluster, topic: str) -> list[bytes]:
    return [message.body for message in cluster.broker.messages(topic)]


# --- sending ---


async def test_messages_go_to_the_topic_of_the_namespace(tmp_path: Path) -> None:
    seen: list[MessageQueue] = []

    def last(queues: Sequence[MessageQueue], message: Message, key: object) -> MessageQueue:
        seen.extend(queues)
        assert message.topic == "T"
        return queues[-1]

    async with (
        _cluster(tmp_path) as cluster,
        Producer(cluster.address, group="p", settings=_SHOP) as producer,
    ):
        own = [MessageQueue("T", "broker-a", number) for number in range(2)]
        assert list(await producer.queues("T")) == own
        message = Message("T", b"1")
        assert (await producer.send(message)).queue.topic == message.topic == "T"
        assert (await producer.send(Message("T", b"2"), selector=last)).queue == seen[-1] == own[-1]
        assert (await producer.send(Message("T", b"3"), queue=own[0])).queue == own[0]
        full = MessageQueue("shop%T", "broker-a", 1)
        assert (await producer.send(Message("shop%T", b"4"), queue=full)).queue == own[1]
        for result in await producer.send_batch([Message("T", b"5"), Message("T", b"6")]):
            assert result.queue.topic == "T"
        await producer.send_oneway(Message("T", b"7"))
        await until(lambda: len(_bodies(cluster, "shop%T")) == 7)
        assert _bodies(cluster, "T") == []
        assert {header.target.producer_group for header in cluster.broker.sends} == {"shop%p"}
        (record, *_) = cluster.broker.stored("shop%T")
        assert record.properties["INSTANCE_ID"] == "shop"


async def test_automatic_batches_and_encoded_messages_use_the_namespace(tmp_path: Path) -> None:
    async with (
        _cluster(tmp_path) as cluster,
        Producer(cluster.address, group="p", batching=BatchPolicy(), settings=_SHOP) as producer,
    ):
        assert (await producer.send(Message("T", b"1"))).queue.topic == "T"
        encoded = EncodedProducer(cluster.address, "p", _SHOP, RetryPolicy())
        await encoded.start()
        (queue, _) = await encoded.queues("T", 3)
        assert queue.topic == "T"
        await encoded.send("T", queue, Outgoing(b"2", b""), 3)
        await encoded.stop()
        assert sorted(_bodies(cluster, "shop%T")) == [b"1", b"2"]
        assert {header.target.producer_group for header in cluster.broker.sends} == {"shop%p"}


async def test_a_topic_of_another_namespace_is_not_found(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path) as cluster,
        Producer(cluster.address, group="p", settings=_SHOP) as producer,
    ):
        with pytest.raises(TopicNotFound, match="shop%T"):
            await producer.send(Message("T", b"1"))


# --- push consumers ---


class _Hook(ConsumeHook):
    def __init__(self) -> None:
        self.seen: set[tuple[str, str]] = set()

    def before(self, context: HookContext) -> None:
        assert context.queue is not None
        self.seen.add((context.group, context.messages[0].topic))


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_push_consumer_gets_retries_of_its_namespace(orderly: bool, tmp_path: Path) -> None:
    got: list[MessageExt] = []
    queues: set[str] = set()
    changes: list[ShareChange] = []

    def listen(messages: list[MessageExt], context: Any) -> ConsumeResult:
        got.extend(messages)
        queues.add(context.queue.topic)
        return ConsumeResult.LATER if orderly and len(got) == 1 else _later_once(messages)

    def _later_once(messages: list[MessageExt]) -> ConsumeResult:
        if not orderly and messages[0].reconsume_times == 0:
            return ConsumeResult.LATER
        return ConsumeResult.SUCCESS

    hook = _Hook()
    async with _cluster(tmp_path) as cluster:
        cluster.broker.put("shop%T", b"1")
        cluster.broker.put("T", b"another's")
        async with PushConsumer(
            cluster.address,
            group="g",
            topics={"T": "*"},
            listener=listen,
            orderly=orderly,
            consume_from="first",
            suspend_seconds=0.01,
            hooks=[hook],
            share_listener=changes.append,
            timing=QUICK,
            settings=_SHOP,
        ) as consumer:
            await until(lambda: len(got) == 2)
            assert [message.body for message in got] == [b"1", b"1"]
            assert {message.topic for message in got} == {"T"}
            assert hook.seen == {("g", "T")}
            assert {queue.topic for queue in await consumer.assigned_queues()} == {"T"}
            assert "T" in await consumer.statistics()
            await until(lambda: changes)
            assert (changes[0].topic, {queue.topic for queue in changes[0].all_queues}) == ("T", {"T"})
            assert cluster.broker.members("shop%g")
            await consumer.unsubscribe("T")
            await consumer.subscribe("T", "paid")
        if not orderly:
            assert queues == {"T", "%RETRY%g"}
            assert [one.origin_topic for one in cluster.broker.sent_back] == ["shop%T"]
            (again,) = cluster.broker.stored("%RETRY%shop%g")
            assert again.properties["RETRY_TOPIC"] == "shop%T"


async def test_allocations_use_the_applications_names(tmp_path: Path) -> None:
    chosen = MessageQueue("T", "broker-a", 1)

    async def listen(messages: list[MessageExt]) -> None:
        pass

    async with (
        _cluster(tmp_path) as cluster,
        PushConsumer(
            cluster.address,
            group="g",
            topics=["T"],
            listener=listen,
            allocation=by_configuration([chosen]),
            timing=QUICK,
            settings=_SHOP,
        ) as consumer,
    ):
        async with asyncio.timeout(20):
            while await consumer.assigned_queues() != [chosen]:  # noqa: ASYNC110  # another thread rebalances
                await asyncio.sleep(0.01)


# --- pull consumers ---


async def test_a_pull_consumer_reads_its_namespace(tmp_path: Path) -> None:
    queue = MessageQueue("T", "broker-a", 0)
    async with _cluster(tmp_path) as cluster:
        for body in (b"1", b"2", b"3"):
            cluster.broker.put("shop%T", body)
        async with PullConsumer(cluster.address, group="g", consume_from="first", settings=_SHOP) as consumer:
            assert [each.topic for each in await consumer.queues("T")] == ["T", "T"]
            await consumer.assign([queue], {"T": "*"})
            assert consumer.assigned_queues() == [queue]
            (message,) = await consumer.poll(1)
            assert (message.topic, message.body) == ("T", b"1")
            await consumer.commit()
            assert cluster.broker.committed("shop%g", "shop%T") == 1
            assert await consumer.committed(queue) == await consumer.position(queue) == 1
            consumer.pause([queue])
            consumer.resume([queue])
            await consumer.seek(queue, 2)
            assert [message.body for message in await consumer.poll()] == [b"3"]
            await consumer.seek_to_beginning(queue)
            assert [message.body for message in await consumer.poll(1)] == [b"1"]
            pulled = await consumer.pull(MessageQueue("shop%T", "broker-a", 0), 1)
            assert [(message.topic, message.body) for message in pulled.messages][:1] == [("T", b"2")]
            await consumer.commit({queue: 3})
            assert cluster.broker.committed("shop%g", "shop%T") == 3


async def test_pull_consumers_share_the_queues_of_their_namespace(tmp_path: Path) -> None:
    told: list[tuple[str, list[MessageQueue]]] = []
    async with _cluster(tmp_path) as cluster:
        cluster.broker.put("shop%T", b"1")
        settings = ClientSettings(namespace="shop", route_refresh_seconds=0.05)
        async with PullConsumer(
            cluster.address, group="g", consume_from="first", timing=QUICK, settings=settings
        ) as consumer:
            await consumer.subscribe("T")
            assert consumer.assigned_queues() == [
                MessageQueue("T", "broker-a", number) for number in range(2)
            ]
            assert [message.topic for message in await consumer.poll()] == ["T"]
            known = await consumer.listen_to_queues("T", lambda topic, queues: told.append((topic, queues)))
            assert [queue.topic for queue in known] == ["T", "T"]
            await cluster.broker.set_queues("shop%T", 3)
            await until(lambda: told)
            assert told[0] == ("T", [MessageQueue("T", "broker-a", number) for number in range(3)])
            await consumer.unsubscribe("T")
            assert consumer.assigned_queues() == []


# --- requests, transactions, traces ---


async def test_replies_cross_namespaces(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path, {"broker-a": {"shop%T": 1}}) as cluster,
        Producer(cluster.address, group="asking", settings=_SHOP) as asker,
        Producer(cluster.address, group="answering", settings=_SHOP) as answerer,
    ):
        asked = asyncio.ensure_future(asker.request(Message("T", b"ping")))
        await until(lambda: cluster.broker.stored("shop%T"))
        (request,) = cluster.broker.stored("shop%T")
        await answerer.reply(request, b"pong")
        assert (await asked).body == b"pong"


@asynccontextmanager
async def _broker(folder: Path) -> AsyncIterator[str]:
    async with running_cluster(
        folder,
        {"broker-a": {"shop%T": 1}},
        transactionTimeOut=1,
        transactionCheckInterval=20,
        transactionCheckMax=1000,
        timerPrecisionMs=100,
        recallMessageEnable="true",
        traceTopicEnable="true",
    ) as cluster:
        yield cluster.address


async def test_transactions_and_recalls_are_of_the_namespace_and_traces_of_none(tmp_path: Path) -> None:
    asked: list[MessageExt] = []

    async def check(message: MessageExt) -> TransactionState:
        asked.append(message)
        return TransactionState.COMMIT

    async with _broker(tmp_path) as address, Admin(address) as everything:
        async with Producer(
            address, group="p", check_transaction=check, trace=_QUICK_TRACES, settings=_SHOP
        ) as producer:
            async with producer.transaction(Message("T", b"now", tags="a")) as first:
                pass
            async with producer.transaction(Message("T", b"later")) as second:
                await second.leave_open()
            await until(lambda: b"later" in [message.body for message in asked], timeout_seconds=15)
            assert {message.topic for message in asked} == {"T"}
            placed = await producer.send(Message("T", b"never", delay_seconds=60))
            assert placed.recall_handle is not None
            assert await producer.recall(placed.recall_handle) == placed.msg_id
        async with PullConsumer(address, group="g", consume_from="first", settings=_SHOP) as reader:
            await reader.assign(await reader.queues("T"))
            bodies: list[bytes] = []
            async with asyncio.timeout(10):
                while len(bodies) < 2:
                    bodies += [message.body for message in await reader.poll()]
            assert bodies == [b"now", b"later"]
        lines = await _trace_lines(address, placed.msg_id, "true")
        assert {line[0] for line in lines} == {"Pub", "EndTransaction", "Recall"}
        assert {tuple(line[3:5]) for line in lines} == {("p", "T")}
        ends = [line[5:7] + line[9:] for line in lines if line[0] == "EndTransaction"]
        assert [end for end in ends if end[-1] == "false"] == [
            [first.msg_id, "a", "2", first.msg_id, "COMMIT_MESSAGE", "false"],
            [second.msg_id, "null", "2", second.msg_id, "UNKNOW", "false"],
        ]
        assert [second.msg_id, "null", "2", second.msg_id, "COMMIT_MESSAGE", "true"] in ends
        assert "T" not in await everything.topics()


async def _trace_lines(address: str, *last: str) -> list[list[str]]:
    """Return the trace lines, once one of them ends like this."""
    async with PullConsumer(address, group="traces", consume_from="first") as reader:
        await reader.assign(await reader.queues(_TRACES))
        lines: list[list[str]] = []
        async with asyncio.timeout(10):
            while not any(line[-len(last) :] == list(last) for line in lines):
                for message in await reader.poll():
                    lines += [line.split("\x01") for line in message.body.decode().split("\x02") if line]
    return lines


# --- popping and administration ---


async def test_a_simple_consumer_pops_its_namespace(tmp_path: Path) -> None:
    async with (
        _broker(tmp_path) as address,
        Producer(address, group="p", settings=_SHOP) as producer,
        SimpleConsumer(address, group="g", topics=["T"], consume_from="first", settings=_SHOP) as consumer,
        Admin(address, settings=_SHOP) as admin,
    ):
        await producer.send(Message("T", b"1"))
        (message,) = await consumer.receive(timeout_seconds=10)
        assert (message.topic, message.body) == ("T", b"1")
        await consumer.change_invisible_time(message, 0)
        (message,) = await consumer.receive(timeout_seconds=10)
        assert (message.topic, message.delivery_attempt) == ("T", 2)
        await consumer.ack(message)
        assert await consumer.receive(timeout_seconds=0.2) == []
        await consumer.unsubscribe("T")
        await consumer.subscribe("T")
        assert await admin.consumer_ids("g", "T")


async def test_a_push_consumer_pops_its_namespace(tmp_path: Path) -> None:
    got: list[MessageExt] = []

    async def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        got.extend(messages)
        assert context.queue.topic == "T"
        context.delay_level = 1
        return ConsumeResult.LATER if len(got) == 1 else ConsumeResult.SUCCESS

    async with (
        running_cluster(tmp_path, {"broker-a": {"shop%T": 1}}, defaultMessageRequestMode="POP") as cluster,
        PushConsumer(
            cluster.address,
            group="g",
            topics=["T"],
            listener=listen,
            consume_from="first",
            client_rebalance=False,
            timing=QUICK,
            settings=_SHOP,
        ) as consumer,
        Producer(cluster.address, group="p", settings=_SHOP) as producer,
    ):
        await producer.send(Message("T", b"1"))
        await until(lambda: len(got) == 2, timeout_seconds=15)
        assert [(message.topic, message.body) for message in got] == [("T", b"1")] * 2
        assert {queue.topic for queue in await consumer.assigned_queues()} == {"T"}


async def test_administration_is_of_the_namespace(tmp_path: Path) -> None:
    async with (
        _broker(tmp_path) as address,
        Producer(address, group="p", settings=_SHOP) as producer,
        Admin(address, settings=_SHOP) as admin,
        Admin(address) as everything,
        RawPuller(address, group="raw", settings=_SHOP) as puller,
    ):
        result = await producer.send(Message("T", b"1", keys=["k"]))
        queue = result.queue
        assert await admin.topics() == ["T"]
        assert "shop%T" in await everything.topics()
        assert list(await admin.topic_stats("T")) == [queue]
        assert await admin.max_offset(queue) == 1
        assert await admin.min_offset(queue) == 0
        assert await admin.search_offset(queue, datetime.fromtimestamp(0, UTC)) == 0
        async with PullConsumer(address, group="g", settings=_SHOP) as consumer:
            await consumer.assign([queue])  # the broker knows the group now
        await admin.commit_offset("g", queue, 1)
        assert await admin.committed_offset("g", queue) == 1
        full = MessageQueue("shop%T", queue.broker_name, queue.queue_id)
        assert await everything.committed_offset("shop%g", full) == 1
        assert [each.queue for each in (await admin.lag("g", "T")).queues] == [queue]
        (span,) = await admin.consume_time_span("g", "T")
        assert span.queue == queue
        found = await admin.view_message("T", result.offset_msg_id)
        assert found is not None
        assert found.topic == "T"
        async with asyncio.timeout(10):
            while not (known := (await admin.query_messages("T", "k")).messages):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert [message.topic for message in known] == ["T"]
        pulled = await puller.pull(queue, 0, PullWish())
        assert b"shop%T" in pulled.body
        await admin.delete_topic("T")
        assert await admin.topics() == ["%RETRY%g"]
