"""The pull consumer: assigned queues, positions, commits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rmq_client import (
    Admin,
    BrokerUnreachable,
    ClientSettings,
    ConsumeHook,
    FlowControl,
    MessageExt,
    MessageQueue,
    NotRunning,
    PullConsumer,
    PullSettings,
    Settlement,
    SettlementKind,
    TopicNotFound,
    UsageError,
)
from rmq_remoting.bodies.heartbeat import ConsumeType, HeartbeatData
from rmq_remoting.codes import RequestCode
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until

_Q0 = MessageQueue("T", "broker-a", 0)
_Q1 = MessageQueue("T", "broker-a", 1)


@asynccontextmanager
async def _reader(cluster: RunningCluster, **options: Any) -> AsyncIterator[PullConsumer]:
    async with PullConsumer(cluster.address, **{"group": "g", "consume_from": "first", **options}) as reader:
        yield reader


async def _read(reader: PullConsumer, count: int, **options: Any) -> list[MessageExt]:
    messages: list[MessageExt] = []
    async with asyncio.timeout(20):
        while len(messages) < count:
            messages += await reader.poll(**options)
    return messages


def _put(cluster: RunningCluster, count: int, queues: int = 1) -> None:
    for number in range(count):
        cluster.broker.put("T", b"%03d" % number, queue_id=number % queues)


async def test_assigned_queues_are_read_in_order(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, {"broker-a": {"T": 2}}) as cluster, _reader(cluster) as reader:
        _put(cluster, 100, queues=2)
        assert await reader.queues("T") == [_Q0, _Q1]
        await reader.assign([_Q0, _Q1])
        assert reader.assigned_queues() == [_Q0, _Q1]
        messages = await _read(reader, 100)
        for queue_id in (0, 1):
            offsets = [message.queue_offset for message in messages if message.queue_id == queue_id]
            assert offsets == list(range(50))
        assert messages[0].broker_name == "broker-a"
        assert (await reader.position(_Q0), await reader.position(_Q1)) == (50, 50)


class _Settlements(ConsumeHook):
    def __init__(self) -> None:
        self.seen: list[tuple[SettlementKind, bytes, type[BaseException] | None]] = []

    def settled(self, settlement: Settlement) -> None:
        """Note it."""
        (message,) = settlement.messages
        error = settlement.error
        self.seen.append((settlement.kind, message.body, None if error is None else type(error)))


async def test_messages_become_dead_letters_of_the_group(tmp_path: Path) -> None:
    hook = _Settlements()
    settings = ClientSettings(request_timeout_seconds=2)
    async with running_cluster(tmp_path, {"broker-a": {"T": 1}}) as cluster:
        _put(cluster, 2)
        async with _reader(cluster, topics="T", hooks=[hook], settings=settings) as reader:
            first, second = await _read(reader, 2)
            await reader.dead_letter(first)
            await reader.dead_letter(second, "no such account")
            async with Admin(cluster.address) as admin:
                dead = await admin.dead_letters("g")
            assert await reader.committed(_Q0) is None, "the application commits"
            await cluster.broker.stop()
            with pytest.raises(BrokerUnreachable):
                await reader.dead_letter(first)
    assert {message.body: message.properties.get("dead_letter_reason") for message in dead} == {
        b"000": None,
        b"001": "no such account",
    }
    kind = SettlementKind.DEAD_LETTER
    assert hook.seen[:2] == [(kind, b"000", None), (kind, b"001", None)]
    assert hook.seen[2] == (kind, b"000", BrokerUnreachable)


async def test_poll_respects_its_bounds(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster, _reader(cluster) as reader:
        _put(cluster, 10)
        await reader.assign([_Q0])
        assert len(await reader.poll(max_messages=3)) == 3
        assert len(await _read(reader, 7, max_messages=4)) == 7
        assert await reader.poll(timeout_seconds=0) == []
        assert await reader.poll(timeout_seconds=0.05) == []
        waiting = asyncio.ensure_future(reader.poll(timeout_seconds=5))
        await asyncio.sleep(0.02)
        cluster.broker.put("T", b"new")
        assert [message.body for message in await waiting] == [b"new"]


async def test_an_invalid_time_is_refused(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster, _reader(cluster) as reader:
        with pytest.raises(UsageError, match="has no time zone"):
            PullConsumer(cluster.address, group="g", consume_from=datetime(2026, 1, 1))
        await reader.assign([_Q0])
        for ask in (reader.seek_to_time, reader.offset_for_time):
            with pytest.raises(UsageError, match="has no time zone"):
                await ask(_Q0, datetime(2026, 1, 1))
            with pytest.raises(UsageError, match="must not be before 1970"):
                await ask(_Q0, datetime(1, 1, 1, tzinfo=UTC))


async def test_messages_can_be_iterated_over(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster, _reader(cluster) as reader:
        _put(cluster, 5)
        await reader.assign([_Q0])
        bodies = []
        async for message in reader:
            bodies.append(message.body)
            if len(bodies) == 5:
                await reader.stop()
        assert bodies == [b"%03d" % number for number in range(5)]


async def test_a_group_resumes_at_its_committed_offset(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        _put(cluster, 10)
        async with _reader(cluster) as reader:
            await reader.assign([_Q0])
            assert await reader.committed(_Q0) is None
            await reader.poll(max_messages=4)
            await reader.commit()
            assert await reader.committed(_Q0) == 4
            await reader.poll(max_messages=4)
        async with _reader(cluster) as reader:
            await reader.assign([_Q0])
            assert (await reader.poll())[0].queue_offset == 4
            await reader.commit({_Q0: 7})
        assert cluster.broker.committed() == 7


async def test_seeking(tmp_path: Path) -> None:
    async with (
        # With no message in memory, the reader decides where to begin.
        running_cluster(tmp_path, accessMessageInMemoryMaxRatio=0) as cluster,
        _reader(cluster, consume_from="last") as reader,
    ):
        _put(cluster, 10)
        await reader.assign([_Q0])
        assert await reader.position(_Q0) == 10
        await reader.seek(_Q0, 7)
        assert await reader.position(_Q0) == 7
        assert [message.queue_offset for message in await _read(reader, 3)] == [7, 8, 9]
        await reader.seek_to_beginning(_Q0)
        assert [message.queue_offset for message in await _read(reader, 10)] == list(range(10))
        await reader.seek_to_end(_Q0)
        assert await reader.position(_Q0) == 10
        assert await reader.poll(timeout_seconds=0.05) == []
        now, hour = datetime.now(UTC), timedelta(hours=1)
        await reader.seek_to_time(_Q0, now - hour)
        assert await reader.position(_Q0) == 0
        await reader.seek_to_time(_Q0, now + hour)
        assert await reader.position(_Q0) == 10
        with pytest.raises(UsageError, match="must be at least 0"):
            await reader.seek(_Q0, -1)
        with pytest.raises(UsageError, match="is not assigned to this consumer"):
            await reader.seek(_Q1, 0)


async def test_seeking_drops_prefetched_messages(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster, _reader(cluster) as reader:
        _put(cluster, 100)
        await reader.assign([_Q0])
        await reader.poll(max_messages=1)
        for _ in range(20):
            await reader.seek(_Q0, 50)
            assert (await reader.poll(max_messages=1))[0].queue_offset == 50


async def test_paused_queues_return_no_messages(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, {"broker-a": {"T": 2}}) as cluster, _reader(cluster) as reader:
        _put(cluster, 20, queues=2)
        await reader.assign([_Q0, _Q1])
        reader.pause([_Q0])
        messages = await _read(reader, 10)
        assert {message.queue_id for message in messages} == {1}
        assert await reader.poll(timeout_seconds=0.05) == []
        reader.resume([_Q0])
        assert {message.queue_id for message in await _read(reader, 10)} == {0}


async def test_tags_are_matched_exactly_and_can_be_changed(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster, _reader(cluster) as reader:
        for number in range(12):
            cluster.broker.put("T", b"%d" % number, tags="abc"[number % 3])
        await reader.assign([_Q0], "a")
        assert [message.tags for message in await _read(reader, 4)] == ["a"] * 4
        await until(lambda: len(cluster.broker.requests(RequestCode.PULL_MESSAGE)) > 1)
        assert await reader.position(_Q0) == 12
        pull = cluster.broker.requests(RequestCode.PULL_MESSAGE)[0].ext_fields
        assert (pull["subscription"], pull["sysFlag"]) == ("a", "6")
        await reader.seek(_Q0, 0)
        await reader.assign([_Q0], {"T": "b || c"})
        assert len(await _read(reader, 8)) == 8


async def test_reassigning_keeps_positions_and_drops_other_queues(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, {"broker-a": {"T": 2}}) as cluster, _reader(cluster) as reader:
        _put(cluster, 20, queues=2)
        await reader.assign([_Q0])
        await reader.poll(max_messages=3)
        await reader.assign([_Q0, _Q1])
        assert await reader.position(_Q0) == 3
        await reader.assign([_Q1])
        assert {message.queue_id for message in await _read(reader, 10)} == {1}
        await reader.assign([])
        assert await reader.poll(timeout_seconds=0.02) == []
        with pytest.raises(TopicNotFound):
            await reader.assign([MessageQueue("Nowhere", "broker-a", 0)])


@pytest.mark.parametrize("limits", [FlowControl(max_messages=20), FlowControl(max_topic_messages=20)])
async def test_prefetching_respects_its_bounds(limits: FlowControl, tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        _put(cluster, 100)
        pull = PullSettings(max_messages=10)
        async with _reader(cluster, flow_control=limits, pull=pull) as reader:
            await reader.assign([_Q0])
            await until(lambda: len(cluster.broker.requests(RequestCode.PULL_MESSAGE)) == 2)
            await asyncio.sleep(0.05)
            assert len(cluster.broker.requests(RequestCode.PULL_MESSAGE)) == 2
            assert len(await _read(reader, 100)) == 100


async def test_heartbeats_announce_the_pull_consumer(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        async with _reader(cluster) as reader:
            await reader.assign([_Q0], "a")
            assert cluster.broker.members("g")
            (request, *_) = cluster.broker.requests(RequestCode.HEART_BEAT)[-1:]
            (data,) = HeartbeatData.decode(request.body).consumer_data_set
            assert data.consume_type is ConsumeType.CONSUME_ACTIVELY
            assert [subscription.tags_set for subscription in data.subscription_data_set] == [["a"]]
        assert not cluster.broker.members("g")
        with pytest.raises(NotRunning):
            await reader.poll()
        assert cluster.broker.connections == set()


async def test_a_waiting_poll_ends_with_the_consumer(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster, _reader(cluster) as reader:
        await reader.assign([_Q0])
        waiting = asyncio.ensure_future(reader.poll(timeout_seconds=60))
        await asyncio.sleep(0.01)
        await reader.stop()
        assert await waiting == []


def _fetching() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("rmq fetch")]


async def test_stop_waits_for_a_start_in_progress(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        reader = PullConsumer(cluster.address, group="g")
        starting = asyncio.ensure_future(reader.start())
        await asyncio.sleep(0)
        await reader.stop()
        assert starting.done()
        await starting
        assert not reader.is_running
        async with reader:  # and can start again
            assert reader.is_running


async def test_a_cancelled_poll_loses_nothing(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster, _reader(cluster) as reader:
        await reader.assign([_Q0])
        for _ in range(5):
            waiting = asyncio.ensure_future(reader.poll(timeout_seconds=60))
            await asyncio.sleep(0.001)
            waiting.cancel()
            await asyncio.wait([waiting])
        _put(cluster, 3)
        assert len(await _read(reader, 3)) == 3


async def test_topics_are_subscribed_to_at_the_start(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        cluster.broker.put("T", b"x")
        options: dict[str, Any] = {"group": "g", "consume_from": "first"}
        async with PullConsumer(cluster.address, topics="T", **options) as consumer:
            assert [message.body for message in await consumer.poll()] == [b"x"]
        consumer = PullConsumer(cluster.address, topics={"T": "*", "Nowhere": "*"}, **options)
        with pytest.raises(TopicNotFound, match="Nowhere"):
            await consumer.start()
        assert not consumer.is_running
