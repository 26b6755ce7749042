"""The producer: ways of sending, topics, shutdown. (Failures: `test_client_producer_faults.py`.)"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from rmq_broker.topics.permissions import READ
from rmq_client import (
    BatchPolicy,
    ClientSettings,
    Compression,
    CompressionType,
    Message,
    MessageQueue,
    NameServerUnreachable,
    NoQueue,
    NotRunning,
    Producer,
    SendStatus,
    Serialization,
    TopicNotFound,
    UsageError,
    by_key_hash,
)
from rmq_remoting.codes import RequestCode
from rmq_remoting.command import Serialization as HeaderForm
from rmq_remoting.compression import decompress
from tests.support.clusters import running_cluster
from tests.support.ports import free_port
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until

_SEND = RequestCode.SEND_MESSAGE_V2


async def _until_queues(producer: Producer, topic: str, count: int) -> None:
    async with asyncio.timeout(20):
        while len(await producer.queues(topic)) != count:  # noqa: ASYNC110  # another thread refreshes
            await asyncio.sleep(0.01)


async def test_a_message_is_stored_as_sent(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        message = Message("T", b"body", tags="a", keys=["k1", "k2"], properties={"x": "ü"}, flag=7)
        result = await producer.send(message)

        stored = cluster.broker.stored("T", 0)[0]
        assert (stored.body, stored.flag, stored.tags, stored.keys) == (b"body", 7, "a", ["k1", "k2"])
        assert stored.properties["x"] == "ü"
        assert stored.unique_key == result.msg_id
        assert result.status is SendStatus.SEND_OK
        assert result.queue == MessageQueue("T", "broker-a", 0)
        assert (result.queue_offset, result.offset_msg_id) == (0, stored.offset_msg_id)
        assert message.unique_key is None, "the message can be sent again, as another one"
        target = cluster.broker.sends[0].target
        assert (target.producer_group, target.default_topic, target.default_topic_queue_nums) == (
            "g",
            "TBW102",
            4,
        )
        assert target.broker_name == "broker-a"
        assert abs(cluster.broker.sends[0].born_timestamp_ms - time.time() * 1000) < 60_000


async def test_headers_are_binary_unless_the_settings_say_otherwise(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        for form in (Serialization.BINARY, Serialization.JSON):
            async with Producer(
                cluster.address, group="g", settings=ClientSettings(serialization=form)
            ) as producer:
                await producer.send(Message("T", b"1"))
                await producer.send_batch([Message("T", b"2"), Message("T", b"3")])
        sends = cluster.broker.requests(_SEND) + cluster.broker.requests(RequestCode.SEND_BATCH_MESSAGE)
        assert [request.serialization for request in sends] == [
            HeaderForm.BINARY,
            HeaderForm.JSON,
            HeaderForm.BINARY,
            HeaderForm.JSON,
        ]
        assert cluster.broker.bodies() == [b"1", b"2", b"3"] * 2


async def test_messages_use_all_queues_of_all_brokers_in_turn(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path, {"broker-a": {"T": 2}, "broker-b": {"T": 3}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        results = [await producer.send(Message("T", b"x")) for _ in range(10)]
        queues = await producer.queues("T")
        assert len(queues) == 5
        assert {result.queue for result in results[:5]} == set(queues)
        assert [result.queue for result in results[:5]] == [result.queue for result in results[5:]]


async def test_a_queue_a_selector_and_a_key_select_the_queue(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path, {"broker-a": {"T": 4}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        queue = MessageQueue("T", "broker-a", 2)
        assert (await producer.send(Message("T", b"x"), queue=queue)).queue == queue
        last = await producer.send(Message("T", b"x"), selector=lambda queues, message, key: queues[-1])
        assert last.queue.queue_id == 3
        chosen = await producer.send(Message("T", b"x"), selector=by_key_hash, key="order-1")
        assert chosen.queue == by_key_hash(await producer.queues("T"), Message("T", b"x"), "order-1")
        assert (await producer.send(Message("T", b"x"), key="order-1")).queue == chosen.queue
        with pytest.raises(UsageError, match="either a queue, or a selector"):
            await producer.send(Message("T", b"x"), queue=queue, key=1)
        with pytest.raises(UsageError, match="must return one of the queues"):
            await producer.send(Message("T", b"x"), selector=lambda queues, message, key: None)  # type: ignore[arg-type,return-value]
        with pytest.raises(NoQueue, match="not a queue of topic T, which is on broker-a"):
            await producer.send(Message("T", b"x"), queue=MessageQueue("T", "elsewhere", 0))


async def test_batches_are_stored_together_with_an_id_for_each_message(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path, {"broker-a": {"T": 4}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        messages = [Message("T", b"%d" % number, tags=f"t{number}") for number in range(3)]
        results = await producer.send_batch(messages, queue=MessageQueue("T", "broker-a", 1))

        stored = cluster.broker.stored("T", 1)
        assert [message.body for message in stored] == [b"0", b"1", b"2"]
        assert [message.unique_key for message in stored] == [result.msg_id for result in results]
        assert [message.tags for message in stored] == ["t0", "t1", "t2"]
        assert [result.queue_offset for result in results] == [0, 1, 2]
        assert [result.offset_msg_id for result in results] == [message.offset_msg_id for message in stored]
        assert len({result.msg_id for result in results}) == 3


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([], "at least one message"),
        ([Message("T", b"1"), Message("U", b"2")], "must agree in topic"),
        ([Message("T", b"1", delay_level=3)], "delayed"),
        ([Message("T", b"")], "empty body"),
        ([Message("T", b"x" * 3_000_000), Message("T", b"x" * 3_000_000)], "send it in parts"),
    ],
)
async def test_invalid_batches_are_refused(messages: list[Message], problem: str, tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        with pytest.raises(UsageError, match=problem):
            await producer.send_batch(messages)
        assert cluster.broker.recorded.codes() == []


async def test_automatic_batching_returns_a_result_to_each_sender(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path, {"broker-a": {"T": 2, "U": 1}}) as cluster,
        Producer(cluster.address, group="g", batching=BatchPolicy(max_messages=10)) as producer,
    ):
        topics = ["T" if number % 3 else "U" for number in range(60)]
        (
            await producer.queues("T"),
            await producer.queues("U"),
        )  # with known routes, all sends begin in one turn of the loop
        results = await asyncio.gather(
            *(producer.send(Message(topic, b"%d" % number)) for number, topic in enumerate(topics))
        )
        for number, (topic, result) in enumerate(zip(topics, results, strict=True)):
            stored = cluster.broker.stored(topic, result.queue.queue_id)[result.queue_offset]
            assert (stored.body, stored.unique_key) == (b"%d" % number, result.msg_id)
        assert len(cluster.broker.requests(RequestCode.SEND_BATCH_MESSAGE)) == 6
        assert cluster.broker.requests(_SEND) == []


async def test_messages_that_cannot_be_batched_are_sent_alone(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path) as cluster,
        Producer(cluster.address, group="g", batching=BatchPolicy()) as producer,
    ):
        await asyncio.gather(
            producer.send(Message("T", b"x" * 5000)),
            producer.send(Message("T", b"later", delay_level=1)),
            producer.send(Message("T", b"1")),
            producer.send(Message("T", b"2")),
        )
        assert len(cluster.broker.requests(_SEND)) == 2
        assert len(cluster.broker.requests(RequestCode.SEND_BATCH_MESSAGE)) == 1


@pytest.mark.parametrize("kind", list(CompressionType))
async def test_large_bodies_are_compressed(kind: CompressionType, tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path) as cluster,
        Producer(cluster.address, group="g", compression=Compression(type=kind)) as producer,
    ):
        small, large, huge = b"a" * 4095, b"b" * 4096, os.urandom(1000) * 100
        for body in (small, large, huge):
            await producer.send(Message("T", body))
        sent = [request.body for request in cluster.broker.requests(_SEND)]
        assert sent[0] == small
        assert [header.target.sys_flag for header in cluster.broker.sends] == [
            0,
            kind.sys_flag,
            kind.sys_flag,
        ]
        assert [decompress(body, kind) for body in sent[1:]] == [large, huge]
        assert cluster.broker.bodies() == [small, large, huge]


async def test_compression_can_be_turned_off(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path) as cluster,
        Producer(cluster.address, group="g", compression=None) as producer,
    ):
        await producer.send(Message("T", b"b" * 10_000))
        (sent,) = cluster.broker.requests(_SEND)
        assert sent.body == b"b" * 10_000


async def test_one_way_sends_get_no_answer(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        ids = [await producer.send_oneway(Message("T", b"x")) for _ in range(3)]
        await until(lambda: len(cluster.broker.sends) == 3)
        assert [message.unique_key for message in cluster.broker.stored("T", 0)] == ids
        assert all(request.is_oneway for request in cluster.broker.requests(_SEND))
        await until(lambda: producer.in_flight == 0)


# --- topics ---


async def test_a_topic_without_a_route(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path, {"broker-a": {}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        with pytest.raises(TopicNotFound) as caught:
            await producer.send(Message("Nowhere", b"x"))
        assert str(caught.value) == (
            f"topic Nowhere has no route on {cluster.address}: create it, or start the broker with "
            "autoCreateTopicEnable=true"
        )
        await cluster.broker.set_queues("Nowhere", 1)
        await producer.send(Message("Nowhere", b"x"))


async def test_the_first_message_creates_a_topic_on_demand(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path, {"broker-a": {}}, autoCreateTopicEnable=True) as cluster,
        Producer(cluster.address, group="g", new_topic_queues=3) as producer,
    ):
        queues = await producer.queues("New")
        assert [queue.queue_id for queue in queues] == [0, 1, 2]
        await producer.send(Message("New", b"x"))
        created = cluster.broker.topics.get("New")
        assert created is not None and created.write_queue_nums == 3
        await cluster.broker.set_queues("New", 5)
        await _until_queues(producer, "New", 5)


async def test_a_topic_without_write_permission_raises_no_queue(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path, {"broker-a": {"T": 4}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        await cluster.broker.set_queues("T", 4, perm=READ)
        with pytest.raises(NoQueue, match="no queue that can be written"):
            await producer.send(Message("T", b"x"))
        await cluster.broker.set_queues("T", 4)
        async with asyncio.timeout(20):
            while True:
                try:
                    await producer.send(Message("T", b"x"))
                    break
                except NoQueue:
                    await asyncio.sleep(0.01)


async def test_routes_are_refreshed(tmp_path: Path) -> None:
    settings = ClientSettings(route_refresh_seconds=0.05)
    async with (
        running_cluster(tmp_path) as cluster,
        Producer(cluster.address, group="g", settings=settings) as producer,
    ):
        assert len(await producer.queues("T")) == 1
        await cluster.broker.set_queues("T", 6)
        await _until_queues(producer, "T", 6)


@pytest.mark.parametrize("topic", ["", "a b", "x" * 128, "SCHEDULE_TOPIC_XXXX", "ümlaut"])
async def test_invalid_topics_are_refused(topic: str, tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path, {"broker-a": {}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        with pytest.raises(UsageError, match="topic"):
            await producer.send(Message(topic, b"x"))
        assert cluster.recorded.of(RequestCode.GET_ROUTEINFO_BY_TOPIC) == []


async def test_invalid_messages_are_refused(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path) as cluster,
        Producer(cluster.address, group="g", max_message_bytes=10) as producer,
    ):
        with pytest.raises(UsageError, match="empty body"):
            await producer.send(Message("T", b""))
        with pytest.raises(UsageError, match=r"11 bytes, 10 are allowed.*maxMessageSize"):
            await producer.send(Message("T", b"x" * 11))
        with pytest.raises(UsageError, match="the limit is 32767"):
            await producer.send(Message("T", b"x", properties={"p": "v" * 32_750}))
        with pytest.raises(
            UsageError, match=r"flag of a message to T is 2147483648: it must fit into 32 bits"
        ):
            await producer.send(Message("T", b"x", flag=1 << 31))
        for level in (-1, "soon"):
            wrong = Message("T", b"x")
            wrong.properties["DELAY"] = str(level)
            with pytest.raises(UsageError, match=f"delay_level .* '{level}': it must be a number from 0"):
                await producer.send(wrong)
        assert cluster.broker.recorded.codes() == []
        assert producer.in_flight == 0


# --- name servers ---


async def test_no_name_server() -> None:
    address = f"127.0.0.1:{free_port()}"
    async with Producer(address, group="g") as producer:
        with pytest.raises(NameServerUnreachable, match=f"no name server of {address} answers"):
            await producer.send(Message("T", b"x"))


async def test_an_unreachable_name_server_is_replaced_by_the_next(tmp_path: Path) -> None:
    dead = f"127.0.0.1:{free_port()}"
    async with (
        running_cluster(tmp_path) as cluster,
        Producer(f"{dead};{cluster.address}", group="g") as producer,
    ):
        await producer.send(Message("T", b"x"))


# --- starting and stopping ---


async def test_stop_waits_for_sends_in_flight(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        producer = Producer(cluster.address, group="g", batching=BatchPolicy(linger_seconds=60, eager=False))
        await producer.start()
        sends = [asyncio.ensure_future(producer.send(Message("T", b"%d" % n))) for n in range(3)]
        await until(lambda: producer.in_flight == 3)
        await producer.stop()
        assert [(await send).queue_offset for send in sends] == [0, 1, 2]
        unregistered = cluster.broker.requests(RequestCode.UNREGISTER_CLIENT)
        assert [request.ext_fields["producerGroup"] for request in unregistered] == ["g"]
        assert cluster.broker.connections == set()
        with pytest.raises(NotRunning, match="producer g is not running: begin a block by `async with`"):
            await producer.send(Message("T", b"x"))
        await producer.stop()


async def test_a_producer_can_be_started_again(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        producer = Producer(cluster.address, group="g")
        for _ in range(2):
            async with producer:
                await producer.send(Message("T", b"x"))
                with pytest.raises(UsageError, match="started already"):
                    await producer.start()
        assert len(cluster.broker.messages()) == 2


async def test_a_producer_belongs_to_one_loop(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):

        def elsewhere() -> None:
            with pytest.raises(UsageError, match="belongs to another event loop"):
                asyncio.run(producer.send(Message("T", b"x")))

        await asyncio.to_thread(elsewhere)


async def test_a_new_broker_is_found_by_a_route_refresh(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        later = MessageQueue("T", "broker-b", 0)
        async with Producer(cluster.address, group="PG") as producer:
            await producer.send(Message("T", b"x"))
            await cluster.add(tmp_path, "broker-b", {"T": 1})
            with pytest.raises(NoQueue, match=r"not a queue of topic T, which is on broker-a$"):
                await producer.send(Message("T", b"x"), queue=later)
            # A route refresh was requested: without that, one follows twice a minute.
            await _until_queues(producer, "T", 2)
            assert (await producer.send(Message("T", b"x"), queue=later)).queue == later
