"""`enableSlaveActingMaster` in a group with a controller: a replica acts while no broker can be elected."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker_requests import create_topic, send, sent, succeeded
from tests.support.brokers import RunningBroker, broker_configuration
from tests.support.controlled_brokers import Member, member, running_member
from tests.support.fake_controller import FakeController, fake_controller
from tests.support.namesrv import running_namesrv
from tests.support.waiting import until

_QUICK: dict[str, Any] = {
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "syncBrokerMemberGroupPeriod": 50,
    "brokerHeartbeatInterval": 100,
    "syncBrokerMetadataPeriod": 200,
    "haSendHeartbeatInterval": 500,
    "messageDelayLevel": "2s 5s",
    "flushDelayOffsetInterval": 100,
    "readyWaitMillis": 3000,
}


@pytest.fixture
async def controller() -> AsyncIterator[FakeController]:
    async with fake_controller() as running:
        yield running


async def _create(broker: Member | RunningBroker) -> None:
    async with broker.client() as client:
        succeeded(await client.ask(create_topic("T", 1)))


def _services_run(broker: Member) -> bool:
    return broker.broker is not None and broker.broker.master_services.are_running


async def test_a_replica_that_cannot_be_elected_acts_until_the_master_returns(
    tmp_path: Path, controller: FakeController
) -> None:
    names: dict[str, Any] = {"supportActingMaster": "true", "notifyMinBrokerIdChanged": "true"}
    async with AsyncExitStack() as stack:
        namesrv = await stack.enter_async_context(running_namesrv(tmp_path / "namesrv", **names))
        keys = {**_QUICK, "namesrvAddr": namesrv.address}
        other = RunningBroker(broker_configuration(tmp_path / "other", brokerName="broker-b", **keys))
        stack.push_async_callback(other.stop)
        await other.start()
        await _create(other)
        learner = member(tmp_path / "b", controller.address, asyncLearner=True, **keys)
        async with running_member(tmp_path / "a", controller.address, **keys) as master:
            await _create(master)
            stack.push_async_callback(learner.stop)
            await learner.start()
            async with master.client() as client:
                sent(await client.ask(send("T", b"delayed", properties={"DELAY": "1"})))
            await until(lambda: learner.store.max_phy_offset() == master.store.max_phy_offset())
            assert not _services_run(learner)
        await until(lambda: _services_run(learner), 20)
        await until(lambda: other.bodies("T") == [b"delayed"], 20)
        assert controller.group.master is None
        async with running_member(tmp_path / "a", controller.address, **keys) as master:
            await until(lambda: not _services_run(learner), 20)
            async with master.client() as client:
                sent(await client.ask(send("T", b"new", properties={"DELAY": "1"})))
            await until(lambda: master.store.max_offset("T", 0) == 1, 20)
        assert other.bodies("T") == [b"delayed"]


async def test_an_elected_replica_continues_with_the_services_of_a_master(
    tmp_path: Path, controller: FakeController
) -> None:
    names: dict[str, Any] = {"supportActingMaster": "true", "notifyMinBrokerIdChanged": "true"}
    async with AsyncExitStack() as stack:
        namesrv = await stack.enter_async_context(running_namesrv(tmp_path / "namesrv", **names))
        keys = {**_QUICK, "namesrvAddr": namesrv.address}
        # The first to come has the id 1.
        first, second = [
            await stack.enter_async_context(running_member(tmp_path / name, controller.address, **keys))
            for name in "ab"
        ]
        await until(lambda: first.in_sync == {1, 2}, 20)
        await _create(first)
        await until(lambda: second.broker is not None and "T" in second.broker.services.topics.table)
        assert controller.elect(2)
        await until(lambda: second.serves_as_master and first.follows, 20)
        assert _services_run(second) and not _services_run(first)
        async with second.client() as client:
            sent(await client.ask(send("T", b"delayed", properties={"DELAY": "1"})))
        await until(lambda: second.store.max_offset("T", 0) == 1, 20)
