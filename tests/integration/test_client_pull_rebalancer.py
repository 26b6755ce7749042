"""The pull consumer that shares the queues of topics and commits automatically."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rmq_client import (
    ClientSettings,
    ConsumerTiming,
    MessageExt,
    MessageQueue,
    NotRunning,
    PullConsumer,
    TopicNotFound,
    UsageError,
)
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until

_QUEUES = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(4)]
_QUICK = ConsumerTiming(
    rebalance_seconds=1.0, rebalance_again_seconds=0.02, takeover_seconds=0.05, commit_seconds=0.0
)


@asynccontextmanager
async def _cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with running_cluster(tmp_path, {"broker-a": {"T": 4}}) as cluster:
        yield cluster


@asynccontextmanager
async def _reader(
    cluster: RunningCluster, name: str = "DEFAULT", **options: Any
) -> AsyncIterator[PullConsumer]:
    options = {
        "group": "g",
        "consume_from": "first",
        "timing": _QUICK,
        "settings": ClientSettings(instance_name=name, route_refresh_seconds=0.05),
        **options,
    }
    async with PullConsumer(cluster.address, **options) as reader:
        yield reader


def _put(cluster: RunningCluster, count: int, queues: int = 4) -> None:
    for number in range(count):
        cluster.broker.put("T", b"%03d" % number, queue_id=number % queues)


def _committed(cluster: RunningCluster) -> int:
    return sum(cluster.broker.offsets.offsets_of("g", "T").values())


async def _until_assigned(reader: PullConsumer, count: int) -> list[MessageQueue]:
    async with asyncio.timeout(10):
        while len(reader.assigned_queues()) != count:  # noqa: ASYNC110  # another thread rebalances
            await asyncio.sleep(0.005)
    return reader.assigned_queues()


async def _read(reader: PullConsumer, count: int) -> list[MessageExt]:
    messages: list[MessageExt] = []
    async with asyncio.timeout(10):
        while len(messages) < count:
            messages += await reader.poll()
    return messages


async def test_members_share_the_queues(tmp_path: Path) -> None:
    async with _cluster(tmp_path) as cluster, _reader(cluster, "one", auto_commit=True) as one:
        _put(cluster, 20)
        await one.subscribe("T")
        assert await _until_assigned(one, 4) == _QUEUES
        await _read(one, 20)
        await one.poll(timeout_seconds=0)
        async with _reader(cluster, "two") as two:
            await two.subscribe("T")
            assert sorted(await _until_assigned(one, 2) + await _until_assigned(two, 2)) == _QUEUES
            _put(cluster, 20)
            read = await asyncio.gather(_read(one, 10), _read(two, 10))
            assert {message.queue_id for message in read[0]}.isdisjoint(
                message.queue_id for message in read[1]
            )
            # The new owner of the queues continues at the committed offsets.
            assert {message.queue_offset for message in read[1]} == set(range(5, 10))
        await _until_assigned(one, 4)


async def test_topics_come_and_go(tmp_path: Path) -> None:
    async with _cluster(tmp_path) as cluster, _reader(cluster) as reader:
        cluster.broker.put("T", b"1", tags="a")
        cluster.broker.put("T", b"2", tags="b")
        await reader.subscribe("T", "a")
        assert [message.body for message in await _read(reader, 1)] == [b"1"]
        with pytest.raises(UsageError, match="cannot have queues assigned"):
            await reader.assign(_QUEUES)
        with pytest.raises(TopicNotFound):
            await reader.subscribe("nowhere")
        await reader.unsubscribe("T")
        assert reader.assigned_queues() == []
        await reader.assign(_QUEUES[:1])
        with pytest.raises(UsageError, match="cannot subscribe"):
            await reader.subscribe("T")


async def test_polls_commit_messages_of_earlier_polls(tmp_path: Path) -> None:
    async with _cluster(tmp_path) as cluster:
        async with _reader(cluster, auto_commit=True) as reader:
            _put(cluster, 10, queues=1)
            await reader.subscribe("T")
            assert len(await _read(reader, 10)) == 10
            assert _committed(cluster) == 0
            await reader.poll(timeout_seconds=0)
            async with asyncio.timeout(20):
                while _committed(cluster) != 10:  # noqa: ASYNC110  # a request is in flight
                    await asyncio.sleep(0.005)
            _put(cluster, 4, queues=1)
            await _read(reader, 4)
        assert _committed(cluster) == 14


async def test_messages_of_a_failed_poll_are_not_committed(tmp_path: Path) -> None:
    async with _cluster(tmp_path) as cluster:
        _put(cluster, 10, queues=1)
        with pytest.raises(ZeroDivisionError):
            async with _reader(cluster, auto_commit=True) as reader:
                await reader.subscribe("T")
                async with asyncio.timeout(20):
                    while len(await reader.poll(max_messages=4)) != 4:
                        pass
                await reader.poll(max_messages=3)
                raise ZeroDivisionError
        assert _committed(cluster) == 4


@pytest.mark.parametrize("how", ["seek", "seek_to_beginning", "seek_to_time"])
async def test_a_seek_survives_a_failed_poll(how: str, tmp_path: Path) -> None:
    places = {"seek": 0, "seek_to_time": datetime.now(UTC) - timedelta(hours=1)}
    async with _cluster(tmp_path) as cluster:
        _put(cluster, 10, queues=1)
        with pytest.raises(ZeroDivisionError):
            async with _reader(cluster, auto_commit=True) as reader:
                await reader.assign(_QUEUES[:1])
                for _ in range(2):
                    await reader.poll(max_messages=3)
                await getattr(reader, how)(*[_QUEUES[0], *([places[how]] if how in places else [])])
                raise ZeroDivisionError
        assert cluster.broker.committed() == 0


async def test_giving_up_queues_commits_processed_messages(tmp_path: Path) -> None:
    rare = ConsumerTiming(commit_seconds=60)
    async with _cluster(tmp_path) as cluster, _reader(cluster, auto_commit=True, timing=rare) as reader:
        _put(cluster, 10, queues=1)
        await reader.assign(_QUEUES[:1])
        await _read(reader, 7)
        done = await reader.position(_QUEUES[0])
        await reader.poll(timeout_seconds=0)
        await reader.assign(_QUEUES[1:2])
        assert cluster.broker.committed() == done


async def test_auto_commit_does_not_overwrite_a_reset(tmp_path: Path) -> None:
    async with _cluster(tmp_path) as cluster:
        broker = cluster.broker
        _put(cluster, 100, queues=1)
        with pytest.raises(ZeroDivisionError):
            async with _reader(cluster, auto_commit=True) as reader:
                await reader.assign(_QUEUES[:1])
                assert len(await reader.poll(max_messages=10)) == 10
                await until(lambda: broker.held_pulls.count)  # everything is prefetched
                broker.offsets.assign_reset("g", "T", 0, 5)
                broker.services.pulls.wake("T", 0)
                async with asyncio.timeout(20):
                    while await reader.position(_QUEUES[0]) != 5:  # noqa: ASYNC110  # an answer is in flight
                        await asyncio.sleep(0.001)
                raise ZeroDivisionError
        assert broker.committed() == 5


def _tasks() -> list[str]:
    names = [task.get_name() for task in asyncio.all_tasks()]
    return [name for name in names if name.startswith(("rmq fetch", "rmq share"))]


async def test_a_takeover_interrupted_by_stop(tmp_path: Path) -> None:
    waiting = asyncio.Event()
    async with _cluster(tmp_path) as cluster:
        async with _reader(cluster, "one") as one, _reader(cluster, "two") as two:
            await one.subscribe("T")
            apply = two._sharing._apply

            async def noted(topic: str, queues: frozenset[MessageQueue], wait_seconds: float) -> None:
                waiting.set()
                await apply(topic, queues, wait_seconds)

            two._sharing._apply = noted
            subscribing = asyncio.ensure_future(two.subscribe("T"))
            await waiting.wait()
            await two.stop()
            with pytest.raises(NotRunning):
                await subscribing
        assert _tasks() == []


async def test_commits_include_iterated_messages(tmp_path: Path) -> None:
    async with _cluster(tmp_path) as cluster, _reader(cluster) as reader:
        _put(cluster, 10, queues=1)
        await reader.subscribe("T")
        number = 0
        async for _ in reader:
            number += 1
            if number == 3:
                break
        await reader.commit()
        assert _committed(cluster) == 3


async def test_the_offset_of_a_time(tmp_path: Path) -> None:
    async with _cluster(tmp_path) as cluster, _reader(cluster) as reader:
        _put(cluster, 3, queues=1)
        now, hour = datetime.now(UTC), timedelta(hours=1)
        assert await reader.offset_for_time(_QUEUES[0], now - hour) == 0
        assert await reader.offset_for_time(_QUEUES[0], now + hour) == 3


async def test_queue_listeners_are_called_on_changes(tmp_path: Path) -> None:
    told: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
    async with _cluster(tmp_path) as cluster, _reader(cluster) as reader:
        await reader.subscribe("T")
        queues = await reader.listen_to_queues("T", lambda topic, now: told.put_nowait((topic, len(now))))
        assert queues == _QUEUES
        await cluster.broker.set_queues("T", 6)
        async with asyncio.timeout(10):
            assert await told.get() == ("T", 6)
        await _until_assigned(reader, 6)
