"""Rebalance listeners of push and pull consumers: their calls, and the steps that wait for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmq_client import (
    ClientSettings,
    Message,
    MessageExt,
    MessageQueue,
    PullConsumer,
    RebalanceListener,
    blocking,
)
from tests.support.clusters import RunningCluster, cluster_in_a_thread, running_cluster
from tests.support.push_consumers import QUICK, Inbox, consumer_of, put, until_assigned
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until, until_in_thread

_SECOND = ClientSettings(instance_name="second")


def _queues(*numbers: int) -> list[MessageQueue]:
    return [MessageQueue("T", "broker-a", number) for number in numbers]


class _Functions(RebalanceListener):
    """Records calls, and what `look` returns at their time."""

    def __init__(self, look: Callable[[], object] = lambda: None) -> None:
        self.calls: list[tuple[str, list[MessageQueue]]] = []
        self.looks: list[object] = []
        self.threads: set[str] = set()
        self._look = look

    def on_assigned(self, queues: list[MessageQueue]) -> None:
        self._record("assigned", queues)

    def on_revoked(self, queues: list[MessageQueue]) -> None:
        self._record("revoked", queues)

    def on_lost(self, queues: list[MessageQueue]) -> None:
        self._record("lost", queues)

    def _record(self, what: str, queues: list[MessageQueue]) -> None:
        self.calls.append((what, queues))
        self.looks.append(self._look())
        self.threads.add(threading.current_thread().name)

    def queues(self) -> list[MessageQueue]:
        """Return the queues that the consumer has, as far as it was told."""
        held: set[MessageQueue] = set()
        for what, queues in self.calls:
            if what == "assigned":
                assert not held.intersection(queues)
                held.update(queues)
            else:
                assert held.issuperset(queues)
                held.difference_update(queues)
        return sorted(held)


class _Coroutines(RebalanceListener):
    def __init__(self, recorder: _Functions) -> None:
        self._recorder = recorder

    async def on_assigned(self, queues: list[MessageQueue]) -> None:
        await asyncio.sleep(0)
        self._recorder.on_assigned(queues)

    async def on_revoked(self, queues: list[MessageQueue]) -> None:
        await asyncio.sleep(0)
        self._recorder.on_revoked(queues)


@pytest.mark.parametrize("orderly", [True, False])
@pytest.mark.parametrize("coroutine", [True, False])
async def test_push_consumers_tell_before_the_first_message_and_before_the_last_commit(
    orderly: bool, coroutine: bool, tmp_path: Path
) -> None:
    async with running_cluster(tmp_path, {"broker-a": {"T": 4}}) as cluster:
        put(cluster, 8)
        inbox = Inbox()
        recorder = _Functions(lambda: (len(inbox.messages), cluster.broker.committed()))
        listener: RebalanceListener = _Coroutines(recorder) if coroutine else recorder
        async with consumer_of(cluster, inbox, orderly=orderly, rebalance_listener=listener) as consumer:
            await until(lambda: len(inbox.messages) == 8)
            assert recorder.calls == [("assigned", _queues(0, 1, 2, 3))]
            assert recorder.looks[0] == (0, None)
            async with consumer_of(cluster, Inbox(), orderly=orderly, settings=_SECOND) as other:
                await until_assigned(other, 2)
                await until(lambda: len(recorder.calls) == 2)
                assert recorder.calls[1][0] == "revoked"
                assert await consumer.assigned_queues() == recorder.queues()
            await until(lambda: recorder.queues() == _queues(0, 1, 2, 3))
            await consumer.unsubscribe("T")
            await until(lambda: not recorder.queues())
            await consumer.subscribe("T")
            await until(lambda: recorder.queues() == _queues(0, 1, 2, 3))
        assert recorder.calls[-1] == ("revoked", _queues(0, 1, 2, 3))
        main = threading.current_thread().name
        assert (recorder.threads == {main}) is coroutine
        assert cluster.broker.committed() == 2


async def test_offsets_are_committed_after_queues_were_revoked(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        put(cluster, 3, queues=1)
        inbox, recorder = Inbox(), _Functions(cluster.broker.committed)
        timing = replace(QUICK, commit_seconds=3600)
        async with consumer_of(
            cluster, inbox, orderly=True, rebalance_listener=recorder, timing=timing
        ) as consumer:
            await until(lambda: len(inbox.messages) == 3)
            await consumer.unsubscribe("T")
            await until(lambda: cluster.broker.committed() == 3)
        assert [what for what, _ in recorder.calls] == ["assigned", "revoked"]
        assert recorder.looks == [None, None]


async def test_a_lost_queue_is_not_revoked(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, {"broker-a": {"T": 2}}) as cluster:
        recorder = _Functions()
        async with consumer_of(cluster, Inbox(), orderly=True, rebalance_listener=recorder) as consumer:
            await until_assigned(consumer, 2)
            cluster.broker.expire_lock(_queues(0)[0])
            assert cluster.broker.locks.lock("g", _queues(0), "another-client")
            await until(lambda: ("lost", _queues(0)) in recorder.calls)
            assert recorder.queues() == _queues(1)
            cluster.broker.expire_lock(_queues(0)[0])
            await until(lambda: recorder.queues() == _queues(0, 1))
        assert recorder.calls[-1] == ("revoked", _queues(0, 1))


@pytest.mark.parametrize("orderly", [True, False])
async def test_pop_push_consumers_tell_of_brokers(orderly: bool, tmp_path: Path) -> None:
    async with running_cluster(tmp_path, {"broker-a": {"T": 2}}, defaultMessageRequestMode="POP") as cluster:
        put(cluster, 4, queues=2)
        inbox, recorder = Inbox(), _Functions()
        async with consumer_of(
            cluster, inbox, client_rebalance=False, orderly=orderly, rebalance_listener=recorder
        ) as consumer:
            await until(lambda: len(inbox.messages) == 4)
            assert recorder.calls == [("assigned", _queues(-1))]
            await consumer.unsubscribe("T")
            await until(lambda: not recorder.queues())
            await consumer.subscribe("T")
            await until(lambda: recorder.queues() == _queues(-1))
        assert recorder.calls[-1] == ("revoked", _queues(-1))
        assert not recorder.queues()


class _Positions(RebalanceListener):
    """Keeps the positions of a pull consumer itself, as an application with a database does."""

    def __init__(self, positions: dict[MessageQueue, int]) -> None:
        self.positions = positions
        self.consumer: PullConsumer

    async def on_assigned(self, queues: list[MessageQueue]) -> None:
        for queue in queues:
            await self.consumer.seek(queue, self.positions.get(queue, 0))

    async def on_revoked(self, queues: list[MessageQueue]) -> None:
        for queue in queues:
            self.positions[queue] = await self.consumer.position(queue)


def _puller(cluster: RunningCluster, listener: RebalanceListener | None, **options: Any) -> PullConsumer:
    return PullConsumer(
        cluster.address, group="g", topics="T", timing=QUICK, rebalance_listener=listener, **options
    )


async def _poll(consumer: PullConsumer, count: int) -> list[bytes]:
    messages: list[MessageExt] = []
    async with asyncio.timeout(10):
        while len(messages) < count:
            messages += await consumer.poll(count - len(messages))
    return sorted(message.body for message in messages)


async def test_pull_consumers_seek_when_queues_come_and_store_positions_when_they_leave(
    tmp_path: Path,
) -> None:
    positions: dict[MessageQueue, int] = {}
    async with running_cluster(tmp_path, {"broker-a": {"T": 2}}) as cluster:
        bodies = put(cluster, 8, queues=2)
        listener = _Positions(positions)
        listener.consumer = consumer = _puller(cluster, listener)
        async with consumer:
            assert await _poll(consumer, 8) == bodies
            recorder = _Functions()
            async with _puller(cluster, recorder, settings=_SECOND) as other:
                await until(lambda: len(other.assigned_queues()) == 1)
                await until(lambda: len(consumer.assigned_queues()) == 1)
                assert positions == dict.fromkeys(other.assigned_queues(), 4)
                assert recorder.calls == [("assigned", other.assigned_queues())]
            assert not recorder.queues()
            await until(lambda: len(consumer.assigned_queues()) == 2)
            put(cluster, 2, queues=2)
            assert await _poll(consumer, 2) == bodies[:2], "it continues at the stored positions"
        assert positions == dict.fromkeys(_queues(0, 1), 5)


async def test_queues_can_be_paused_when_they_come(tmp_path: Path) -> None:
    class Pausing(RebalanceListener):
        async def on_assigned(self, queues: list[MessageQueue]) -> None:
            consumer.pause(queues[:1])

    async with running_cluster(tmp_path, {"broker-a": {"T": 2}}) as cluster:
        put(cluster, 4, queues=2)
        consumer = _puller(cluster, Pausing(), consume_from="first")
        async with consumer:
            assert await _poll(consumer, 2) == [b"001", b"003"]
            assert not await consumer.poll(timeout_seconds=0.1)
            consumer.resume(_queues(0))
            assert await _poll(consumer, 2) == [b"000", b"002"]


async def test_assigned_queues_of_the_application_are_its_own_business(tmp_path: Path) -> None:
    recorder = _Functions()
    async with (
        running_cluster(tmp_path, {"broker-a": {"T": 2}}) as cluster,
        PullConsumer(cluster.address, group="g", rebalance_listener=recorder) as consumer,
    ):
        await consumer.assign(_queues(0, 1))
        await consumer.assign([])
    assert not recorder.calls


def test_the_blocking_faces_may_call_their_consumer(tmp_path: Path) -> None:
    class Seeking(_Functions):
        def on_assigned(self, queues: list[MessageQueue]) -> None:
            super().on_assigned(queues)
            for queue in queues:
                consumer.seek(queue, 1)

        def on_revoked(self, queues: list[MessageQueue]) -> None:
            super().on_revoked(queues)
            consumer.commit()

    with cluster_in_a_thread(tmp_path, {"broker-a": {"T": 1}}) as cluster:
        with blocking.Producer(cluster.address, group="p") as producer:
            for number in range(3):
                producer.send(Message("T", b"%d" % number))
        recorder = Seeking()
        consumer = blocking.PullConsumer(
            cluster.address, group="g", topics="T", rebalance_listener=recorder, timing=QUICK
        )
        with consumer:
            assert [message.body for _, message in zip(range(2), consumer, strict=False)] == [b"1", b"2"]
        assert [what for what, _ in recorder.calls] == ["assigned", "revoked"]
        assert cluster.broker.committed() == 3
        told = _Functions()
        with blocking.PushConsumer(
            cluster.address,
            group="push",
            topics="T",
            listener=lambda messages: None,
            rebalance_listener=told,
        ):
            until_in_thread(lambda: told.calls)
        assert not told.queues()
