"""The push consumer against brokers in memory: refusals, damaged messages, brokers that stop and start."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rmq_client import (
    BrokerUnreachable,
    ClientError,
    ClientSettings,
    ConsumeResult,
    ConsumerTiming,
    FlowControl,
    MessageExt,
    NotRunning,
    OrderlyContext,
    PushConsumer,
    TopicNotFound,
    Unavailable,
    UsageError,
)
from rmq_remoting.bodies.route import BrokerData
from rmq_remoting.codes import RequestCode, ResponseCode
from tests.support.fake_cluster import FakeBroker, FakeCluster, FakeNamesrv, Fault
from tests.support.push_consumers import QUICK, Inbox, consumer_of, put
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until


@pytest.mark.parametrize(
    "fault",
    [
        Fault(code=ResponseCode.SYSTEM_BUSY),
        Fault(code=ResponseCode.FLOW_CONTROL),
        Fault(code=ResponseCode.SYSTEM_ERROR),
        Fault(code=ResponseCode.SUBSCRIPTION_NOT_EXIST),
        Fault(code=4711),
        Fault(cut=True),
        Fault(delay_seconds=0.1),
    ],
)
async def test_pulling_continues_after_a_failure(fault: Fault) -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        cluster.broker.put("T", b"x")
        cluster.broker.order(RequestCode.PULL_MESSAGE, fault, fault)
        inbox = Inbox()
        async with consumer_of(cluster, inbox):
            await until(lambda: inbox.bodies == [b"x"])


async def test_a_damaged_message_does_not_stop_the_queue(caplog: pytest.LogCaptureFixture) -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        for number in range(3):
            message = cluster.broker.put("T", b"%d" % number)
            if number == 1:
                message.sys_flag = 0x301  # claims to be compressed
        inbox = Inbox()
        async with consumer_of(cluster, inbox):
            await until(lambda: inbox.bodies == [b"0", b"2"])
        assert cluster.broker.offsets["g", "T", 0] == 3
        assert "cause=the zlib body of 1 bytes is truncated" in caplog.text


async def test_a_restarted_broker_is_pulled_again() -> None:
    async with FakeCluster({"broker-a": {"T": 2}}) as cluster:
        inbox = Inbox()
        async with consumer_of(cluster, inbox):
            cluster.broker.put("T", b"1")
            await until(lambda: inbox.bodies == [b"1"])
            await cluster.broker.close()
            cluster.broker.clients.clear()
            cluster.broker.put("T", b"2", queue_id=1)
            await cluster.broker.listen()
            await until(lambda: inbox.bodies == [b"1", b"2"], timeout_seconds=10)
            codes = cluster.broker.codes()
            assert cluster.broker.members("g"), codes


async def test_a_dead_broker_does_not_stop_the_others() -> None:
    settings = ClientSettings(heartbeat_seconds=0.05, route_refresh_seconds=0.05)
    async with FakeCluster({"broker-a": {"T": 1}, "broker-b": {"T": 1}}) as cluster:
        dead = cluster.brokers["broker-b"]
        await dead.close()
        inbox = Inbox()
        async with consumer_of(cluster, inbox, settings=settings) as consumer:
            for number in range(5):
                cluster.broker.put("T", b"%d" % number)
                await until(lambda: len(inbox.messages) == number + 1)  # noqa: B023
            beats = len(cluster.broker.requests(RequestCode.HEART_BEAT))
            await until(lambda: len(cluster.broker.requests(RequestCode.HEART_BEAT)) > beats + 2)
            assert len(await consumer.assigned_queues()) == 2
            await dead.listen()
            dead.put("T", b"late")
            await until(lambda: b"late" in inbox.bodies)


async def test_a_new_connection_sends_a_heartbeat_before_pulls() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        inbox = Inbox()
        async with consumer_of(cluster, inbox):
            await until(lambda: cluster.broker.requests(RequestCode.PULL_MESSAGE))
            cluster.broker.seen.clear()
            cluster.broker.cut_all()
            cluster.broker.put("T", b"x")
            await until(lambda: inbox.bodies == [b"x"])
            codes = cluster.broker.codes()
            assert codes.index(RequestCode.HEART_BEAT) < codes.index(RequestCode.PULL_MESSAGE)


async def test_a_stuck_queue_is_rebuilt() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        cluster.broker.order(RequestCode.PULL_MESSAGE, Fault(silent=True))
        cluster.broker.put("T", b"x")
        inbox = Inbox()
        timing = ConsumerTiming(rebalance_seconds=0.1, rebalance_again_seconds=0.05, stuck_seconds=0.3)
        async with consumer_of(cluster, inbox, timing=timing):
            await until(lambda: cluster.broker.requests(RequestCode.PULL_MESSAGE))
            assert inbox.messages == []
            await until(lambda: inbox.bodies == [b"x"])


async def test_messages_that_cannot_be_sent_back_are_sent_to_the_retry_topic() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        cluster.broker.put("T", b"x", tags="a")
        cluster.broker.auto_create = True
        cluster.broker.topics["TBW102"] = 4
        cluster.broker.order(RequestCode.CONSUMER_SEND_MSG_BACK, Fault(code=ResponseCode.SYSTEM_ERROR))
        got: list[MessageExt] = []

        def listen(messages: list[MessageExt]) -> ConsumeResult:
            got.extend(messages)
            return ConsumeResult.LATER if len(got) == 1 else ConsumeResult.SUCCESS

        async with consumer_of(cluster, listen, max_reconsume_times=7):
            await until(lambda: len(got) == 2)
        (sent,) = cluster.broker.sends
        assert (sent.target.topic, sent.target.reconsume_times) == ("%RETRY%g", 1)
        assert sent.target.max_reconsume_times == 7
        assert (got[1].topic, got[1].tags, got[1].reconsume_times) == ("T", "a", 1)
        assert got[1].properties["ORIGIN_MESSAGE_ID"] == got[0].msg_id
        assert got[1].properties["DELAY"] == "3"


async def test_messages_that_no_broker_accepts_are_retried_here() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        put(cluster, 3, queues=1)
        refusals = [Fault(code=ResponseCode.SYSTEM_ERROR)] * 2
        cluster.broker.order(RequestCode.CONSUMER_SEND_MSG_BACK, *refusals)
        calls: list[tuple[bytes, int]] = []

        async def listen(messages: list[MessageExt]) -> ConsumeResult:
            (message,) = messages
            calls.append((message.body, message.reconsume_times))
            later = message.body == b"001" and message.reconsume_times < 2
            return ConsumeResult.LATER if later else ConsumeResult.SUCCESS

        async with consumer_of(cluster, listen) as consumer:
            await until(lambda: len(calls) == 4)
            await consumer.commit()
            assert cluster.broker.offsets["g", "T", 0] == 1
            await until(lambda: len(calls) == 5)
        assert [call for call in calls if call[0] == b"001"] == [(b"001", 0), (b"001", 1), (b"001", 2)]
        assert cluster.broker.offsets["g", "T", 0] == 3


def _pulls(cluster: FakeCluster, topic: str) -> int:
    pulls = cluster.broker.requests(RequestCode.PULL_MESSAGE)
    return sum(request.ext_fields["topic"] == topic for request in pulls)


async def test_held_messages_are_consumed_after_a_deletion() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        bodies = put(cluster, 100, queues=1)
        release = asyncio.Event()
        inbox = Inbox()

        async def listen(messages: list[MessageExt]) -> None:
            if messages[0].queue_offset == 20:
                await release.wait()
            inbox(messages)

        async with consumer_of(cluster, listen, workers=1, flow_control=FlowControl(max_messages=20)):
            await until(lambda: _pulls(cluster, "T"))
            queue = cluster.broker.queues["T", 0]
            queue.records, queue.base = queue.records[80:], 80
            await until(lambda: _pulls(cluster, "T") >= 3)  # from 0, from 32, which is illegal, from 80
            release.set()
            await until(lambda: cluster.broker.offsets.get(("g", "T", 0)) == 100)
        assert inbox.bodies == [*bodies[:32], *bodies[80:]]


@pytest.mark.parametrize(("base", "committed"), [(10, 3), (0, 50)])
async def test_an_illegal_offset_continues_at_a_valid_one(base: int, committed: int) -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        queue = cluster.broker.queues["T", 0]
        queue.base = base
        put(cluster, 5, queues=1)
        cluster.broker.offsets["g", "T", 0] = committed
        inbox = Inbox()
        async with consumer_of(cluster, inbox):
            await until(lambda: cluster.broker.offsets["g", "T", 0] != committed)
            cluster.broker.put("T", b"new")
            await until(lambda: b"new" in inbox.bodies)
        assert len(inbox.messages) == (6 if base else 1)


async def test_a_stop_waits_for_the_start() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        cluster.broker.order(RequestCode.HEART_BEAT, Fault(delay_seconds=0.1))
        consumer = PushConsumer(
            cluster.address, group="g", topics=["T"], listener=Inbox(), consume_from="first", timing=QUICK
        )
        starting = asyncio.ensure_future(consumer.start())
        await until(lambda: cluster.broker.requests(RequestCode.HEART_BEAT))
        with pytest.raises(UsageError, match="started already"):
            await consumer.start()
        await consumer.stop()
        assert starting.done()
        await starting
        with pytest.raises(NotRunning):
            await consumer.commit()
        await until(lambda: not cluster.broker.connections)


async def test_after_enough_attempts_a_message_goes_to_the_dead_letters() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        put(cluster, 2, queues=1)
        cluster.broker.topics["%RETRY%g"] = 1
        cluster.broker.order(RequestCode.SEND_MESSAGE_V2, Fault(code=ResponseCode.SYSTEM_ERROR))
        calls: list[tuple[bytes, int]] = []

        def listen(messages: list[MessageExt], context: OrderlyContext) -> ConsumeResult:
            (message,) = messages
            calls.append((message.body, message.reconsume_times))
            context.suspend_seconds = 0.01
            return ConsumeResult.LATER if message.body == b"000" else ConsumeResult.SUCCESS

        async with consumer_of(cluster, listen, orderly=True, max_reconsume_times=1):
            await until(lambda: (b"001", 0) in calls)
        # Once more than allowed: the first time, no broker accepted the dead letter.
        first = [call for call in calls if call[0] == b"000"]
        assert first[:3] == [(b"000", 0), (b"000", 1), (b"000", 2)]
        assert cluster.broker.offsets["g", "T", 0] == 2
        (sent,) = cluster.broker.sends
        assert sent.target.topic == "%RETRY%g"
        assert [message.body for message in cluster.broker.dead_letters] == [b"000"]


async def test_a_consumer_that_stops_while_it_asks_for_locks_leaves_none_behind() -> None:
    async with FakeCluster({"broker-a": {"T": 2}}) as cluster:
        cluster.broker.order(RequestCode.LOCK_BATCH_MQ, Fault(delay_seconds=0.1))
        async with consumer_of(cluster, print, orderly=True):
            await until(lambda: cluster.broker.requests(RequestCode.LOCK_BATCH_MQ))
        assert cluster.broker.locks == {}
        codes = [
            code
            for code in cluster.broker.codes()
            if code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)
        ]
        assert codes[-1] == RequestCode.UNLOCK_BATCH_MQ


async def test_locks_are_requested_from_masters_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def as_slave(broker: FakeBroker) -> BrokerData:
        return BrokerData(broker_name=broker.name, broker_addrs={1: broker.address}, cluster="c")

    async with FakeCluster({"broker-a": {"T": 2}}) as cluster:
        bodies = put(cluster, 2, queues=2)
        inbox = Inbox()
        with monkeypatch.context() as patched:
            patched.setattr(FakeNamesrv, "_data", staticmethod(as_slave))
            settings = ClientSettings(route_refresh_seconds=0.1)
            async with consumer_of(cluster, inbox, orderly=True, settings=settings):
                await until(lambda: "queues not locked count=2 cause=no master of broker-a" in caplog.text)
                assert not cluster.broker.requests(RequestCode.LOCK_BATCH_MQ)
                patched.undo()
                await until(lambda: inbox.bodies == bodies)


async def test_a_consumer_is_ready_once_it_has_its_share() -> None:
    async with FakeCluster({"broker-a": {"T": 2}}) as cluster, consumer_of(cluster, Inbox()) as consumer:
        await consumer.wait_ready(timeout_seconds=10)
        assert len(await consumer.assigned_queues()) == 2


async def test_a_missing_topic_is_told_to_the_program() -> None:
    told: list[ClientError] = []
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        consumer_of(cluster, Inbox(), topics=["T", "Nowhere"], error_listener=told.append) as consumer,
    ):
        with pytest.raises(TopicNotFound, match="topic Nowhere has no route") as failure:
            await consumer.wait_ready(timeout_seconds=timedelta(milliseconds=200))
        assert failure.value.__notes__ == ["consumer g was not ready within 0.2 s"]
        await until(lambda: told)
        assert [type(error) for error in told] == [TopicNotFound], "once, although it is retried"


@pytest.mark.parametrize("broadcasting", [False, True])
async def test_an_unreachable_broker_is_told_to_the_program(broadcasting: bool) -> None:
    told: list[ClientError] = []
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        await cluster.broker.close()
        async with consumer_of(
            cluster, Inbox(), broadcasting=broadcasting, error_listener=told.append
        ) as consumer:
            with pytest.raises(BrokerUnreachable, match="brokerIP1"):
                await consumer.wait_ready(timeout_seconds=0.5)
            await until(lambda: told)
            assert isinstance(told[0], BrokerUnreachable)


async def test_a_failing_error_listener_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail(error: ClientError) -> None:
        raise ZeroDivisionError

    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        consumer_of(cluster, Inbox(), topics="Nowhere", error_listener=fail),
    ):
        await until(lambda: "error listener failed" in caplog.text)


async def test_a_commit_that_fails_is_raised_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        inbox = Inbox()
        timing = ConsumerTiming(commit_seconds=3600)
        async with consumer_of(cluster, inbox, timing=timing) as consumer:
            cluster.broker.put("T", b"x")
            await until(lambda: inbox.bodies == [b"x"])
            cluster.broker.order(RequestCode.UPDATE_CONSUMER_OFFSET, Fault(code=ResponseCode.SYSTEM_ERROR))
            with pytest.raises(Unavailable, match="commit offset 1 of group g in T/broker-a/0"):
                await consumer.commit()
            assert "not committed" not in caplog.text
            await consumer.commit()
            assert cluster.broker.offsets["g", "T", 0] == 1
