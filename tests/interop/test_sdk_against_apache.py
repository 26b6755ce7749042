"""The SDK with Apache's name server and broker, and with this project's: equal results."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from rmq_client import (
    Admin,
    BatchPolicy,
    ClientSettings,
    Compression,
    CompressionType,
    ConsumeContext,
    ConsumeResult,
    GroupNotFound,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    PullSettings,
    Rejected,
    SendStatus,
    Serialization,
    TopicNotFound,
    blocking,
)
from rmq_client.admin.results import time_of
from rmq_client.network.broker_api import BrokerApi
from rmq_client.network.instance import ClientInstance
from rmq_remoting.bodies.connection import ConsumerConnection, ProducerConnection
from rmq_remoting.bodies.running_info import CMResult, ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rmq_remoting.codes import LanguageCode, RequestCode
from rmq_remoting.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from rmq_remoting.headers.offsets import ResetOffsetRequestHeader
from rmq_remoting.sys_flags import MessageSysFlag
from tests.interop.clusters import Cluster
from tests.interop.consumers import consumer_of
from tests.support.push_consumers import Inbox, until_assigned
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until

_BOTH_FORMS = [ClientSettings(serialization=form) for form in Serialization]


async def _everything(address: str, topic: str, count: int) -> list[MessageExt]:
    """Consume the first `count` messages of a topic."""
    async with PullConsumer(address, group=f"reader-of-{topic}", consume_from="first") as reader:
        await reader.assign(await reader.queues(topic))
        messages: list[MessageExt] = []
        async with asyncio.timeout(60):
            while len(messages) < count:
                messages += await reader.poll()
        return messages


# --- sending ---


@pytest.mark.parametrize("settings", _BOTH_FORMS, ids=lambda settings: settings.serialization.name)
async def test_all_modes_of_sending(cluster: Cluster, topic: str, settings: ClientSettings) -> None:
    address = cluster[0].address
    async with Producer(address, group="p", settings=settings) as producer:
        queues = await producer.queues(topic)
        assert len(queues) == 4
        one = await producer.send(Message(topic, b"one", tags="a", keys=["k"], properties={"x": "ü"}, flag=9))
        two = await producer.send(Message(topic, b"two"), queue=queues[2])
        three = await producer.send(Message(topic, b"three"), selector=lambda all_, message, key: all_[-1])
        four = await producer.send(Message(topic, b"four"), key="order")
        batch = await producer.send_batch(
            [Message(topic, b"five", tags="b"), Message(topic, b"six", tags="c")]
        )
        seven = await producer.send_oneway(Message(topic, b"seven"))
        results = [one, two, three, four, *batch]
        assert all(result.status is SendStatus.SEND_OK for result in results)
        assert (two.queue, three.queue) == (queues[2], queues[3])
        messages = {message.body: message for message in await _everything(address, topic, 7)}
    assert set(messages) == {b"one", b"two", b"three", b"four", b"five", b"six", b"seven"}
    for result, body in zip(results, (b"one", b"two", b"three", b"four", b"five", b"six"), strict=True):
        stored = messages[body]
        assert (stored.msg_id, stored.queue_offset) == (result.msg_id, result.queue_offset)
        assert (stored.queue_id, stored.offset_msg_id) == (result.queue.queue_id, result.offset_msg_id)
    first = messages[b"one"]
    assert (first.tags, first.keys, first.flag, first.properties["x"]) == ("a", ["k"], 9, "ü")
    assert (messages[b"five"].tags, messages[b"six"].tags) == ("b", "c")
    assert messages[b"seven"].msg_id == seven


async def test_automatic_batching(cluster: Cluster, topic: str) -> None:
    address = cluster[0].address
    async with Producer(address, group="p", batching=BatchPolicy(max_messages=50)) as producer:
        results = await asyncio.gather(*(producer.send(Message(topic, b"%d" % n)) for n in range(500)))
    messages = {message.msg_id: message for message in await _everything(address, topic, 500)}
    for number, result in enumerate(results):
        stored = messages[result.msg_id]
        assert (stored.body, stored.queue_offset) == (b"%d" % number, result.queue_offset)
        assert stored.queue_id == result.queue.queue_id


@pytest.mark.parametrize("kind", list(CompressionType))
async def test_compressed_bodies(cluster: Cluster, topic: str, kind: CompressionType) -> None:
    address = cluster[0].address
    bodies = [os.urandom(500) * 100, b"x" * 4096, b"y" * 4095]
    async with Producer(address, group="p", compression=Compression(type=kind)) as producer:
        for body in bodies:
            await producer.send(Message(topic, body))
    messages = await _everything(address, topic, 3)
    assert sorted(message.body for message in messages) == sorted(bodies)
    kinds = {len(message.body): message.sys_flag & MessageSysFlag.COMPRESSION_MASK for message in messages}
    assert kinds == {50_000: kind << 8, 4096: kind << 8, 4095: 0}


async def test_the_first_message_creates_a_topic(cluster: Cluster, name: str) -> None:
    async with Producer(cluster[0].address, group="p", new_topic_queues=2) as producer:
        results = [await producer.send(Message(name, b"%d" % number)) for number in range(4)]
        assert {result.queue.queue_id for result in results} == {0, 1}
    async with Admin(cluster[0].address) as admin:
        assert name in await admin.topics()


async def test_refusals_of_the_broker(cluster: Cluster, topic: str) -> None:
    async with Producer(
        cluster[0].address, group="p", max_message_bytes=8 * 1024 * 1024, compression=None
    ) as producer:
        with pytest.raises(Rejected, match="MESSAGE_ILLEGAL"):
            await producer.send(Message(topic, b"x" * (4 * 1024 * 1024 + 1)))
        assert (await producer.send(Message(topic, b"x"))).status is SendStatus.SEND_OK
    async with PullConsumer(cluster[0].address, group="g") as consumer:
        with pytest.raises(TopicNotFound, match="has no route on"):
            await consumer.queues(topic + "-unknown")


async def test_many_tasks_send_at_once(cluster: Cluster, topic: str) -> None:
    async with Producer(cluster[0].address, group="p") as producer:

        async def send(task: int) -> None:
            for number in range(20):
                await producer.send(Message(topic, b"%d %d" % (task, number)))

        await asyncio.gather(*(send(task) for task in range(64)))
    assert len({message.body for message in await _everything(cluster[0].address, topic, 1280)}) == 1280


# --- push ---


async def test_push_consumers_with_tags(cluster: Cluster, topic: str) -> None:
    address = cluster[0].address
    inbox = Inbox()
    async with (
        Producer(address, group="p") as producer,
        consumer_of(address, topic, inbox.as_coroutine, topics={topic: "Aa || c"}),
    ):
        # "Aa" and "BB" have the same hash code, by which the broker filters.
        for number in range(40):
            await producer.send(Message(topic, b"%d" % number, tags=("Aa", "BB", "c", "d")[number % 4]))
        await until(lambda: len(inbox.messages) >= 20, timeout_seconds=60)
    assert sorted(int(body) for body in inbox.bodies) == [n for n in range(40) if n % 4 in (0, 2)]


@pytest.mark.parametrize("kind", ["function", "coroutine"])
async def test_a_restarted_group_continues_at_its_offset(cluster: Cluster, topic: str, kind: str) -> None:
    address = cluster[0].address
    inbox = Inbox()
    listener = inbox if kind == "function" else inbox.as_coroutine
    async with Producer(address, group="p") as producer:
        for part in range(3):
            for number in range(30):
                await producer.send(Message(topic, b"%d-%02d" % (part, number)))
            async with consumer_of(address, topic, listener):
                await until(lambda: len(inbox.messages) >= (part + 1) * 30, timeout_seconds=60)  # noqa: B023
    assert len(inbox.bodies) == len(set(inbox.bodies)) == 90


async def test_two_consumers_share_the_queues(cluster: Cluster, topic: str) -> None:
    address = cluster[0].address
    one, two = Inbox(), Inbox()
    second = ClientSettings(instance_name="second")
    async with consumer_of(address, topic, one.as_coroutine) as first_consumer:
        await until_assigned(first_consumer, 4, timeout_seconds=60)
        async with consumer_of(address, topic, two.as_coroutine, settings=second) as second_consumer:
            await until_assigned(first_consumer, 2, timeout_seconds=60)
            await until_assigned(second_consumer, 2, timeout_seconds=60)
            async with Producer(address, group="p") as producer:
                for number in range(40):
                    await producer.send(Message(topic, b"%d" % number))
            await until(lambda: len(one.messages) + len(two.messages) == 40, timeout_seconds=60)
            assert len(one.messages) == len(two.messages) == 20
        await until_assigned(first_consumer, 4, timeout_seconds=60)


async def test_refused_messages_are_redelivered(cluster: Cluster, topic: str) -> None:
    address = cluster[0].address
    got: list[tuple[bytes, int]] = []

    def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        got.extend((message.body, message.reconsume_times) for message in messages)
        context.delay_level = 1
        return ConsumeResult.LATER if got[-1] == (b"1", 0) else ConsumeResult.SUCCESS

    async with Producer(address, group="p") as producer, consumer_of(address, topic, listen):
        for number in range(3):
            await producer.send(Message(topic, b"%d" % number))
        await until(lambda: len(got) == 4, timeout_seconds=60)
    assert got[3] == (b"1", 1)


async def test_a_listener_that_blocks_the_loop_keeps_its_membership(cluster: Cluster, topic: str) -> None:
    address, broker = cluster[0].address, cluster[1]
    before, blocked = threading.Event(), threading.Event()
    offsets: list[int | None] = []

    async def listen(messages: list[MessageExt]) -> None:
        if messages[0].body == b"before":
            before.set()
        if messages[0].body == b"block":
            # The loop is blocked for several periods of heartbeats and commits.
            time.sleep(1.5)  # noqa: ASYNC251
            blocked.set()

    settings = ClientSettings(heartbeat_seconds=0.2)
    async with (
        Producer(address, group="p") as producer,
        Admin(address) as admin,
        consumer_of(address, topic, listen, settings=settings) as consumer,
    ):
        await until_assigned(consumer, 4, timeout_seconds=60)
        queues = await consumer.assigned_queues()
        sent = await producer.send(Message(topic, b"before"), queue=queues[0])
        await until(before.is_set, timeout_seconds=60)
        await producer.send(Message(topic, b"block"), queue=queues[1])
        await until(blocked.is_set, timeout_seconds=60)
        offsets.append(await admin.committed_offset(f"g-{topic}", queues[0]))
        assert len(await admin.consumer_ids(f"g-{topic}", topic)) == 1
    assert offsets == [sent.queue_offset + 1]
    assert broker.process.exit_code is None


# --- pull ---


async def test_seek_commit_and_continue(cluster: Cluster, topic: str) -> None:
    address = cluster[0].address
    queue = MessageQueue(topic, "broker-a", 1)
    async with Producer(address, group="p") as producer:
        for number in range(20):
            await producer.send(Message(topic, b"%02d" % number), queue=queue)
    async with PullConsumer(address, group=f"g-{topic}") as consumer:
        await consumer.assign([queue])
        assert await consumer.committed(queue) is None
        await consumer.seek(queue, 15)
        assert [message.queue_offset for message in await consumer.poll()] == [15, 16, 17, 18, 19]
        await consumer.seek_to_beginning(queue)
        first = await consumer.poll(max_messages=5)
        assert [message.body for message in first] == [b"00", b"01", b"02", b"03", b"04"]
        await consumer.commit()
        assert await consumer.committed(queue) == 5
        await consumer.seek_to_end(queue)
        assert await consumer.position(queue) == 20
        assert await consumer.poll(timeout_seconds=0.2) == []
        await consumer.seek_to_time(queue, datetime.now(UTC) - timedelta(hours=1))
        assert (await consumer.poll())[0].queue_offset == 0
        await consumer.seek_to_time(queue, datetime.now(UTC) + timedelta(hours=1))
        assert await consumer.position(queue) == 20
        await consumer.seek(queue, 1000)
        async with asyncio.timeout(60):
            while await consumer.position(queue) == 1000:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert await consumer.position(queue) == 20
    async with PullConsumer(address, group=f"g-{topic}") as consumer:
        await consumer.assign([queue])
        assert (await consumer.poll())[0].queue_offset == 5


async def test_a_held_pull_gets_the_next_message(cluster: Cluster, topic: str) -> None:
    address = cluster[0].address
    async with (
        Producer(address, group="p") as producer,
        PullConsumer(address, group=f"g-{topic}") as consumer,
    ):
        await consumer.assign(await consumer.queues(topic), "x")
        assert await consumer.poll(timeout_seconds=0.5) == []
        waiting = asyncio.ensure_future(consumer.poll(timeout_seconds=60))
        await producer.send(Message(topic, b"not wanted", tags="y"))
        await producer.send(Message(topic, b"wanted", tags="x"))
        assert [message.body for message in await waiting] == [b"wanted"]


# --- administration ---


@asynccontextmanager
async def _api(address: str) -> AsyncIterator[BrokerApi]:
    """An admin client of its own."""
    instance = await ClientInstance.acquire(address, ClientSettings(instance_name="admin"))
    try:
        yield BrokerApi(instance.bridge(), instance.settings)
    finally:
        await instance.release()


async def test_the_broker_lists_its_clients(cluster: Cluster, topic: str) -> None:
    address, broker = cluster[0].address, cluster[1]
    topics = {topic: "a || b"}
    async with (
        Producer(address, group=f"p-{topic}") as producer,
        consumer_of(address, topic, lambda messages: None, topics=topics) as consumer,
        _api(address) as api,
    ):
        await until_assigned(consumer, 4, timeout_seconds=60)
        await producer.send(Message(topic, b"x"))
        answer = await api.call(
            broker.address,
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            GetConsumerConnectionListRequestHeader(consumer_group=f"g-{topic}"),
        )
        consumers = ConsumerConnection.decode(answer.body)
        assert [one.language for one in consumers.connection_set] == [LanguageCode.PYTHON]
        assert consumers.subscription_table[topic].sub_string == "a || b"
        answer = await api.call(
            broker.address,
            RequestCode.GET_PRODUCER_CONNECTION_LIST,
            GetProducerConnectionListRequestHeader(producer_group=f"p-{topic}"),
        )
        producers = ProducerConnection.decode(answer.body)
        assert producers.connection_set[0].client_id == consumers.connection_set[0].client_id
        assert producers.connection_set[0].client_addr == consumers.connection_set[0].client_addr


# Requests that the broker forwards to the client.


async def test_running_info_of_a_consumer(cluster: Cluster, topic: str) -> None:
    address, broker = cluster[0].address, cluster[1]
    group = f"g-{topic}"
    async with consumer_of(address, topic, lambda messages: None) as consumer, _api(address) as api:
        await until_assigned(consumer, 4, timeout_seconds=60)
        client_id = (await api.consumer_ids(broker.address, group))[0]
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group=group, client_id=client_id, jstack_enable=True
        )
        answer = await api.call(broker.address, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        info = ConsumerRunningInfo.decode(answer.body)
        assert sum(queue.topic == topic for queue in info.mq_table) == 4, "besides the retry topic"
        assert f"rmq-{group}-0" in (info.jstack or "")


async def test_a_reset_and_direct_consumption_of_a_running_consumer(cluster: Cluster, topic: str) -> None:
    address, broker = cluster[0].address, cluster[1]
    group = f"g-{topic}"
    inbox = Inbox()
    # Apache's broker applies a reset at the next pull, which must be soon.
    pull = PullSettings(hold_seconds=0.5)
    async with (
        Producer(address, group="p") as producer,
        consumer_of(address, topic, inbox.as_coroutine, pull=pull) as consumer,
        _api(address) as api,
    ):
        results = [await producer.send(Message(topic, b"%d" % number)) for number in range(8)]
        await until(lambda: len(inbox.messages) == 8, timeout_seconds=60)
        await consumer.commit()
        reset = ResetOffsetRequestHeader(topic=topic, group=group, timestamp=0, force=True)
        await api.call(broker.address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
        await until(lambda: len(inbox.messages) == 16, timeout_seconds=60)

        client_id = (await api.consumer_ids(broker.address, group))[0]
        directly = ConsumeMessageDirectlyResultRequestHeader(
            consumer_group=group, client_id=client_id, msg_id=results[0].offset_msg_id, topic=topic
        )
        directly.stored_broker_name = broker.broker_name
        answer = await api.call(broker.address, RequestCode.CONSUME_MESSAGE_DIRECTLY, directly)
        result = ConsumeMessageDirectlyResult.decode(answer.body)
        assert result.consume_result is CMResult.CR_SUCCESS
        assert (len(inbox.messages), inbox.messages[-1].msg_id) == (17, results[0].msg_id)


async def test_administration_of_topics(cluster: Cluster, name: str) -> None:
    async with Admin(cluster[0].address) as admin, Producer(cluster[0].address, group="p") as producer:
        await admin.create_topic(name, queues=2)
        await producer.send(Message(name, b"x"), queue=MessageQueue(name, "broker-a", 1))

        async def reach() -> dict[int, tuple[int, int]]:
            stats = await admin.topic_stats(name)
            return {queue.queue_id: (one.min_offset, one.max_offset) for queue, one in stats.items()}

        # Apache's broker answers a send before its dispatch thread has written the queue entry.
        while (reached := await reach())[1] != (0, 1):
            assert reached == {0: (0, 0), 1: (0, 0)}
        assert reached == {0: (0, 0), 1: (0, 1)}
        queue = MessageQueue(name, "broker-a", 1)
        assert (await admin.min_offset(queue), await admin.max_offset(queue)) == (0, 1)
        info = await admin.cluster_info()
        assert info.brokers["broker-a"].addresses == {0: cluster[1].address}
        await admin.delete_topic(name)
        with pytest.raises(TopicNotFound):
            await admin.topic_route(name)


async def test_look_ups_of_messages(cluster: Cluster, topic: str) -> None:
    async with Admin(cluster[0].address) as admin, Producer(cluster[0].address, group="p") as producer:
        sent = [
            await producer.send(Message(topic, b"%d" % number, keys=["all", f"k{number}"]))
            for number in range(4)
        ]
        large = await producer.send(Message(topic, b"x" * 10_000, keys="large"))
        # Apache's broker answers a send before its dispatch thread has written the index entries.
        while not (found := (await admin.query_messages(topic, "large")).messages):
            pass
        assert [message.body for message in found] == [b"x" * 10_000], "decompressed"
        result = await admin.query_messages(topic, "all")
        assert [message.msg_id for message in result.messages] == [each.msg_id for each in sent]
        assert result.indexed_until is not None and not result.failures
        assert len((await admin.query_messages(topic, "all", max_messages=2)).messages) == 2
        [message] = (await admin.query_messages(topic, sent[2].msg_id, unique=True)).messages
        assert message.body == b"2" and message.broker_name == "broker-a"
        hour = timedelta(hours=1)
        assert (await admin.query_messages(topic, "all", end=datetime.now(UTC) - hour)).messages == []
        assert (await admin.query_messages(topic, "none")).messages == []
        for message_id in (large.msg_id, large.offset_msg_id):
            viewed = await admin.view_message(topic, message_id)
            assert viewed is not None and viewed.body == b"x" * 10_000
        for unknown in (large.offset_msg_id[:-16] + "00000FFFFFFFFFFF", "0" * 32):
            assert await admin.view_message(topic, unknown) is None


async def test_progress_of_groups(cluster: Cluster, topic: str, name: str) -> None:
    group = f"g-{name}"
    async with (
        Admin(cluster[0].address) as admin,
        Producer(cluster[0].address, group="p") as producer,
        PullConsumer(cluster[0].address, group=group, consume_from="first") as consumer,
    ):
        queue = (await consumer.queues(topic))[0]
        for _ in range(3):
            await producer.send(Message(topic, b"x"), queue=queue)
        await consumer.assign([queue])
        got: list[MessageExt] = []
        while len(got) < 3:
            got += await consumer.poll(timeout_seconds=5)
        await consumer.commit()
        await admin.commit_offset(group, queue, 2)
        for lag in (await admin.lag(group), await admin.lag(group, topic)):
            [reach] = [each for each in lag.queues if each.queue == queue]
            assert (reach.end, reach.committed) == (3, 2)
            assert reach.consumed_until == time_of(got[1].store_timestamp)
        [span] = [each for each in await admin.consume_time_span(group, topic) if each.queue == queue]
        assert (span.first_stored, span.consumed_until, span.last_stored) == tuple(
            time_of(message.store_timestamp) for message in got
        )
        with pytest.raises(GroupNotFound):
            await admin.lag("no-such-group")


# --- without a loop ---


def test_the_blocking_api(cluster: Cluster, name: str) -> None:
    address = cluster[0].address
    with blocking.Admin(address) as admin:
        admin.create_topic(name, queues=1)
    with blocking.Producer(address, group="p") as producer:
        sent = [producer.send(Message(name, b"%d" % number)) for number in range(5)]
    with blocking.PullConsumer(address, group=f"g-{name}", consume_from="first") as consumer:
        consumer.assign(consumer.queues(name))
        for expected, message in zip(sent, consumer, strict=False):
            assert message.msg_id == expected.msg_id
        consumer.commit()
    got: list[MessageExt] = []
    done = threading.Event()

    def listen(messages: list[MessageExt]) -> None:
        got.extend(messages)
        if len(got) == 5:
            done.set()

    with blocking.PushConsumer(
        address, group=f"h-{name}", topics=[name], listener=listen, consume_from="first"
    ):
        assert done.wait(20)
