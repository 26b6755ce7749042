"""Which sends wait for which replicas, and what consumers may see; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from rmq_broker.store.api import Durability, ReplicationSettings
from rmq_broker.store.replicas.replica_set import ReplicaSet
from rmq_broker.store.write_health import WriteHealth
from tests.support.broker_settings import broker_settings
from tests.support.waiting import loop_passes, until


class Master:
    """A log whose end is a number, and its replicas."""

    def __init__(self, settings: ReplicationSettings) -> None:
        self.end = 0
        self.now = 100.0
        self.health = WriteHealth()
        self.confirmed: list[int] = []
        self.replicas = ReplicaSet(
            settings,
            lambda: self.end,
            self.health,
            lambda: self.confirmed.append(self.replicas.confirmed_offset),
            lambda: self.now,
        )
        self.replicas.start()

    def append(self) -> asyncio.Future[Durability]:
        """Append 10 bytes; the future tells how the wait for replicas ended."""
        self.end += 10
        assert self.replicas.appended()
        future: asyncio.Future[Durability] = asyncio.get_running_loop().create_future()
        self.replicas.when_replicated(self.end, future.set_result)
        return future


def _master(**keys: object) -> Master:
    return Master(broker_settings(brokerRole="SYNC_MASTER", **keys))


@pytest.fixture
async def master() -> AsyncIterator[Master]:
    master = _master()
    yield master
    master.replicas.stop()


async def test_one_acknowledgement_completes_all_that_it_covers(master: Master) -> None:
    replica = master.replicas.join("r", 0)
    waits = [master.append() for _ in range(3)]
    await loop_passes()
    master.replicas.acknowledge(replica, 20)
    assert [wait.done() for wait in waits] == [True, True, False]
    assert (waits[1].result(), master.replicas.confirmed_offset) == (Durability.DURABLE, 20)
    assert master.confirmed == [20]


async def test_without_replicas_the_master_goes_on_alone(master: Master) -> None:
    assert await master.append() is Durability.NO_REPLICA
    assert master.replicas.confirmed_offset == 10


async def test_the_loss_of_the_last_replica_ends_the_waits(master: Master) -> None:
    replica = master.replicas.join("r", 0)
    wait = master.append()
    await loop_passes()
    assert (wait.done(), master.replicas.confirmed_offset) == (False, 0)
    master.replicas.leave(replica)
    assert wait.result() is Durability.NO_REPLICA
    assert master.replicas.confirmed_offset == 10


async def test_a_deposed_master_acknowledges_nothing_and_lets_no_send_wait(master: Master) -> None:
    replica = master.replicas.join("r", 0)
    wait = master.append()
    await loop_passes()
    master.replicas.depose()
    assert wait.result() is Durability.REPLICA_TIMED_OUT
    following = master.append()
    master.replicas.acknowledge(replica, 20)
    assert await following is Durability.REPLICA_TIMED_OUT
    assert master.replicas.confirmed_offset == 0
    master.replicas.elected()
    assert master.replicas.confirmed_offset == 20


async def test_two_connections_of_one_replica_count_once() -> None:
    """The first connection is half open, and the replica has connected again."""
    master = _master(inSyncReplicas=3)
    half_open = master.replicas.join("10.0.0.1:4001", 0)
    other = master.replicas.join("10.0.0.2:4001", 0)
    wait = master.append()
    await loop_passes()
    master.replicas.acknowledge(half_open, 10)
    master.replicas.join("10.0.0.1:4002", 10)
    assert (wait.done(), master.replicas.confirmed_offset) == (False, 0)
    master.replicas.acknowledge(other, 10)
    assert wait.result() is Durability.DURABLE
    master.replicas.stop()


async def test_two_replicas_of_one_host_count_twice() -> None:
    master = _master(inSyncReplicas=3)
    first = master.replicas.join("10.0.0.1:4001", 0)
    second = master.replicas.join("10.0.0.1:4002", 0)
    wait = master.append()
    await loop_passes()
    master.replicas.acknowledge(first, 10)
    master.replicas.acknowledge(second, 10)
    assert wait.result() is Durability.DURABLE
    master.replicas.stop()


async def test_consumers_see_nothing_that_only_the_fastest_replica_has() -> None:
    master = _master(inSyncReplicas=3)
    fast, slow = master.replicas.join("fast", 0), master.replicas.join("slow", 0)
    wait = master.append()
    await loop_passes()
    master.replicas.acknowledge(fast, 10)
    assert (wait.done(), master.replicas.confirmed_offset) == (False, 0)
    master.replicas.acknowledge(slow, 10)
    assert (wait.result(), master.replicas.confirmed_offset) == (Durability.DURABLE, 10)
    master.replicas.stop()


async def test_what_consumers_saw_is_never_taken_back(master: Master) -> None:
    assert await master.append() is Durability.NO_REPLICA
    master.replicas.join("behind", 0)
    assert master.replicas.confirmed_offset == 10


async def test_a_replica_too_far_behind_is_not_waited_for() -> None:
    master = _master(haMaxGapNotInSync=15)
    replica = master.replicas.join("r", 0)
    first = master.append()
    await loop_passes()
    assert not first.done()
    second = master.append()  # now the replica lacks 20 bytes
    await loop_passes()
    assert (first.result(), second.result()) == (Durability.NO_REPLICA, Durability.NO_REPLICA)
    assert not master.replicas.in_sync()
    master.replicas.acknowledge(replica, 10)
    assert master.replicas.in_sync() == [replica]
    master.replicas.stop()


@pytest.mark.parametrize(("in_sync", "needed"), [(1, 1), (2, 2), (3, 3), (4, 3)])
async def test_the_number_may_follow_the_replicas_in_sync(in_sync: int, needed: int) -> None:
    master = _master(inSyncReplicas=3, enableAutoInSyncReplicas="true")
    assert master.replicas.required(in_sync) == needed


async def test_messages_are_refused_while_too_few_are_in_sync() -> None:
    master = _master(minInSyncReplicas=2)
    assert "1 of minInSyncReplicas=2" in (master.health.refusal or "")
    replica = master.replicas.join("r", 0)
    assert master.health.refusal is None
    master.replicas.leave(replica)
    assert master.health.refusal is not None
    master.replicas.stop()


async def test_below_the_minimum_consumers_see_nothing_that_no_replica_has() -> None:
    master = _master(minInSyncReplicas=2)
    replica = master.replicas.join("r", 0)
    wait = master.append()
    await loop_passes()
    master.replicas.leave(replica)
    assert wait.result() is Durability.NO_REPLICA
    assert master.replicas.confirmed_offset == 0
    master.replicas.join("r", 10)
    assert master.replicas.confirmed_offset == 10
    master.replicas.stop()


async def test_a_wait_ends_after_the_timeout() -> None:
    master = _master(slaveTimeout=1)
    master.replicas.join("r", 0)
    wait = master.append()
    await loop_passes()
    master.now += 0.002
    await until(wait.done)
    assert wait.result() is Durability.REPLICA_TIMED_OUT
    assert master.replicas.confirmed_offset == 0
    assert master.replicas.statistics.timed_out == 1
    master.replicas.stop()


async def test_timeouts_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    master = _master(slaveTimeout=1)
    master.replicas.join("r", 0)
    for _ in range(40):
        wait = master.append()
        await loop_passes()
        master.now += 0.5
        await until(wait.done)
    lines = [record.getMessage() for record in caplog.records if "timed out" in record.getMessage()]
    assert [line.split(" ")[3] for line in lines] == ["sends=1", "sends=20"]
    master.replicas.stop()


async def test_a_stop_ends_all_waits(master: Master) -> None:
    master.replicas.join("r", 0)
    wait = master.append()
    await loop_passes()
    master.replicas.stop()
    assert wait.result() is Durability.REPLICA_TIMED_OUT
    assert master.replicas.confirmed_offset == master.end


async def test_a_failing_listener_keeps_no_other_from_its_result(master: Master) -> None:
    replica = master.replicas.join("r", 0)
    master.end += 10

    def fail(durability: Durability) -> None:
        raise RuntimeError("on purpose")

    master.replicas.when_replicated(10, fail)
    wait = master.append()
    master.replicas.acknowledge(replica, 20)
    assert wait.result() is Durability.DURABLE


async def test_an_asynchronous_master_waits_for_nobody() -> None:
    master = Master(broker_settings())
    assert not master.replicas.is_synchronous
    assert not master.replicas.appended()


async def test_growth_is_told_once_for_all_appends_of_an_iteration(master: Master) -> None:
    told: list[int] = []
    master.replicas.add_growth_listener(lambda: told.append(master.end))
    waits = [master.append() for _ in range(5)]
    await asyncio.gather(*waits)
    assert told == [50]
