"""The push consumer against brokers in memory."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from rmq_client import (
    CallStatus,
    ClientSettings,
    ConsumeContext,
    ConsumeHook,
    ConsumeResult,
    ConsumerTiming,
    FlowControl,
    HookContext,
    Message,
    MessageExt,
    MessageQueue,
    NotRunning,
    Producer,
    PullSettings,
    PushConsumer,
    UsageError,
)
from rmq_client.loop_thread import LoopThread
from rmq_remoting.bodies.heartbeat import ConsumeFromWhere, ConsumeType, HeartbeatData
from rmq_remoting.bodies.offsets import GetConsumerStatusBody, ResetOffsetBody
from rmq_remoting.bodies.running_info import CMResult, ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from rmq_remoting.headers.consumer import GetConsumerStatusRequestHeader
from rmq_remoting.headers.offsets import ResetOffsetRequestHeader
from rmq_remoting.message_codec import encode_stored_message
from tests.support.waiting import until, until_in_thread
from tests.unit.client.consuming import QUICK, Inbox, consumer_of, put, until_assigned
from tests.unit.client.fake_cluster import BORN_MS, FakeCluster, Fault
from tests.unit.client.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture


@contextmanager
def _cluster_in_a_thread(brokers: dict[str, dict[str, int]]) -> Iterator[FakeCluster]:
    """For tests that block their own loop."""
    thread = LoopThread("fake-cluster")
    cluster = FakeCluster(brokers)
    thread.submit(cluster.__aenter__()).result()
    try:
        yield cluster
    finally:
        thread.submit(cluster.__aexit__()).result()
        thread.signal_stop()
        thread.join()


# --- receiving ---


async def test_a_function_gets_messages_in_threads_of_its_own() -> None:
    async with FakeCluster({"broker-a": {"T": 4}}) as cluster:
        bodies = put(cluster, 40)
        inbox = Inbox()
        async with consumer_of(cluster, inbox, workers=3) as consumer:
            await until(lambda: len(inbox.messages) == 40)
            assert inbox.bodies == bodies
            assert inbox.threads <= {f"rmq-g-{number}" for number in range(3)}
            assert len(await consumer.assigned_queues()) == 4
            first = inbox.messages[0]
            assert (first.topic, first.broker_name, first.reconsume_times) == ("T", "broker-a", 0)
            cluster.broker.put("T", b"new", queue_id=1)
            await until(lambda: b"new" in inbox.bodies)
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("rmq-g")]


async def test_a_coroutine_gets_messages_on_the_applications_loop() -> None:
    async with FakeCluster({"broker-a": {"T": 4}}) as cluster:
        bodies = put(cluster, 20)
        inbox = Inbox()
        running = 0
        most = 0

        async def listen(messages: list[MessageExt]) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            running -= 1
            await inbox.as_coroutine(messages)

        async with consumer_of(cluster, listen, workers=5):
            await until(lambda: len(inbox.messages) == 20)
        assert inbox.bodies == bodies
        assert inbox.threads == {threading.current_thread().name}
        assert 1 < most <= 5


async def test_a_call_gets_as_many_messages_of_one_queue_as_it_is_to() -> None:
    async with FakeCluster({"broker-a": {"T": 2}}) as cluster:
        put(cluster, 20, queues=2)
        calls: list[list[MessageExt]] = []

        async def listen(messages: list[MessageExt]) -> None:
            calls.append(messages)

        async with consumer_of(cluster, listen, consume_message_batch_max_size=4):
            await until(lambda: sum(map(len, calls)) == 20)
        assert [len(call) for call in calls].count(4) == 4
        assert all(len({message.queue_id for message in call}) == 1 for call in calls)


async def test_tags_are_matched_exactly() -> None:
    async with FakeCluster({"broker-a": {"T": 1, "U": 1}}) as cluster:
        for tags in ("a", "b", "aa", None, "c"):
            cluster.broker.put("T", (tags or "-").encode(), tags=tags)
            cluster.broker.put("U", (tags or "-").encode(), tags=tags)
        inbox = Inbox()
        async with consumer_of(cluster, inbox, topics={"T": "a || c", "U": "*"}) as consumer:
            await until(lambda: len(inbox.messages) == 7)
            assert sorted(message.body for message in inbox.messages if message.topic == "T") == [b"a", b"c"]
            await consumer.commit()
            assert cluster.broker.offsets["g", "T", 0] == 5, "what nobody wanted counts as consumed"
        (data,) = next(iter(_heartbeats(cluster)))
        subscription = next(one for one in data.subscription_data_set if one.topic == "T")
        assert (subscription.tags_set, subscription.code_set) == (["a", "c"], [97, 99])
        assert data.consume_type is ConsumeType.CONSUME_PASSIVELY
        assert data.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


def _heartbeats(cluster: FakeCluster) -> list[Any]:
    return [
        HeartbeatData.decode(request.body).consumer_data_set
        for request in cluster.broker.requests(RequestCode.HEART_BEAT)
    ]


@pytest.mark.parametrize(("consume_from", "expected"), [("first", 3), ("last", 0)])
async def test_where_a_new_group_begins(consume_from: str, expected: int) -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        put(cluster, 3, queues=1)
        inbox = Inbox()
        async with consumer_of(cluster, inbox, consume_from=consume_from):
            await until(lambda: cluster.broker.requests(RequestCode.PULL_MESSAGE))
            cluster.broker.put("T", b"new")
            await until(lambda: b"new" in inbox.bodies)
            assert len(inbox.messages) == expected + 1


async def test_a_group_begins_at_a_time() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        put(cluster, 3, queues=1)
        inbox = Inbox()
        moment = datetime.fromtimestamp(BORN_MS / 1000, UTC)
        async with consumer_of(cluster, inbox, consume_from=moment):
            await until(lambda: len(inbox.messages) == 3)


async def test_a_topic_that_does_not_exist_yet_is_waited_for() -> None:
    async with FakeCluster({"broker-a": {}}) as cluster:
        inbox = Inbox()
        async with consumer_of(cluster, inbox):
            await until(lambda: len(cluster.namesrv.requests(RequestCode.GET_ROUTEINFO_BY_TOPIC)) > 2)
            cluster.broker.topics["T"] = 2
            cluster.broker.put("T", b"x", queue_id=1)
            await until(lambda: inbox.bodies == [b"x"])


async def test_topics_come_and_go() -> None:
    async with FakeCluster({"broker-a": {"T": 1, "U": 1}}) as cluster:
        inbox = Inbox()
        async with consumer_of(cluster, inbox) as consumer:
            await consumer.subscribe("U")
            cluster.broker.put("U", b"u")
            await until(lambda: inbox.bodies == [b"u"])
            await consumer.unsubscribe("U")
            async with asyncio.timeout(5):
                while await consumer.assigned_queues() != [MessageQueue("T", "broker-a", 0)]:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert cluster.broker.offsets["g", "U", 0] == 1


async def test_new_queues_are_found() -> None:
    settings = ClientSettings(route_refresh_seconds=0.05)
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        inbox = Inbox()
        timing = ConsumerTiming(rebalance_seconds=60, rebalance_again_seconds=0.02)
        async with consumer_of(cluster, inbox, settings=settings, timing=timing):
            cluster.broker.put("T", b"0")
            await until(lambda: len(inbox.messages) == 1)
            cluster.broker.topics["T"] = 3
            cluster.broker.put("T", b"2", queue_id=2)
            await until(lambda: len(inbox.messages) == 2)


async def test_suspended_consumers_keep_their_queues() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        inbox = Inbox()
        async with consumer_of(cluster, inbox, pull=PullSettings(hold_seconds=0.02)) as consumer:
            await until(lambda: cluster.broker.requests(RequestCode.PULL_MESSAGE))
            consumer.suspend()
            await asyncio.sleep(0.05)
            pulls = len(cluster.broker.requests(RequestCode.PULL_MESSAGE))
            cluster.broker.put("T", b"x")
            await asyncio.sleep(0.05)
            assert len(cluster.broker.requests(RequestCode.PULL_MESSAGE)) <= pulls + 1
            assert len(await consumer.assigned_queues()) == 1
            consumer.resume()
            await until(lambda: inbox.bodies == [b"x"])


# --- offsets ---


async def test_offsets_are_committed_now_and_then_and_at_the_end() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        bodies = put(cluster, 5, queues=1)
        inbox = Inbox()
        async with consumer_of(cluster, inbox) as consumer:
            await until(lambda: cluster.broker.offsets.get(("g", "T", 0)) == 5)
            cluster.broker.put("T", b"last")
            await until(lambda: len(inbox.messages) == 6)
            assert consumer.group == "g"
        assert cluster.broker.offsets["g", "T", 0] == 6
        left = cluster.broker.requests(RequestCode.UNREGISTER_CLIENT)
        assert [request.ext_fields["consumerGroup"] for request in left] == ["g"]
        assert cluster.broker.connections == set()

        cluster.broker.put("T", b"meanwhile")
        async with consumer_of(cluster, inbox):
            await until(lambda: b"meanwhile" in inbox.bodies)
        assert inbox.bodies == sorted([*bodies, b"last", b"meanwhile"]), "nothing came twice"


async def test_a_message_under_way_holds_the_offset_back() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        put(cluster, 3, queues=1)
        release = asyncio.Event()
        done: list[bytes] = []

        async def listen(messages: list[MessageExt]) -> None:
            if messages[0].body == b"001":
                await release.wait()
            done.append(messages[0].body)

        async with consumer_of(cluster, listen) as consumer:
            await until(lambda: len(done) == 2)
            await consumer.commit()
            assert cluster.broker.offsets["g", "T", 0] == 1
            release.set()
            await until(lambda: len(done) == 3)
        assert cluster.broker.offsets["g", "T", 0] == 3


@pytest.mark.parametrize(("base", "committed"), [(10, 3), (0, 50)])
async def test_an_offset_that_the_broker_does_not_have(base: int, committed: int) -> None:
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


# --- refused messages ---


async def test_refused_messages_come_again() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        put(cluster, 3, queues=1)
        calls: list[tuple[bytes, int]] = []
        topics: list[str] = []

        def listen(messages: list[MessageExt]) -> ConsumeResult:
            (message,) = messages
            calls.append((message.body, message.reconsume_times))
            topics.append(message.topic)
            if message.body == b"001" and message.reconsume_times == 0:
                return ConsumeResult.LATER
            if message.body == b"001" and message.reconsume_times == 1:
                raise RuntimeError("not yet")
            return ConsumeResult.SUCCESS

        async with consumer_of(cluster, listen) as consumer:
            await until(lambda: len(calls) == 5)
            await consumer.commit()
        assert [call for call in calls if call[0] == b"001"] == [(b"001", 0), (b"001", 1), (b"001", 2)]
        assert cluster.broker.offsets["g", "T", 0] == 3, "what the broker has taken back is done with here"
        assert cluster.broker.offsets["g", "%RETRY%g", 0] == 2
        assert set(topics) == {"T"}, "not the retry topic"
        first = cluster.broker.sent_back[0]
        assert (first.group, first.origin_topic, first.delay_level) == ("g", "T", 0)
        assert first.max_reconsume_times is None


async def test_what_cannot_go_back_is_sent_anew() -> None:
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


async def test_what_no_broker_takes_is_tried_again_here() -> None:
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


async def test_a_listener_can_say_which_messages_are_done_and_how_long_the_others_wait() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        put(cluster, 8, queues=1)
        done: list[bytes] = []

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
            assert context.queue.queue_id == 0
            if messages[0].reconsume_times == 0 and len(messages) == 4:
                context.ack_index = 1
                context.delay_level = 5
                messages = messages[:2]
            done.extend(message.body for message in messages)

        async with consumer_of(cluster, listen, consume_message_batch_max_size=4):
            await until(lambda: len(done) == 8)
        assert [header.delay_level for header in cluster.broker.sent_back] == [5] * 4
        assert sorted(done) == [b"%03d" % number for number in range(8)]
        assert cluster.broker.offsets["g", "T", 0] == 8


async def test_a_listener_can_bury_a_message() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        put(cluster, 2, queues=1)

        def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
            context.delay_level = -1
            return ConsumeResult.LATER

        async with consumer_of(cluster, listen):
            await until(lambda: len(cluster.broker.dead_letters) == 2)
        assert cluster.broker.offsets["g", "T", 0] == 2


async def test_too_many_attempts_make_a_dead_letter() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        cluster.broker.put("T", b"x")
        calls: list[int] = []

        def listen(messages: list[MessageExt]) -> ConsumeResult:
            calls.append(messages[0].reconsume_times)
            return ConsumeResult.LATER

        async with consumer_of(cluster, listen, max_reconsume_times=2):
            await until(lambda: cluster.broker.dead_letters)
        assert calls == [0, 1, 2]


async def test_nothing_can_be_an_answer_or_a_mistake() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        cluster.broker.put("T", b"x")
        calls: list[int] = []
        hook = _Hook()

        def listen(messages: list[MessageExt]) -> ConsumeResult | None:
            calls.append(messages[0].reconsume_times)
            return None if len(calls) == 1 else ConsumeResult.SUCCESS

        async with consumer_of(cluster, listen, none_means=ConsumeResult.LATER, hooks=[hook]):
            await until(lambda: len(calls) == 2)
        assert calls == [0, 1]
        assert hook.seen == [(CallStatus.RETURNNULL, False), (CallStatus.SUCCESS, True)]


class _Hook(ConsumeHook):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.seen: list[tuple[CallStatus | None, bool]] = []

    def before(self, context: HookContext) -> None:
        context.notes["mine"] = len(self.begun)
        self.begun += [message.body for message in context.messages]

    def after(self, context: HookContext) -> None:
        assert "mine" in context.notes
        self.seen.append((context.status, context.success))


class _BadHook(ConsumeHook):
    def before(self, context: HookContext) -> None:
        raise RuntimeError("before")

    def after(self, context: HookContext) -> None:
        raise RuntimeError("after")


@pytest.mark.parametrize("kind", ["function", "coroutine"])
async def test_hooks_see_every_call(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        put(cluster, 3, queues=1)
        hook = _Hook()

        def judge(messages: list[MessageExt]) -> ConsumeResult:
            if messages[0].reconsume_times:
                return ConsumeResult.SUCCESS
            if messages[0].body == b"001":
                raise RuntimeError("no")
            return ConsumeResult.LATER if messages[0].body == b"002" else ConsumeResult.SUCCESS

        async def judge_later(messages: list[MessageExt]) -> ConsumeResult:
            return judge(messages)

        listener = judge if kind == "function" else judge_later
        async with consumer_of(cluster, listener, workers=1, hooks=[_BadHook(), hook]):
            await until(lambda: len(hook.seen) == 5)
        assert hook.seen[:3] == [
            (CallStatus.SUCCESS, True),
            (CallStatus.EXCEPTION, False),
            (CallStatus.FAILED, False),
        ]
        assert "failed before a call" in caplog.text


async def test_what_takes_too_long_goes_back_and_its_result_is_ignored() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        put(cluster, 2, queues=1)
        release = asyncio.Event()
        calls: list[tuple[bytes, int]] = []
        hook = _Hook()

        async def listen(messages: list[MessageExt]) -> ConsumeResult:
            calls.append((messages[0].body, messages[0].reconsume_times))
            if calls[-1] == (b"000", 0):
                await release.wait()
                return ConsumeResult.LATER
            return ConsumeResult.SUCCESS

        timing = replace(QUICK, consume_timeout_seconds=0.1)
        async with consumer_of(cluster, listen, timing=timing, hooks=[hook]):
            await until(lambda: (b"000", 1) in calls)
            await until(lambda: cluster.broker.offsets.get(("g", "T", 0)) == 2)
            release.set()
            await until(lambda: len(hook.seen) == 3)
        assert [header.delay_level for header in cluster.broker.sent_back] == [3]
        assert hook.seen[-1] == (CallStatus.TIME_OUT, False)


async def test_what_a_listener_must_not_return(caplog: pytest.LogCaptureFixture) -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        cluster.broker.put("T", b"x")
        answers: list[Any] = [True, asyncio.sleep(0), None]

        def listen(messages: list[MessageExt]) -> Any:
            return answers.pop(0)

        async with consumer_of(cluster, listen):
            await until(lambda: not answers)
        assert cluster.broker.offsets["g", "T", 0] == 1
        assert "must return None or a ConsumeResult, not True" in caplog.text
        assert "define it with `async def`" in caplog.text


# --- bounds ---


async def test_no_more_is_pulled_than_may_wait() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        put(cluster, 200, queues=1)
        release = threading.Event()
        inbox = Inbox()

        def listen(messages: list[MessageExt]) -> None:
            release.wait()
            inbox(messages)

        limits = FlowControl(max_messages=20)
        async with consumer_of(
            cluster, listen, workers=2, flow_control=limits, pull=PullSettings(batch_size=8)
        ):
            await until(lambda: len(cluster.broker.requests(RequestCode.PULL_MESSAGE)) == 3)
            await asyncio.sleep(0.1)
            assert len(cluster.broker.requests(RequestCode.PULL_MESSAGE)) == 3
            release.set()
            await until(lambda: len(inbox.messages) == 200)


async def test_one_stuck_message_bounds_how_far_the_others_go() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        put(cluster, 300, queues=1)
        release = asyncio.Event()
        inbox = Inbox()

        async def listen(messages: list[MessageExt]) -> None:
            if messages[0].body == b"000":
                await release.wait()
            inbox(messages)

        async with consumer_of(cluster, listen, flow_control=FlowControl(max_span=50)):
            await until(lambda: len(inbox.messages) >= 50)
            await asyncio.sleep(0.1)
            assert len(inbox.messages) <= 50 + 32
            release.set()
            await until(lambda: len(inbox.messages) == 300)


# --- sharing ---


async def test_consumers_of_a_group_share_the_queues() -> None:
    async with FakeCluster({"broker-a": {"T": 4}, "broker-b": {"T": 4}}) as cluster:
        one, two = Inbox(), Inbox()
        second = ClientSettings(instance_name="second")
        async with consumer_of(cluster, one) as first_consumer:
            await until_assigned(first_consumer, 8)
            async with consumer_of(cluster, two, settings=second) as second_consumer:
                await until_assigned(first_consumer, 4)
                await until_assigned(second_consumer, 4)
                for number in range(40):
                    name = "broker-a" if number % 2 else "broker-b"
                    cluster.brokers[name].put("T", b"%02d" % number, queue_id=number // 2 % 4)
                await until(lambda: len(one.messages) + len(two.messages) == 40)
                assert len(one.messages) == len(two.messages) == 20
                assert not set(one.bodies) & set(two.bodies)
            await until_assigned(first_consumer, 8)


async def test_a_group_has_one_consumer_in_a_client() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster, consumer_of(cluster, Inbox()) as consumer:
        with pytest.raises(
            UsageError, match=r"already has a consumer in this process.*instance_name='second'"
        ):
            async with consumer_of(cluster, Inbox()):
                pass
        assert cluster.broker.members("g"), "the first one is still in the group"
        await until_assigned(consumer, 1)


async def test_all_producers_and_consumers_share_one_connection_per_broker() -> None:
    async with FakeCluster({"broker-a": {"T": 1}, "broker-b": {"T": 1}}) as cluster:
        inbox = Inbox()
        async with (
            consumer_of(cluster, inbox, group="g1"),
            consumer_of(cluster, inbox, group="g2"),
            Producer(cluster.address, group="p1") as one,
            Producer(cluster.address, group="p2") as two,
        ):
            for producer in (one, two):
                for _ in range(4):
                    await producer.send(Message("T", b"x"))
            await until(lambda: len(inbox.messages) == 16)
            assert [len(broker.connections) for broker in cluster.brokers.values()] == [1, 1]
            assert cluster.broker.connections_opened == 1
            assert len(cluster.namesrv.connections) == 1
            (client,) = cluster.broker.clients.values()
            await until(
                lambda: (
                    {data.group_name for data in client.heartbeat.producer_data_set} >= {"p1"}
                    or cluster.broker.clients[client.client_id] is not client
                )
            )


# --- faults ---


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
async def test_pulling_goes_on_after_a_failure(fault: Fault) -> None:
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
                message.sys_flag = 0x301  # says that it is compressed, which it is not
        inbox = Inbox()
        async with consumer_of(cluster, inbox):
            await until(lambda: inbox.bodies == [b"0", b"2"])
        assert cluster.broker.offsets["g", "T", 0] == 3
        assert "is lost: the zlib body of 1 bytes is cut off" in caplog.text


async def test_a_lost_broker_comes_back() -> None:
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


async def test_a_new_connection_is_greeted_before_anything_is_pulled() -> None:
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


async def test_a_queue_that_is_stuck_is_built_anew() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        cluster.broker.order(RequestCode.PULL_MESSAGE, Fault(silent=True))
        cluster.broker.put("T", b"x")
        inbox = Inbox()
        timing = ConsumerTiming(rebalance_seconds=0.1, rebalance_again_seconds=0.05, stuck_seconds=0.3)
        async with consumer_of(cluster, inbox, timing=timing):
            await until(lambda: cluster.broker.requests(RequestCode.PULL_MESSAGE))
            assert inbox.messages == []
            await until(lambda: inbox.bodies == [b"x"])


# --- while the application hangs ---


def _progress(cluster: FakeCluster) -> tuple[int, ...]:
    return (
        len(cluster.broker.requests(RequestCode.HEART_BEAT)),
        len(cluster.broker.requests(RequestCode.UPDATE_CONSUMER_OFFSET)),
        len(cluster.namesrv.requests(RequestCode.GET_ROUTEINFO_BY_TOPIC)),
        len(cluster.broker.requests(RequestCode.GET_CONSUMER_LIST_BY_GROUP)),
        len(cluster.broker.requests(RequestCode.PULL_MESSAGE)),
    )


_HANGING = ConsumerTiming(rebalance_seconds=0.05, rebalance_again_seconds=0.02, commit_seconds=0.05)
_HANGING_SETTINGS = ClientSettings(heartbeat_seconds=0.05, route_refresh_seconds=0.05)


async def test_the_group_is_kept_while_listeners_sleep_in_their_threads() -> None:
    async with FakeCluster({"broker-a": {"T": 2}}) as cluster:
        put(cluster, 4, queues=2)
        release = threading.Event()
        sleeping = threading.Semaphore(0)

        def listen(messages: list[MessageExt]) -> None:
            if messages[0].body != b"000":
                sleeping.release()
                release.wait()

        options = {"timing": _HANGING, "settings": _HANGING_SETTINGS, "workers": 3}
        async with consumer_of(cluster, listen, pull=PullSettings(hold_seconds=0.05), **options) as consumer:
            await until(lambda: sleeping._value == 3)
            before = _progress(cluster)
            await until(
                lambda: all(now > then + 2 for now, then in zip(_progress(cluster), before, strict=True))
            )
            assert len(await consumer.assigned_queues()) == 2
            assert cluster.broker.members("g")
            release.set()


@pytest.mark.parametrize("kind", ["raises", "hangs", "cancels", "swallows cancellation"])
@pytest.mark.parametrize("orderly", [False, True])
async def test_the_group_is_kept_whatever_a_coroutine_does(kind: str, orderly: bool) -> None:
    async with FakeCluster({"broker-a": {"T": 2}}) as cluster:
        put(cluster, 6, queues=2)
        release = asyncio.Event()
        bad_calls = 0
        good: set[bytes] = set()

        async def listen(messages: list[MessageExt]) -> None:
            nonlocal bad_calls
            if messages[0].queue_id == 0 or release.is_set():
                good.add(messages[0].body)
                return
            bad_calls += 1
            task = asyncio.current_task()
            assert task is not None
            if kind == "raises":
                raise RuntimeError("no")
            if kind == "cancels":
                task.cancel()
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    if kind != "swallows cancellation":
                        raise
            good.add(messages[0].body)

        options: dict[str, Any] = {
            "timing": _HANGING,
            "settings": _HANGING_SETTINGS,
            "workers": 4,
            "orderly": orderly,
            "suspend_current_queue_time_ms": 20,
        }
        async with consumer_of(cluster, listen, pull=PullSettings(hold_seconds=0.05), **options) as consumer:
            await until(lambda: bad_calls and len(good) == 3)
            before = _progress(cluster)
            await until(
                lambda: all(now > then + 2 for now, then in zip(_progress(cluster), before, strict=True))
            )
            assert len(await consumer.assigned_queues()) >= 2
            release.set()
            await until(lambda: len(good) == 6)


@pytest.mark.parametrize("kind", ["sleeps", "computes"])
async def test_the_group_is_kept_while_a_listener_blocks_the_loop(kind: str) -> None:
    with _cluster_in_a_thread({"broker-a": {"T": 2}}) as cluster:
        blocked = False
        progress: list[tuple[int, ...]] = []

        async def listen(messages: list[MessageExt]) -> None:
            nonlocal blocked
            if messages[0].body == b"000" or blocked:
                return
            before = _progress(cluster)

            def all_moved() -> bool:
                now = _progress(cluster)
                if kind == "computes":
                    deadline = time.monotonic() + 0.01
                    while time.monotonic() < deadline:
                        pass
                return all(count > then + 2 for count, then in zip(now, before, strict=True))

            until_in_thread(all_moved, timeout_seconds=20)  # the loop stands still meanwhile
            progress.append(_progress(cluster))
            blocked = True

        options = {"timing": _HANGING, "settings": _HANGING_SETTINGS}
        async with consumer_of(cluster, listen, pull=PullSettings(hold_seconds=0.05), **options):
            put(cluster, 2, queues=2)
            await until(lambda: blocked, timeout_seconds=30)
        assert cluster.broker.offsets["g", "T", 1] == 1


# --- stopping ---


async def test_stopping_waits_for_listeners_and_commits_what_they_did() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        put(cluster, 3, queues=1)
        begun = threading.Event()
        release = threading.Event()

        def listen(messages: list[MessageExt]) -> None:
            begun.set()
            release.wait()

        async with consumer_of(cluster, listen, workers=1):
            await until(begun.is_set)
            asyncio.get_running_loop().call_later(0.1, release.set)
        assert cluster.broker.offsets["g", "T", 0] == 1, "the other two were never begun"


@pytest.mark.parametrize("kind", ["function", "coroutine"])
async def test_stopping_does_not_wait_for_ever(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        cluster.broker.put("T", b"x")
        begun = threading.Event()
        release = threading.Event()
        cancelled = False

        def sleep(messages: list[MessageExt]) -> None:
            begun.set()
            release.wait()

        async def wait(messages: list[MessageExt]) -> None:
            nonlocal cancelled
            begun.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled = True
                raise

        timing = ConsumerTiming(stop_grace_seconds=0.05)
        async with consumer_of(cluster, sleep if kind == "function" else wait, timing=timing):
            await until(begun.is_set)
        assert "did not end within 0.05 s" in caplog.text
        assert ("g", "T", 0) not in cluster.broker.offsets
        if kind == "coroutine":
            await until(lambda: cancelled)
        release.set()


async def test_a_cancelled_stop_is_finished_all_the_same() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        cluster.broker.put("T", b"x")
        inbox = Inbox()
        consumer = PushConsumer(
            cluster.address, group="g", topics=["T"], listener=inbox, consume_from="first", timing=QUICK
        )
        await consumer.start()
        await until(lambda: inbox.messages)
        stopping = asyncio.ensure_future(consumer.stop())
        await asyncio.sleep(0)
        stopping.cancel()
        await until(lambda: not cluster.broker.connections)
        assert cluster.broker.offsets["g", "T", 0] == 1
        await asyncio.wait([stopping])
        with pytest.raises(NotRunning, match="async with PushConsumer"):
            await consumer.commit()


async def test_consumers_that_cannot_be() -> None:
    inbox = Inbox()
    with pytest.raises(UsageError, match="group"):
        PushConsumer("a:1", group="", topics=["T"], listener=inbox)
    with pytest.raises(UsageError, match="consume_from"):
        PushConsumer("a:1", group="g", topics=["T"], listener=inbox, consume_from="middle")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no tag in"):
        PushConsumer("a:1", group="g", topics={"T": " || "}, listener=inbox)
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        with pytest.raises(UsageError, match="has no topics"):
            await PushConsumer(cluster.address, group="g", listener=inbox).start()
        with pytest.raises(UsageError, match="0 workers"):
            await PushConsumer(cluster.address, group="g", topics=["T"], listener=inbox, workers=0).start()
        with pytest.raises(UsageError, match="must be a function"):
            await PushConsumer(cluster.address, group="g", topics=["T"], listener=3).start()  # type: ignore[arg-type]


# --- what brokers ask ---


async def test_an_administrator_moves_a_group() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        put(cluster, 5, queues=1)
        inbox = Inbox()
        async with consumer_of(cluster, inbox):
            await until(lambda: len(inbox.messages) == 5)
            header = ResetOffsetRequestHeader(topic="T", group="g")
            body = ResetOffsetBody(offset_table={MessageQueue("T", "broker-a", 0): 2})
            (client_id,) = cluster.broker.clients
            request = RemotingCommand.request(
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header.encode(), body.encode(), oneway=True
            )
            cluster.broker.clients[client_id].connection.send_oneway(request)
            await until(lambda: len(inbox.messages) == 8)
            assert [message.queue_offset for message in inbox.messages[5:]] == [2, 3, 4]


async def test_an_administrator_asks_about_aconsumer_of() -> None:
    async with FakeCluster({"broker-a": {"T": 2}}) as cluster:
        put(cluster, 5, queues=1)
        inbox = Inbox()
        async with consumer_of(cluster, inbox, workers=7) as consumer:
            await until(lambda: len(inbox.messages) == 5)
            await until_assigned(consumer, 2)
            (client_id,) = cluster.broker.clients
            header = GetConsumerRunningInfoRequestHeader(
                consumer_group="g", client_id=client_id, jstack_enable=True
            )
            answer = await cluster.broker.call_client(
                client_id, RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header.encode())
            )
            info = ConsumerRunningInfo.decode(answer.body)
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            assert info.properties["PROP_THREADPOOL_CORE_SIZE"] == "7"
            assert [subscription.topic for subscription in info.subscription_set] == ["T", "%RETRY%g"]
            assert set(info.mq_table) == {MessageQueue("T", "broker-a", number) for number in range(2)}
            assert info.mq_table[MessageQueue("T", "broker-a", 0)].commit_offset == 5
            assert "rmq-g-0" in (info.jstack or "")

            status = GetConsumerStatusRequestHeader(topic="T", group="g")
            answer = await cluster.broker.call_client(
                client_id,
                RemotingCommand.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, status.encode()),
            )
            table = GetConsumerStatusBody.decode(answer.body).message_queue_table
            assert table[MessageQueue("T", "broker-a", 0)] == 5

            header.consumer_group = "unknown"
            answer = await cluster.broker.call_client(
                client_id, RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header.encode())
            )
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "no consumer of group unknown" in (answer.remark or "")


async def test_an_administrator_has_one_message_consumed() -> None:
    async with FakeCluster({"broker-a": {"T": 1}, "other": {}}) as cluster:
        message = cluster.brokers["other"].put("T", b"directly")
        got: list[MessageExt] = []

        def listen(messages: list[MessageExt]) -> ConsumeResult | None:
            got.extend(messages)
            if len(got) == 3:
                raise RuntimeError("no")
            return ConsumeResult.LATER if len(got) == 2 else None

        async with consumer_of(cluster, listen):
            (client_id,) = cluster.broker.clients
            header = ConsumeMessageDirectlyResultRequestHeader(
                consumer_group="g", client_id=client_id, msg_id="x", stored_broker_name="broker-z"
            )
            results = []
            for _ in range(3):
                request = RemotingCommand.request(
                    RequestCode.CONSUME_MESSAGE_DIRECTLY, header.encode(), encode_stored_message(message)
                )
                answer = await cluster.broker.call_client(client_id, request)
                results.append(ConsumeMessageDirectlyResult.decode(answer.body))
            assert [result.consume_result for result in results] == [
                CMResult.CR_SUCCESS,
                CMResult.CR_LATER,
                CMResult.CR_THROW_EXCEPTION,
            ]
            assert results[2].remark == "RuntimeError('no')"
            assert (got[0].body, got[0].broker_name) == (b"directly", "broker-z")
