"""Members of a group: they share queues, and stay members whatever the application does."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from rmq_client import (
    ClientSettings,
    ConsumerTiming,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullSettings,
    ShareChange,
    UsageError,
)
from rmq_remoting.codes import RequestCode
from tests.support.clusters import RunningCluster, cluster_in_a_thread, running_cluster
from tests.support.push_consumers import Inbox, consumer_of, put, until_assigned
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until, until_in_thread

# --- sharing ---


async def test_consumers_of_a_group_share_the_queues(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, {"broker-a": {"T": 4}, "broker-b": {"T": 4}}) as cluster:
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


async def test_the_share_listener_is_called_on_changes(tmp_path: Path) -> None:
    def queues(*numbers: int) -> tuple[MessageQueue, ...]:
        return tuple(MessageQueue("T", "broker-a", number) for number in numbers)

    async with running_cluster(tmp_path, {"broker-a": {"T": 4}}) as cluster:
        told: list[ShareChange] = []
        threads: set[str] = set()

        def listen(change: ShareChange) -> None:
            threads.add(threading.current_thread().name)
            told.append(change)
            raise RuntimeError("irrelevant")

        second = ClientSettings(instance_name="second")
        async with consumer_of(cluster, Inbox(), share_listener=listen) as consumer:
            await until(lambda: told)
            assert told == [ShareChange("T", queues(0, 1, 2, 3), queues(0, 1, 2, 3), (), queues(0, 1, 2, 3))]
            async with consumer_of(cluster, Inbox(), settings=second) as other:
                await until_assigned(other, 2)
                await until(lambda: len(told) > 1)
                left = told[-1].queues
                assert told[-1].given_up == tuple(sorted(set(queues(0, 1, 2, 3)) - set(left)))
                assert (len(left), told[-1].taken) == (2, ())
            await until(lambda: len(told) > 2)
            assert (told[-1].queues, len(told[-1].taken)) == (queues(0, 1, 2, 3), 2)
            await consumer.unsubscribe("T")
            await until(lambda: len(told) > 3)
            assert (told[-1].queues, told[-1].given_up) == ((), queues(0, 1, 2, 3))
        assert threads == {threading.current_thread().name}


async def test_a_client_has_one_consumer_per_group(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster, consumer_of(cluster, Inbox()) as consumer:
        with pytest.raises(
            UsageError, match=r"already has a consumer in this process.*instance_name='second'"
        ):
            async with consumer_of(cluster, Inbox()):
                pass
        assert cluster.broker.members("g"), "the first one is still in the group"
        await until_assigned(consumer, 1)


async def test_all_producers_and_consumers_share_one_connection_per_broker(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, {"broker-a": {"T": 1}, "broker-b": {"T": 1}}) as cluster:
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
            assert len(cluster.recorded.peers(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == 1
            producers = cluster.broker.services.clients.producers
            await until(lambda: producers.find_group("p1") and producers.find_group("p2"))


# --- while the application hangs ---


def _progress(cluster: RunningCluster) -> tuple[int, ...]:
    return (
        len(cluster.broker.requests(RequestCode.HEART_BEAT)),
        len(cluster.broker.requests(RequestCode.UPDATE_CONSUMER_OFFSET)),
        len(cluster.recorded.of(RequestCode.GET_ROUTEINFO_BY_TOPIC)),
        len(cluster.broker.requests(RequestCode.GET_CONSUMER_LIST_BY_GROUP)),
        len(cluster.broker.requests(RequestCode.PULL_MESSAGE)),
    )


_HANGING = ConsumerTiming(rebalance_seconds=0.05, rebalance_again_seconds=0.02, commit_seconds=0.05)
_HANGING_SETTINGS = ClientSettings(heartbeat_seconds=0.05, route_refresh_seconds=0.05)


async def test_membership_survives_sleeping_listeners(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, {"broker-a": {"T": 2}}) as cluster:
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
async def test_membership_survives_misbehaving_coroutines(kind: str, orderly: bool, tmp_path: Path) -> None:
    async with running_cluster(tmp_path, {"broker-a": {"T": 2}}) as cluster:
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
            "suspend_seconds": 0.02,
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
async def test_membership_survives_a_blocked_loop(kind: str, tmp_path: Path) -> None:
    with cluster_in_a_thread(tmp_path, {"broker-a": {"T": 2}}) as cluster:
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

            until_in_thread(all_moved, timeout_seconds=20)  # the loop is blocked in the meantime
            progress.append(_progress(cluster))
            blocked = True

        options = {"timing": _HANGING, "settings": _HANGING_SETTINGS}
        async with consumer_of(cluster, listen, pull=PullSettings(hold_seconds=0.05), **options):
            put(cluster, 2, queues=2)
            await until(lambda: blocked, timeout_seconds=30)
        assert cluster.broker.committed(queue_id=1) == 1
