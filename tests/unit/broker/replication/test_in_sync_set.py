"""Changes of the in-sync set that a master asks its controller for; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from rmq_broker.controller.controllers import ControllerRefused, ControllerUnavailable
from rmq_broker.controller.member import GroupMember
from rmq_broker.controller.role import Role, SyncState
from rmq_broker.replication.in_sync_set import InSyncSet
from rmq_broker.store.api import BrokerRole, InSyncReplicas, ReplicaPosition
from rmq_broker.store.write_health import WriteHealth
from rmq_remoting.codes import ResponseCode
from tests.support.broker_settings import broker_settings
from tests.support.waiting import loop_passes, until


class Controller:
    """The controller, as a master's member asks it."""

    def __init__(self) -> None:
        self.asked: list[frozenset[int]] = []
        self.state = SyncState(frozenset({1}), 5)
        self.failure: Exception | None = None
        self.woken = 0

    async def alter_sync_state(self, members: frozenset[int], before: SyncState) -> SyncState:
        self.asked.append(members)
        if self.failure is not None:
            raise self.failure
        assert before.epoch == self.state.epoch
        self.state = SyncState(members, before.epoch + 1)
        return self.state

    def wake(self) -> None:
        self.woken += 1


class Master:
    """A master with id 1."""

    def __init__(self, controller: Controller) -> None:
        keys = {"enableControllerMode": True, "controllerAddr": "127.0.0.1:1", "checkSyncStateSetPeriod": 10}
        self.settings = broker_settings(**keys).model_copy(update={"broker_role": BrokerRole.SYNC_MASTER})
        self.now_ms, self.end = 0, 100
        self.replicas = InSyncReplicas(self.settings, lambda: self.end, WriteHealth(), lambda: None)
        self.in_sync = InSyncSet(
            self.settings,
            cast("GroupMember", controller),
            Role(1, 1, "10.0.0.1:10911", 3, controller.state),
            self.replicas,
            lambda: self.now_ms,
        )
        self.replicas.start()


@asynccontextmanager
async def _running(controller: Controller) -> AsyncIterator[Master]:
    master = Master(controller)
    task = asyncio.ensure_future(master.in_sync.run())
    try:
        yield master
    finally:
        task.cancel()
        await asyncio.wait([task])
        master.replicas.stop()


async def _joined(master: Master) -> ReplicaPosition:
    """A replica with the whole log, which the controller has taken into the set."""
    position = master.replicas.join("b", 100, 2)
    master.in_sync.caught_up(position, with_epoch=True)
    await until(lambda: master.in_sync.state.members == {1, 2})
    return position


async def test_a_replica_that_has_caught_up_is_counted_and_then_proposed() -> None:
    controller = Controller()
    async with _running(controller) as master:
        position = master.replicas.join("b", 90, 2)
        master.in_sync.caught_up(position, with_epoch=True)
        assert master.replicas.counted == {1, 2}
        assert controller.asked == []
        await loop_passes(10)
        assert controller.asked == []  # it lacks messages that were acknowledged before
        master.replicas.acknowledge(position, 100)
        master.in_sync.caught_up(position, with_epoch=True)
        await until(lambda: master.in_sync.state.members == {1, 2})
        assert controller.asked == [frozenset({1, 2})]


async def test_a_replica_without_bytes_of_the_epoch_is_not_proposed() -> None:
    controller = Controller()
    async with _running(controller) as master:
        position = master.replicas.join("b", 100, 2)
        master.in_sync.caught_up(position, with_epoch=False)
        await asyncio.sleep(0.05)  # several rounds
        assert controller.asked == []
        assert master.replicas.counted == {1}


async def test_a_replica_that_leaves_is_taken_out() -> None:
    controller = Controller()
    async with _running(controller) as master:
        position = await _joined(master)
        master.now_ms = 4000
        master.replicas.leave(position)
        master.in_sync.left(position)
        await until(lambda: master.in_sync.state.members == {1})
        assert master.replicas.counted == {1}


async def test_a_replica_that_lags_for_too_long_is_taken_out() -> None:
    controller = Controller()
    async with _running(controller) as master:
        await _joined(master)
        master.now_ms += 60_000
        await asyncio.sleep(0.05)  # it has the whole log, and says nothing
        assert master.in_sync.state.members == {1, 2}
        master.end = 200
        master.now_ms += master.settings.ha_max_time_slave_not_catchup_ms
        await asyncio.sleep(0.05)
        assert master.in_sync.state.members == {1, 2}
        master.now_ms += 1
        await until(lambda: master.in_sync.state.members == {1})


async def test_a_replica_that_is_behind_does_not_join() -> None:
    """Sends would wait for it."""
    controller = Controller()
    async with _running(controller) as master:
        position = master.replicas.join("b", 10, 2)
        master.now_ms = 60_000
        master.in_sync.caught_up(position, with_epoch=True, behind_ms=1001)
        assert master.replicas.counted == {1}
        master.in_sync.caught_up(position, with_epoch=True, behind_ms=1000)
        assert master.replicas.counted == {1, 2}


async def test_a_replica_stays_while_it_has_the_log_of_a_moment_ago() -> None:
    controller = Controller()
    async with _running(controller) as master:
        position = await _joined(master)
        longest_ms = master.settings.ha_max_time_slave_not_catchup_ms
        for _ in range(3):
            master.end += 100
            master.now_ms += longest_ms
            master.in_sync.caught_up(position, with_epoch=True, behind_ms=100)
            await asyncio.sleep(0.05)  # several rounds
            assert master.in_sync.state.members == {1, 2}
        # Always as far behind as that is too far.
        master.now_ms += longest_ms
        master.in_sync.caught_up(position, with_epoch=True, behind_ms=longest_ms + 1)
        await until(lambda: master.in_sync.state.members == {1})


async def test_an_unanswered_request_may_have_succeeded() -> None:
    """Messages wait for both sets until the controller tells a newer one."""
    controller = Controller()
    controller.failure = ControllerUnavailable("no answer")
    async with _running(controller) as master:
        position = master.replicas.join("b", 100, 2)
        master.in_sync.caught_up(position, with_epoch=True)
        await until(lambda: controller.asked)
        master.replicas.leave(position)
        master.in_sync.left(position)
        await loop_passes()
        assert master.replicas.counted == {1, 2}
        master.in_sync.told(SyncState(frozenset({1}), 6))
        assert master.replicas.counted == {1}


@pytest.mark.parametrize(
    ("code", "counted"),
    [
        (ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, {1}),
        (ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, {1, 2}),  # an earlier one may have succeeded
    ],
)
async def test_a_refusal_makes_the_broker_ask_for_the_set(code: ResponseCode, counted: set[int]) -> None:
    controller = Controller()
    controller.failure = ControllerRefused(code, "refused")
    async with _running(controller) as master:
        position = master.replicas.join("b", 100, 2)
        master.in_sync.caught_up(position, with_epoch=True)
        await until(lambda: controller.woken)
        master.replicas.leave(position)
        master.in_sync.left(position)
        assert master.replicas.counted == counted
        assert master.in_sync.state == controller.state


async def test_an_older_set_is_not_taken_over() -> None:
    controller = Controller()
    async with _running(controller) as master:
        master.in_sync.told(SyncState(frozenset({1, 9}), 5))
        assert master.in_sync.state.members == {1}
