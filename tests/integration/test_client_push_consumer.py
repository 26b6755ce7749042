"""The push consumer: deliveries, offsets, shutdown."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rmq_client import (
    ClientSettings,
    ConsumerTiming,
    FlowControl,
    MessageExt,
    MessageQueue,
    NotRunning,
    PullSettings,
    PushConsumer,
    UsageError,
)
from rmq_remoting.bodies.heartbeat import ConsumeFromWhere, ConsumeType, HeartbeatData
from rmq_remoting.codes import RequestCode
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.push_consumers import QUICK, Inbox, consumer_of, put, until_assigned
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until


@asynccontextmanager
async def _old_topic(folder: Path) -> AsyncIterator[RunningCluster]:
    """A cluster that lets a new group choose where to begin: no message counts as in memory."""
    async with running_cluster(folder, accessMessageInMemoryMaxRatio=0) as cluster:
        yield cluster


def _pulls(cluster: RunningCluster) -> int:
    """Return the number of pulls from T; the retry topic is pulled, too."""
    pulls = cluster.broker.requests(RequestCode.PULL_MESSAGE)
    return sum(request.ext_fields["topic"] == "T" for request in pulls)


# --- receiving ---


async def test_a_function_listener_runs_in_worker_threads(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, {"broker-a": {"T": 4}}) as cluster:
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


async def test_a_coroutine_listener_runs_on_the_applications_loop(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, {"broker-a": {"T": 4}}) as cluster:
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


async def test_a_call_gets_up_to_the_configured_batch_of_one_queue(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, {"broker-a": {"T": 2}}) as cluster:
        put(cluster, 20, queues=2)
        calls: list[list[MessageExt]] = []

        async def listen(messages: list[MessageExt]) -> None:
            calls.append(messages)

        async with consumer_of(cluster, listen, max_messages=4):
            await until(lambda: sum(map(len, calls)) == 20)
        assert [len(call) for call in calls].count(4) == 4
        assert all(len({message.queue_id for message in call}) == 1 for call in calls)


async def test_tags_are_matched_exactly(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, {"broker-a": {"T": 1, "U": 1}}) as cluster:
        for tags in ("a", "b", "aa", None, "c"):
            cluster.broker.put("T", (tags or "-").encode(), tags=tags)
            cluster.broker.put("U", (tags or "-").encode(), tags=tags)
        inbox = Inbox()
        async with consumer_of(cluster, inbox, topics={"T": "a || c", "U": "*"}) as consumer:
            await until(lambda: len(inbox.messages) == 7)
            assert sorted(message.body for message in inbox.messages if message.topic == "T") == [b"a", b"c"]
            await consumer.commit()
            assert cluster.broker.committed() == 5, "messages that do not match count as consumed"
        (data,) = next(iter(_heartbeats(cluster)))
        subscription = next(one for one in data.subscription_data_set if one.topic == "T")
        assert (subscription.tags_set, subscription.code_set) == (["a", "c"], [97, 99])
        assert data.consume_type is ConsumeType.CONSUME_PASSIVELY
        assert data.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


def _heartbeats(cluster: RunningCluster) -> list[Any]:
    return [
        HeartbeatData.decode(request.body).consumer_data_set
        for request in cluster.broker.requests(RequestCode.HEART_BEAT)
    ]


@pytest.mark.parametrize(("consume_from", "expected"), [("first", 3), ("last", 0)])
async def test_consume_from_of_a_new_group(consume_from: str, expected: int, tmp_path: Path) -> None:
    async with _old_topic(tmp_path) as cluster:
        put(cluster, 3, queues=1)
        inbox = Inbox()
        async with consumer_of(cluster, inbox, consume_from=consume_from):
            await until(lambda: _pulls(cluster))
            cluster.broker.put("T", b"new")
            await until(lambda: b"new" in inbox.bodies)
            assert len(inbox.messages) == expected + 1


async def test_a_group_begins_at_a_time(tmp_path: Path) -> None:
    async with _old_topic(tmp_path) as cluster:
        put(cluster, 3, queues=1)
        stored_ms = cluster.broker.stored()[-1].store_timestamp
        await until(lambda: datetime.now(UTC).timestamp() * 1000 > stored_ms + 1)
        moment = datetime.now(UTC)
        put(cluster, 1, queues=1)
        inbox = Inbox()
        async with consumer_of(cluster, inbox, consume_from=moment):
            await until(lambda: inbox.messages)
            assert [message.queue_offset for message in inbox.messages] == [3]


async def test_a_topic_that_does_not_exist_yet_is_waited_for(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, {"broker-a": {}}) as cluster:
        inbox = Inbox()
        async with consumer_of(cluster, inbox):
            await until(lambda: len(cluster.recorded.of(RequestCode.GET_ROUTEINFO_BY_TOPIC)) > 2)
            await cluster.broker.set_queues("T", 2)
            cluster.broker.put("T", b"x", queue_id=1)
            await until(lambda: inbox.bodies == [b"x"])


async def test_topics_come_and_go(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, {"broker-a": {"T": 1, "U": 1}}) as cluster:
        inbox = Inbox()
        async with consumer_of(cluster, inbox) as consumer:
            await consumer.subscribe("U")
            cluster.broker.put("U", b"u")
            await until(lambda: inbox.bodies == [b"u"])
            await consumer.unsubscribe("U")
            async with asyncio.timeout(20):
                while await consumer.assigned_queues() != [MessageQueue("T", "broker-a", 0)]:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert cluster.broker.committed(topic="U") == 1


async def test_new_queues_are_found(tmp_path: Path) -> None:
    settings = ClientSettings(route_refresh_seconds=0.05)
    async with running_cluster(tmp_path) as cluster:
        inbox = Inbox()
        timing = ConsumerTiming(rebalance_seconds=60, rebalance_again_seconds=0.02)
        async with consumer_of(cluster, inbox, settings=settings, timing=timing):
            cluster.broker.put("T", b"0")
            await until(lambda: len(inbox.messages) == 1)
            await cluster.broker.set_queues("T", 3)
            cluster.broker.put("T", b"2", queue_id=2)
            await until(lambda: len(inbox.messages) == 2)


async def test_suspended_consumers_keep_their_queues(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        inbox = Inbox()
        async with consumer_of(cluster, inbox, pull=PullSettings(hold_seconds=0.02)) as consumer:
            await until(lambda: _pulls(cluster))
            consumer.suspend()
            await asyncio.sleep(0.05)
            pulls = _pulls(cluster)
            cluster.broker.put("T", b"x")
            await asyncio.sleep(0.05)
            assert _pulls(cluster) <= pulls + 1
            assert len(await consumer.assigned_queues()) == 1
            consumer.resume()
            await until(lambda: inbox.bodies == [b"x"])


# --- offsets ---


async def test_offsets_are_committed_in_intervals_and_at_the_stop(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        bodies = put(cluster, 5, queues=1)
        inbox = Inbox()
        async with consumer_of(cluster, inbox) as consumer:
            await until(lambda: cluster.broker.committed() == 5)
            cluster.broker.put("T", b"last")
            await until(lambda: len(inbox.messages) == 6)
            assert consumer.group == "g"
        assert cluster.broker.committed() == 6
        left = cluster.broker.requests(RequestCode.UNREGISTER_CLIENT)
        assert [request.ext_fields["consumerGroup"] for request in left] == ["g"]
        assert cluster.broker.connections == set()

        cluster.broker.put("T", b"meanwhile")
        async with consumer_of(cluster, inbox):
            await until(lambda: b"meanwhile" in inbox.bodies)
        assert inbox.bodies == sorted([*bodies, b"last", b"meanwhile"]), "nothing came twice"


@pytest.mark.parametrize("kind", ["unordered", "orderly", "broadcasting"])
async def test_a_new_group_commits_its_start_offset(kind: str, tmp_path: Path) -> None:
    async with _old_topic(tmp_path) as cluster:
        put(cluster, 20, queues=1)
        begun = asyncio.Event()

        async def hang(messages: list[MessageExt]) -> None:
            begun.set()
            await asyncio.Event().wait()

        options: dict[str, Any] = {
            "consume_from": "last",
            "orderly": kind == "orderly",
            "broadcasting": kind == "broadcasting",
            "offsets_folder": tmp_path,
            "timing": replace(QUICK, stop_grace_seconds=0.05),
        }
        async with consumer_of(cluster, hang, **options):
            await until(lambda: _pulls(cluster))
            bodies = put(cluster, 5, queues=1)
            await begun.wait()
        in_clustering = None if kind == "broadcasting" else 20
        assert cluster.broker.committed() == in_clustering
        cluster.broker.expire_lock(MessageQueue("T", "broker-a", 0))
        inbox = Inbox()
        async with consumer_of(cluster, inbox, **options):
            await until(lambda: len(inbox.messages) == 5)
        assert inbox.bodies == bodies


async def test_a_group_keeps_its_start_in_a_young_queue(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        put(cluster, 2, queues=1)
        release = asyncio.Event()

        async def listen(messages: list[MessageExt]) -> None:
            await release.wait()

        async with consumer_of(cluster, listen, orderly=True, consume_from="last"):
            # Since the first message is still in memory, the broker lets the group begin there.
            await until(lambda: cluster.broker.committed() == 0)
            release.set()


async def test_a_message_in_flight_holds_the_offset_back(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
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
            assert cluster.broker.committed() == 1
            release.set()
            await until(lambda: len(done) == 3)
        assert cluster.broker.committed() == 3


# --- bounds ---


async def test_flow_control_bounds_waiting_messages(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        put(cluster, 200, queues=1)
        release = threading.Event()
        inbox = Inbox()

        def listen(messages: list[MessageExt]) -> None:
            release.wait()
            inbox(messages)

        limits = FlowControl(max_messages=20)
        async with consumer_of(
            cluster, listen, workers=2, flow_control=limits, pull=PullSettings(max_messages=8)
        ):
            await until(lambda: _pulls(cluster) == 3)
            await asyncio.sleep(0.1)
            assert _pulls(cluster) == 3
            release.set()
            await until(lambda: len(inbox.messages) == 200)


async def test_topic_bounds_are_shared_by_its_queues(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, {"broker-a": {"T": 4}}) as cluster:
        put(cluster, 400)
        release = threading.Event()
        inbox = Inbox()

        def listen(messages: list[MessageExt]) -> None:
            release.wait()
            inbox(messages)

        def pulled() -> set[int]:
            requests = cluster.broker.requests(RequestCode.PULL_MESSAGE)
            return {int(request.ext_fields["queueOffset"]) for request in requests}

        limits = FlowControl(max_topic_messages=40)
        pull = PullSettings(max_messages=4)
        async with consumer_of(cluster, listen, workers=2, flow_control=limits, pull=pull) as consumer:
            await until_assigned(consumer, 4)
            # 10 messages of each queue may wait, and a pull returns 4 more.
            await until(lambda: max(pulled(), default=0) == 8)
            await asyncio.sleep(0.1)
            assert max(pulled()) == 8
            release.set()
            await until(lambda: len(inbox.messages) == 400)


async def test_max_span_bounds_the_distance_to_a_stuck_message(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
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


# --- stopping ---


async def test_stop_waits_for_listeners_and_commits(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        put(cluster, 3, queues=1)
        begun = threading.Event()
        release = threading.Event()

        def listen(messages: list[MessageExt]) -> None:
            begun.set()
            release.wait()

        async with consumer_of(cluster, listen, workers=1):
            await until(begun.is_set)
            asyncio.get_running_loop().call_later(0.1, release.set)
        assert cluster.broker.committed() == 1, "the other two were never begun"


@pytest.mark.parametrize("kind", ["function", "coroutine"])
async def test_stop_gives_up_after_the_grace_time(
    kind: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    async with running_cluster(tmp_path) as cluster:
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
        assert "after_seconds=0.05" in caplog.text
        assert cluster.broker.committed() == 0
        if kind == "coroutine":
            await until(lambda: cancelled)
        release.set()


async def test_a_cancelled_stop_completes(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
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
        assert cluster.broker.committed() == 1
        await asyncio.wait([stopping])
        with pytest.raises(NotRunning, match="consumer g is not running: begin a block by `async with`"):
            await consumer.commit()


async def test_a_stop_during_a_start_that_fails(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        group: dict[str, Any] = {"group": "g", "topics": ["T"], "listener": Inbox()}
        consumer = PushConsumer(cluster.address, **group)
        async with PushConsumer(cluster.address, **group):
            await _a_start_that_fails(consumer)


async def _a_start_that_fails(consumer: PushConsumer) -> None:
    starting = asyncio.ensure_future(consumer.start())
    await asyncio.sleep(0)
    await consumer.stop()
    with pytest.raises(UsageError, match="already has a consumer in this process"):
        await starting


async def test_invalid_consumers_are_refused(tmp_path: Path) -> None:
    inbox = Inbox()
    with pytest.raises(UsageError, match="group"):
        PushConsumer("a:1", group="", topics=["T"], listener=inbox)
    with pytest.raises(UsageError, match="consume_from"):
        PushConsumer("a:1", group="g", topics=["T"], listener=inbox, consume_from="middle")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no tag in"):
        PushConsumer("a:1", group="g", topics={"T": " || "}, listener=inbox)
    async with running_cluster(tmp_path) as cluster:
        with pytest.raises(UsageError, match="has no topics"):
            await PushConsumer(cluster.address, group="g", listener=inbox).start()
        with pytest.raises(UsageError, match="workers=0"):
            PushConsumer(cluster.address, group="g", topics=["T"], listener=inbox, workers=0)
        with pytest.raises(UsageError, match="must be a function"):
            await PushConsumer(cluster.address, group="g", topics=["T"], listener=3).start()  # type: ignore[arg-type]
