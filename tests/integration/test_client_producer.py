"""The producer against brokers in memory: every way of sending, and every failure."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rmq_client import (
    Admin,
    BatchPolicy,
    BrokerUnreachable,
    ClientError,
    ClientSettings,
    Compression,
    CompressionType,
    FaultTolerance,
    InFlightLimits,
    Message,
    MessageQueue,
    NameServerUnreachable,
    NoQueue,
    NotRunning,
    Producer,
    Rejected,
    RetryPolicy,
    SendStatus,
    Serialization,
    TimedOut,
    TopicNotFound,
    UsageError,
    by_key_hash,
)
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import Serialization as HeaderForm
from rmq_remoting.compression import decompress
from rmq_remoting.connection import Connection
from tests.support.ports import free_port
from tests.support.proxy import FaultProxy, fault_proxy
from tests.support.waiting import until
from tests.unit.client.fake_cluster import FakeCluster, Fault
from tests.unit.client.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture

_SEND = RequestCode.SEND_MESSAGE_V2


async def _until_queues(producer: Producer, topic: str, count: int) -> None:
    async with asyncio.timeout(5):
        while len(await producer.queues(topic)) != count:  # noqa: ASYNC110  # another thread refreshes
            await asyncio.sleep(0.01)


async def test_a_message_is_stored_as_sent() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        message = Message("T", b"body", tags="a", keys=["k1", "k2"], properties={"x": "ü"}, flag=7)
        result = await producer.send(message)

        stored = cluster.broker.queues["T", 0].records[0]
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


async def test_headers_are_binary_unless_the_settings_say_otherwise() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
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
        assert cluster.broker.bodies == [b"1", b"2", b"3"] * 2


async def test_messages_use_all_queues_of_all_brokers_in_turn() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 2}, "broker-b": {"T": 3}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        results = [await producer.send(Message("T", b"x")) for _ in range(10)]
        queues = await producer.queues("T")
        assert len(queues) == 5
        assert {result.queue for result in results[:5]} == set(queues)
        assert [result.queue for result in results[:5]] == [result.queue for result in results[5:]]


async def test_a_queue_a_selector_and_a_key_select_the_queue() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 4}}) as cluster,
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


async def test_batches_are_stored_together_with_an_id_for_each_message() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 4}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        messages = [Message("T", b"%d" % number, tags=f"t{number}") for number in range(3)]
        results = await producer.send_batch(messages, queue=MessageQueue("T", "broker-a", 1))

        stored = cluster.broker.queues["T", 1].records
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
async def test_invalid_batches_are_refused(messages: list[Message], problem: str) -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        with pytest.raises(UsageError, match=problem):
            await producer.send_batch(messages)
        assert cluster.broker.seen == []


async def test_automatic_batching_returns_a_result_to_each_sender() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 2, "U": 1}}) as cluster,
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
            stored = cluster.broker.queues[topic, result.queue.queue_id].records[result.queue_offset]
            assert (stored.body, stored.unique_key) == (b"%d" % number, result.msg_id)
        assert len(cluster.broker.requests(RequestCode.SEND_BATCH_MESSAGE)) == 6
        assert cluster.broker.requests(_SEND) == []


async def test_messages_that_cannot_be_batched_are_sent_alone() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
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


async def test_a_failed_batch_fails_all_its_sends() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g", batching=BatchPolicy()) as producer,
    ):
        await producer.queues("T")
        cluster.broker.order(RequestCode.SEND_BATCH_MESSAGE, Fault(code=ResponseCode.MESSAGE_ILLEGAL))
        outcomes = await asyncio.gather(
            *(producer.send(Message("T", b"x")) for _ in range(3)), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [Rejected] * 3
        assert producer.in_flight == 0


@pytest.mark.parametrize("kind", list(CompressionType))
async def test_large_bodies_are_compressed(kind: CompressionType) -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g", compression=Compression(type=kind)) as producer,
    ):
        small, large, huge = b"a" * 4095, b"b" * 4096, os.urandom(1000) * 100
        for body in (small, large, huge):
            await producer.send(Message("T", body))
        assert cluster.broker.bodies[0] == small
        assert [header.target.sys_flag for header in cluster.broker.sends] == [
            0,
            kind.sys_flag,
            kind.sys_flag,
        ]
        assert [decompress(body, kind) for body in cluster.broker.bodies[1:]] == [large, huge]


async def test_compression_can_be_turned_off() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g", compression=None) as producer,
    ):
        await producer.send(Message("T", b"b" * 10_000))
        assert cluster.broker.bodies == [b"b" * 10_000]


async def test_one_way_sends_get_no_answer() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        cluster.broker.order(_SEND, *(Fault(silent=True, after=True) for _ in range(3)))
        ids = [await producer.send_oneway(Message("T", b"x")) for _ in range(3)]
        await until(lambda: len(cluster.broker.sends) == 3)
        assert [message.unique_key for message in cluster.broker.queues["T", 0].records] == ids
        assert all(request.is_oneway for request in cluster.broker.requests(_SEND))
        await until(lambda: producer.in_flight == 0)


async def test_one_way_sends_raise_without_a_broker() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        await producer.queues("T")
        await cluster.broker.close()
        with pytest.raises(BrokerUnreachable, match="cannot connect"):
            await producer.send_oneway(Message("T", b"x"))


# --- topics ---


async def test_a_topic_without_a_route() -> None:
    async with FakeCluster({"broker-a": {}}) as cluster, Producer(cluster.address, group="g") as producer:
        with pytest.raises(TopicNotFound) as caught:
            await producer.send(Message("Nowhere", b"x"))
        assert str(caught.value) == (
            f"topic Nowhere has no route on {cluster.address}: create it, or start the broker with "
            "autoCreateTopicEnable=true"
        )
        cluster.broker.topics["Nowhere"] = 1
        await producer.send(Message("Nowhere", b"x"))


async def test_the_first_message_creates_a_topic_on_demand() -> None:
    async with (
        FakeCluster({"broker-a": {"TBW102": 8}}) as cluster,
        Producer(cluster.address, group="g", new_topic_queues=3) as producer,
    ):
        cluster.broker.auto_create = True
        queues = await producer.queues("New")
        assert [queue.queue_id for queue in queues] == [0, 1, 2]
        await producer.send(Message("New", b"x"))
        assert cluster.broker.topics["New"] == 3
        cluster.broker.topics["New"] = 5
        await _until_queues(producer, "New", 5)


async def test_a_topic_without_write_permission_raises_no_queue() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 4}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        cluster.broker.permissions["T"] = 4
        with pytest.raises(NoQueue, match="no queue that can be written"):
            await producer.send(Message("T", b"x"))
        cluster.broker.permissions["T"] = 6
        async with asyncio.timeout(5):
            while True:
                try:
                    await producer.send(Message("T", b"x"))
                    break
                except NoQueue:
                    await asyncio.sleep(0.01)


async def test_routes_are_refreshed() -> None:
    settings = ClientSettings(route_refresh_seconds=0.05)
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g", settings=settings) as producer,
    ):
        assert len(await producer.queues("T")) == 1
        cluster.broker.topics["T"] = 6
        await _until_queues(producer, "T", 6)


@pytest.mark.parametrize("topic", ["", "a b", "x" * 128, "SCHEDULE_TOPIC_XXXX", "ümlaut"])
async def test_invalid_topics_are_refused(topic: str) -> None:
    async with FakeCluster({"broker-a": {}}) as cluster, Producer(cluster.address, group="g") as producer:
        with pytest.raises(UsageError, match="topic"):
            await producer.send(Message(topic, b"x"))
        assert cluster.namesrv.seen == []


async def test_invalid_messages_are_refused() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
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
        assert cluster.broker.seen == []
        assert producer.in_flight == 0


# --- failures ---


@pytest.mark.parametrize(
    "code", [ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.TOPIC_NOT_EXIST]
)
async def test_an_unavailable_broker_is_replaced_by_another(code: ResponseCode) -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}, "broker-b": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        cluster.brokers["broker-a"].order(_SEND, Fault(code=code))
        results = [await producer.send(Message("T", b"x")) for _ in range(2)]
        assert "broker-b" in {result.queue.broker_name for result in results}
        assert sum(len(broker.requests(_SEND)) for broker in cluster.brokers.values()) == 3


async def test_a_single_broker_is_retried() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        cluster.broker.order(_SEND, Fault(code=ResponseCode.SYSTEM_BUSY), Fault(cut=True))
        result = await producer.send(Message("T", b"x"))
        assert result.queue_offset == 0
        assert len(cluster.broker.requests(_SEND)) == 3
        ids = {header.properties for header in cluster.broker.sends}
        assert len(ids) == 1


async def test_all_attempts_fail() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g", retry=RetryPolicy(retries=1)) as producer,
    ):
        cluster.broker.order(
            _SEND, *(Fault(code=ResponseCode.SYSTEM_BUSY, remark="too much") for _ in range(2))
        )
        with pytest.raises(Exception, match=r"answered 2 \(SYSTEM_BUSY\): too much") as caught:
            await producer.send(Message("T", b"x"))
        assert caught.value.retryable  # type: ignore[attr-defined]
        assert len(cluster.broker.requests(_SEND)) == 2


async def test_a_rejected_message_is_not_retried() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        cluster.broker.order(_SEND, Fault(code=ResponseCode.MESSAGE_ILLEGAL, remark="bad"))
        with pytest.raises(Rejected, match="bad"):
            await producer.send(Message("T", b"x"))
        cluster.broker.order(_SEND, Fault(code=4711))
        with pytest.raises(Exception, match=r"4711 \(unknown code\)"):
            await producer.send(Message("T", b"x"))
        assert len(cluster.broker.requests(_SEND)) == 2


async def test_a_send_to_a_chosen_queue_is_not_retried() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}, "broker-b": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        broker = cluster.brokers["broker-a"]
        broker.order(_SEND, Fault(code=ResponseCode.SYSTEM_BUSY))
        with pytest.raises(Exception, match="SYSTEM_BUSY"):
            await producer.send(Message("T", b"x"), queue=MessageQueue("T", "broker-a", 0))
        assert cluster.brokers["broker-b"].seen == []


async def test_one_timeout_bounds_all_attempts() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}, "broker-b": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g", timeout_seconds=0.3) as producer,
    ):
        for broker in cluster.brokers.values():
            broker.order(_SEND, *(Fault(silent=True) for _ in range(3)))
        began = time.monotonic()
        with pytest.raises(TimedOut, match="no response from"):
            await producer.send(Message("T", b"x"))
        assert 0.25 < time.monotonic() - began < 0.8
        assert producer.in_flight == 0
        cluster.namesrv.order(RequestCode.GET_ROUTEINFO_BY_TOPIC, Fault(silent=True))
        with pytest.raises(TimedOut, match="did not return the route of topic Other"):
            await producer.send(Message("Other", b"x"))


async def test_a_late_answer_is_ignored() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        cluster.broker.order(_SEND, Fault(delay_seconds=0.4))
        with pytest.raises(TimedOut):
            await producer.send(Message("T", b"late"), timeout_seconds=0.1)
        assert (await producer.send(Message("T", b"next"))).status is SendStatus.SEND_OK
        await until(lambda: b"late" in cluster.broker.bodies)
        assert (await producer.send(Message("T", b"more"))).status is SendStatus.SEND_OK


async def test_a_broker_that_was_restarted_is_found_again() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        await producer.send(Message("T", b"1"))
        await cluster.broker.close()
        with pytest.raises(BrokerUnreachable):
            await producer.send(Message("T", b"2"), timeout_seconds=0.3)
        await cluster.broker.listen()
        async with asyncio.timeout(10):
            while True:
                try:
                    await producer.send(Message("T", b"3"))
                    break
                except BrokerUnreachable:
                    await asyncio.sleep(0.01)
        await until(lambda: cluster.broker.requests(RequestCode.HEART_BEAT))


async def test_statuses_other_than_send_ok_are_no_errors() -> None:
    async with FakeCluster({"broker-a": {"T": 1}, "broker-b": {"T": 1}}) as cluster:
        flush = ResponseCode.FLUSH_DISK_TIMEOUT
        fields = {"msgId": "7F00000100002A9F0000000000000000", "queueId": "0", "queueOffset": "9"}
        broker = cluster.brokers["broker-a"]
        stored = broker.send

        def unsafely(connection: object, request: object) -> object:
            return request.response(flush, ext_fields=fields)  # type: ignore[attr-defined]

        await broker.close()
        broker.send = unsafely  # type: ignore[method-assign,assignment]
        await broker.listen()
        async with Producer(cluster.address, group="g") as producer:
            queue = MessageQueue("T", "broker-a", 0)
            result = await producer.send(Message("T", b"x"), queue=queue)
            assert (result.status, result.queue_offset) == (SendStatus.FLUSH_DISK_TIMEOUT, 9)
        policy = RetryPolicy(unless_stored_safely=True)
        async with Producer(cluster.address, group="g", retry=policy) as producer:
            results = [await producer.send(Message("T", b"x")) for _ in range(4)]
            assert {result.queue.broker_name for result in results} == {"broker-b"}
            assert all(result.status is SendStatus.SEND_OK for result in results)
        broker.send = stored  # type: ignore[method-assign]


async def test_no_name_server() -> None:
    address = f"127.0.0.1:{free_port()}"
    async with Producer(address, group="g") as producer:
        with pytest.raises(NameServerUnreachable, match=f"no name server of {address} answers"):
            await producer.send(Message("T", b"x"))


async def test_an_unreachable_name_server_is_replaced_by_the_next() -> None:
    dead = f"127.0.0.1:{free_port()}"
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(f"{dead};{cluster.address}", group="g") as producer,
    ):
        await producer.send(Message("T", b"x"))


# --- bounds, cancelling, ending ---


async def test_sends_above_the_bounds_wait() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g", limits=InFlightLimits(max_messages=2)) as producer,
    ):
        cluster.broker.order(_SEND, Fault(delay_seconds=0.1), Fault(delay_seconds=0.1))
        sends = [asyncio.ensure_future(producer.send(Message("T", b"%d" % n))) for n in range(5)]
        await until(lambda: len(cluster.broker.requests(_SEND)) == 2)
        assert producer.in_flight == 2
        await asyncio.gather(*sends)
        assert producer.in_flight == 0


async def test_waiting_for_admission_ends_in_time() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g", limits=InFlightLimits(max_messages=1)) as producer,
    ):
        cluster.broker.order(_SEND, Fault(delay_seconds=0.5))
        first = asyncio.ensure_future(producer.send(Message("T", b"1")))
        await until(lambda: producer.in_flight == 1)
        with pytest.raises(TimedOut, match=r"1 messages .* are in flight; send slower"):
            await producer.send(Message("T", b"2"), timeout_seconds=0.05)
        await first


async def test_cancelled_sends_leave_nothing_behind() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        cluster.broker.order(_SEND, *(Fault(silent=True) for _ in range(20)))
        sends = [asyncio.ensure_future(producer.send(Message("T", b"x"))) for _ in range(20)]
        await until(lambda: len(cluster.broker.requests(_SEND)) == 20)
        for send in sends:
            send.cancel()
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
        assert producer.in_flight == 0
        assert (await producer.send(Message("T", b"y"))).status is SendStatus.SEND_OK


async def test_stop_waits_for_sends_in_flight() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        producer = Producer(cluster.address, group="g", batching=BatchPolicy(linger_ms=60_000, eager=False))
        await producer.start()
        sends = [asyncio.ensure_future(producer.send(Message("T", b"%d" % n))) for n in range(3)]
        await until(lambda: producer.in_flight == 3)
        await producer.stop()
        assert [(await send).queue_offset for send in sends] == [0, 1, 2]
        unregistered = cluster.broker.requests(RequestCode.UNREGISTER_CLIENT)
        assert [request.ext_fields["producerGroup"] for request in unregistered] == ["g"]
        assert cluster.broker.connections == set()
        with pytest.raises(NotRunning, match="async with Producer"):
            await producer.send(Message("T", b"x"))
        await producer.stop()


async def test_a_producer_can_be_started_again() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        producer = Producer(cluster.address, group="g")
        for _ in range(2):
            async with producer:
                await producer.send(Message("T", b"x"))
                with pytest.raises(UsageError, match="started already"):
                    await producer.start()
        assert len(cluster.broker.bodies) == 2


async def test_a_producer_belongs_to_one_loop() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):

        def elsewhere() -> None:
            with pytest.raises(UsageError, match="belongs to another event loop"):
                asyncio.run(producer.send(Message("T", b"x")))

        await asyncio.to_thread(elsewhere)


async def test_a_new_broker_is_found_by_a_route_refresh() -> None:
    async with FakeCluster({"broker-a": {"T": 1}, "broker-b": {"T": 1}}) as cluster:
        cluster.brokers["broker-b"].listed = False
        later = MessageQueue("T", "broker-b", 0)
        async with Producer(cluster.address, group="PG") as producer:
            await producer.send(Message("T", b"x"))
            cluster.brokers["broker-b"].listed = True
            with pytest.raises(NoQueue, match=r"not a queue of topic T, which is on broker-a$"):
                await producer.send(Message("T", b"x"), queue=later)
            # A route refresh was requested: without that, one follows twice a minute.
            await _until_queues(producer, "T", 2)
            assert (await producer.send(Message("T", b"x"), queue=later)).queue == later


async def test_admin_creates_topics() -> None:
    async with FakeCluster({"broker-a": {}, "broker-b": {}}) as cluster, Admin(cluster.address) as admin:
        await admin.create_topic("T", queues=3)
        assert [broker.topics for broker in cluster.brokers.values()] == [{"T": 3}, {"T": 3}]
        await admin.create_topic("U", queues=1, broker_name="broker-b")
        assert "U" not in cluster.brokers["broker-a"].topics
        assert await admin.topics() == ["T", "U"]
        with pytest.raises(UsageError, match=r"broker-c has no master; brokers known .*: broker-a, broker-b"):
            await admin.create_topic("V", broker_name="broker-c")
        cluster.brokers["broker-a"].listed = False
        with pytest.raises(Exception, match="created on broker-a, but the name servers do not list"):
            await admin.create_topic("W", timeout_seconds=0.2)


# --- high availability ---


async def test_a_hanging_broker_does_not_use_up_the_timeout() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}, "broker-b": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g", timeout_seconds=3.0) as producer,
    ):
        cluster.brokers["broker-a"].order(_SEND, *(Fault(silent=True) for _ in range(10)))
        results = await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(10)))
        assert {result.queue.broker_name for result in results} == {"broker-b"}


async def test_a_retry_avoids_all_brokers_that_failed_in_this_send() -> None:
    brokers = {name: {"T": 4} for name in ("broker-a", "broker-b", "broker-c")}
    async with FakeCluster(brokers) as cluster, Producer(cluster.address, group="g") as producer:
        for name in ("broker-a", "broker-b"):
            cluster.brokers[name].order(_SEND, *(Fault(code=ResponseCode.SYSTEM_BUSY) for _ in range(100)))
        for _ in range(12):
            assert (await producer.send(Message("T", b"x"))).queue.broker_name == "broker-c"


async def test_a_failed_broker_is_avoided_for_a_while() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}, "broker-b": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g", fault_tolerance=FaultTolerance.v5()) as producer,
    ):
        bad = cluster.brokers["broker-a"]
        bad.order(_SEND, Fault(code=ResponseCode.SERVICE_NOT_AVAILABLE))
        for _ in range(20):
            await producer.send(Message("T", b"x"))
        assert len(bad.requests(_SEND)) == 1
        for _ in range(5):
            await producer.send_oneway(Message("T", b"x"))
        await until(lambda: len(cluster.brokers["broker-b"].bodies) == 25)
        chosen = MessageQueue("T", "broker-a", 0)
        assert (await producer.send(Message("T", b"x"), queue=chosen)).queue == chosen, "who chooses gets it"


async def test_refusals_caused_by_the_message_avoid_no_broker() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}, "broker-b": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g", fault_tolerance=FaultTolerance.v5()) as producer,
    ):
        for broker in cluster.brokers.values():
            broker.order(_SEND, Fault(code=ResponseCode.MESSAGE_ILLEGAL))
        for _ in range(2):
            with pytest.raises(Rejected):
                await producer.send(Message("T", b"x"))
        results = [await producer.send(Message("T", b"x")) for _ in range(4)]
        assert {result.queue.broker_name for result in results} == set(cluster.brokers)


async def test_the_detector_finds_recovered_brokers() -> None:
    tolerance = FaultTolerance(
        avoidance=((0, 0), (10_000, 200)), start_detector=True, detect_interval_ms=20, detect_timeout_ms=500
    )
    async with (
        FakeCluster({"broker-a": {"T": 1}, "broker-b": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g", fault_tolerance=tolerance) as producer,
    ):
        bad = cluster.brokers["broker-a"]
        bad.order(_SEND, Fault(cut=True))
        bad.order(RequestCode.GET_MAX_OFFSET, Fault(code=ResponseCode.SYSTEM_ERROR))
        for _ in range(2):
            await producer.send(Message("T", b"x"))
        await until(lambda: len(bad.requests(RequestCode.GET_MAX_OFFSET)) == 2)
        before = len(bad.bodies)
        async with asyncio.timeout(5):
            while len(bad.bodies) == before:
                await producer.send(Message("T", b"x"))


@pytest.mark.parametrize(
    ("fault", "is_unknown", "is_stored"),
    [
        (Fault(cut=True), True, False),
        (Fault(cut=True, after=True), True, True),
        (Fault(silent=True), True, False),
        (Fault(silent=True, after=True), True, True),
        (Fault(code=ResponseCode.SYSTEM_BUSY), False, False),
        (Fault(code=ResponseCode.MESSAGE_ILLEGAL), False, False),
        (Fault(code=ResponseCode.SYSTEM_ERROR), True, False),
    ],
)
async def test_errors_tell_whether_the_message_may_be_stored(
    fault: Fault, is_unknown: bool, is_stored: bool
) -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g", retry=RetryPolicy(retries=0), timeout_seconds=0.3) as producer,
    ):
        cluster.broker.order(_SEND, fault)
        with pytest.raises(ClientError) as caught:
            await producer.send(Message("T", b"x"))
        assert caught.value.is_outcome_unknown == is_unknown
        assert (cluster.broker.bodies == [b"x"]) == is_stored


async def test_an_unknown_outcome_stays_unknown_after_later_attempts() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g", retry=RetryPolicy(retries=1)) as producer,
    ):
        cluster.broker.order(_SEND, Fault(cut=True, after=True), Fault(code=ResponseCode.SYSTEM_BUSY))
        with pytest.raises(ClientError, match="SYSTEM_BUSY") as caught:
            await producer.send(Message("T", b"x"))
        assert caught.value.is_outcome_unknown


async def test_a_refused_connection_has_a_known_outcome() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        await producer.queues("T")
        await cluster.broker.close()
        with pytest.raises(BrokerUnreachable) as caught:
            await producer.send(Message("T", b"x"))
        assert not caught.value.is_outcome_unknown


@asynccontextmanager
async def _behind_proxy(cluster: FakeCluster) -> AsyncIterator[FaultProxy]:
    host, port = cluster.broker.address.split(":")
    async with fault_proxy(host, int(port)) as proxy:
        cluster.broker.announced = proxy.address
        yield proxy


async def _quiet_connection(producer: Producer, proxy: FaultProxy) -> Connection:
    """Return the connection through the proxy, once its first heartbeat is answered."""
    instance = producer._instance
    assert instance is not None
    connection = instance._client.existing(proxy.address)
    assert connection is not None
    await until(lambda: not connection.pending_requests)
    return connection


async def test_the_network_is_cut_before_a_send_arrives() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        _behind_proxy(cluster) as proxy,
        Producer(cluster.address, group="g", retry=RetryPolicy(retries=0)) as producer,
    ):
        await producer.send(Message("T", b"first"))
        connection = await _quiet_connection(producer, proxy)
        proxy.stall()
        sending = asyncio.ensure_future(producer.send(Message("T", b"x" * 3_000_000), timeout_seconds=10))
        await until(lambda: connection.pending_requests)
        proxy.cut()
        with pytest.raises(BrokerUnreachable) as caught:
            await sending
        assert caught.value.is_outcome_unknown
        proxy.resume()
        assert (await producer.send(Message("T", b"next"))).status is SendStatus.SEND_OK
        assert cluster.broker.bodies == [b"first", b"next"]


@pytest.mark.parametrize("passing_bytes", [1, 30, 500, 40_000])
async def test_the_network_is_cut_in_the_middle_of_the_request(passing_bytes: int) -> None:
    """In the length of the frame, its header, its body: the caller cannot know what the broker has."""
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        _behind_proxy(cluster) as proxy,
        Producer(cluster.address, group="g", compression=None, retry=RetryPolicy(retries=0)) as producer,
    ):
        await producer.send(Message("T", b"first"))
        await _quiet_connection(producer, proxy)
        proxy.cut_requests_after_bytes = passing_bytes
        with pytest.raises(BrokerUnreachable) as caught:
            await producer.send(Message("T", b"x" * 50_000))
        assert caught.value.is_outcome_unknown
        assert proxy.cut_requests_after_bytes is None, "so much of it has passed"
        assert cluster.broker.bodies == [b"first"], "a part of a message is none"
        assert (await producer.send(Message("T", b"next"))).status is SendStatus.SEND_OK
        assert cluster.broker.bodies == [b"first", b"next"]


@pytest.mark.parametrize("passing_bytes", [1, 30, 40_000])
async def test_an_interrupted_request_is_resent_whole(passing_bytes: int) -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        _behind_proxy(cluster) as proxy,
        Producer(cluster.address, group="g", compression=None) as producer,
    ):
        await producer.send(Message("T", b"first"))
        await _quiet_connection(producer, proxy)
        proxy.cut_requests_after_bytes = passing_bytes
        result = await producer.send(Message("T", b"x" * 50_000))
        assert result.status is SendStatus.SEND_OK
        assert proxy.cut_requests_after_bytes is None
        assert cluster.broker.bodies == [b"first", b"x" * 50_000]


async def test_the_network_is_cut_in_the_middle_of_the_answer() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        _behind_proxy(cluster) as proxy,
        Producer(cluster.address, group="g", retry=RetryPolicy(retries=0)) as producer,
    ):
        await producer.send(Message("T", b"first"))
        await _quiet_connection(producer, proxy)
        proxy.cut_after_bytes = 10
        with pytest.raises(BrokerUnreachable) as caught:
            await producer.send(Message("T", b"x"))
        assert caught.value.is_outcome_unknown
        assert cluster.broker.bodies == [b"first", b"x"]
        assert (await producer.send(Message("T", b"next"))).status is SendStatus.SEND_OK
