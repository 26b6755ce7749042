"""Which members of the in-sync set sends wait for, and what consumers may see; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from rmq_broker.store.api import BrokerRole, Durability
from rmq_broker.store.replicas.in_sync_set import InSyncReplicas
from rmq_broker.store.write_health import WriteHealth
from tests.support.broker_settings import broker_settings
from tests.support.waiting import loop_passes


class Master:
    """A master with id 1 and a log whose end is a number."""

    def __init__(self, members: Iterable[int] = (1,), **keys: object) -> None:
        self.end = 0
        self.now = 100.0
        self.health = WriteHealth()
        chosen = {"enableControllerMode": True, "controllerAddr": "127.0.0.1:1", **keys}
        settings = broker_settings(**chosen).model_copy(update={"broker_role": BrokerRole.SYNC_MASTER})
        self.replicas = InSyncReplicas(
            settings, lambda: self.end, self.health, lambda: None, lambda: self.now
        )
        self.replicas.set_members(1, members)
        self.replicas.start()

    def append(self) -> asyncio.Future[Durability]:
        """Append 10 bytes; the future tells how the wait for replicas ended."""
        self.end += 10
        self.replicas.appended()
        future: asyncio.Future[Durability] = asyncio.get_running_loop().create_future()
        self.replicas.when_replicated(self.end, future.set_result)
        return future


async def test_a_master_alone_in_its_set_waits_for_nobody() -> None:
    master = Master()
    wait = master.append()
    assert await wait is Durability.DURABLE
    assert master.replicas.confirmed_offset == 10


async def test_sends_wait_for_every_member() -> None:
    master = Master([1, 2, 3])
    second = master.replicas.join("b", 0, 2)
    wait = master.append()
    master.replicas.acknowledge(second, 10)
    await loop_passes()
    # The third is not connected: a failover could elect it all the same.
    assert (wait.done(), master.replicas.confirmed_offset) == (False, 0)
    master.replicas.join("c", 10, 3)
    assert await wait is Durability.DURABLE
    assert master.replicas.confirmed_offset == 10


async def test_sends_do_not_wait_for_replicas_outside_the_set() -> None:
    master = Master([1, 2])
    master.replicas.join("c", 0, 3)
    wait = master.append()
    master.replicas.join("b", 10, 2)
    assert await wait is Durability.DURABLE


async def test_sends_wait_for_a_member_until_the_controller_has_removed_it() -> None:
    master = Master([1, 2])
    second = master.replicas.join("b", 0, 2)
    wait = master.append()
    master.replicas.leave(second)
    await loop_passes()
    assert not wait.done()
    master.replicas.set_members(1, [1])
    assert await wait is Durability.DURABLE


async def test_sends_wait_for_a_replica_that_the_controller_may_have_added() -> None:
    master = Master([1])
    second = master.replicas.join("b", 0, 2)
    master.replicas.set_members(1, [1], [2])
    wait = master.append()
    await loop_passes()
    assert not wait.done()
    assert master.replicas.in_sync() == []
    master.replicas.acknowledge(second, 10)
    assert await wait is Durability.DURABLE


async def test_what_was_confirmed_stays_confirmed() -> None:
    master = Master([1])
    await master.append()
    master.replicas.join("b", 0, 2)
    master.replicas.set_members(1, [1, 2])
    assert master.replicas.confirmed_offset == 10


async def test_a_number_of_brokers_instead_of_the_whole_set() -> None:
    master = Master([1, 2, 3], inSyncReplicas=2)
    master.replicas.join("b", 10, 2)
    assert await master.append() is Durability.DURABLE


async def test_too_few_members_for_that_number() -> None:
    master = Master([1], inSyncReplicas=2, allAckInSyncStateSet=False)
    assert await master.append() is Durability.NO_REPLICA


async def test_messages_are_refused_below_the_minimum() -> None:
    master = Master([1], minInSyncReplicas=2)
    assert "minInSyncReplicas=2" in (master.health.refusal or "")
    master.replicas.set_members(1, [1, 2])
    assert master.health.refusal is None


@pytest.mark.parametrize(
    ("keys", "waits_for_all"),
    [
        ({}, True),
        ({"inSyncReplicas": 2}, False),
        ({"inSyncReplicas": 2, "allAckInSyncStateSet": True}, True),
        ({"allAckInSyncStateSet": False}, False),
    ],
)
def test_sends_wait_for_the_whole_set_unless_a_setting_says_otherwise(
    keys: dict[str, object], waits_for_all: bool
) -> None:
    settings = broker_settings(enableControllerMode=True, controllerAddr="127.0.0.1:1", **keys)
    assert settings.waits_for_in_sync_set is waits_for_all
