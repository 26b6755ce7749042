"""A group with a controller: election, promotion, demotion, in-sync sets, and a master that was deposed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_remoting.bodies.controller import EpochEntryCache
from rmq_remoting.bodies.ha import HARuntimeInfo
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.daemon.lifecycle import StartError
from tests.support.broker_requests import create_topic, pull, pulled, request, send, sent, succeeded
from tests.support.brokers import running_broker
from tests.support.controlled_brokers import Member, member, running_member
from tests.support.fake_controller import FakeController, fake_controller
from tests.support.ports import LOOPBACK
from tests.support.waiting import until


@pytest.fixture
async def controller() -> AsyncIterator[FakeController]:
    async with fake_controller() as running:
        yield running


def _log(broker: Member) -> bytes:
    """The whole commit log; all tests write less than a file."""
    store = broker.store
    end = store.max_phy_offset()
    return store.log_bytes(0, end) or b"" if end else b""


def _epochs(broker: Member) -> list[int]:
    assert broker.store.epochs is not None
    return [epoch.number for epoch in broker.store.epochs.epochs]


async def _send(master: Member, mark: bytes, count: int) -> None:
    async with master.client() as client:
        succeeded(await client.ask(create_topic("T", 1)))
        for number in range(count):
            sent(await client.ask(send("T", b"%b %d" % (mark, number))))


async def test_the_first_broker_becomes_the_master(tmp_path: Path, controller: FakeController) -> None:
    async with running_member(tmp_path, controller.address) as broker:
        assert (controller.group.master, controller.address_of_master) == (1, broker.address)
        assert (tmp_path / "store" / "brokerIdentity").read_text() == "DefaultCluster#broker-a#1"
        assert not (tmp_path / "store" / "brokerIdentity-temp").exists()
        assert (tmp_path / "store" / "epochFileCheckpoint").read_text().splitlines()[2:] == ["1-0"]
        async with broker.client() as client:
            succeeded(await client.ask(create_topic("T", 1)))
            sent(await client.ask(send("T")))
            assert len(pulled(await client.ask(pull("T")))) == 1


async def _pair(master: Member, replica: Member, controller: FakeController) -> None:
    """Wait until both brokers are in sync."""
    await until(lambda: controller.group.members == {1, 2} and master.in_sync == {1, 2}, 20)


async def test_a_replica_follows_and_joins_the_in_sync_set(
    tmp_path: Path, controller: FakeController
) -> None:
    async with running_member(tmp_path / "a", controller.address) as master, master.client() as client:
        succeeded(await client.ask(create_topic("T", 1)))
        for number in range(50):
            sent(await client.ask(send("T", b"before %d" % number)))
        async with running_member(tmp_path / "b", controller.address) as replica:
            await _pair(master, replica, controller)
            for number in range(50):
                sent(await client.ask(send("T", b"after %d" % number)))
            # A send was answered once the replica had its message, too.
            assert replica.store.max_phy_offset() == master.store.max_phy_offset()
            assert replica.store.epochs is not None and master.store.epochs is not None
            assert replica.store.epochs.epochs == master.store.epochs.epochs
            # The replica's consumers see a message once it is confirmed.
            await until(lambda: replica.store.max_offset("T", 0) == 100)
        await until(lambda: controller.group.members == {1})
        sent(await client.ask(send("T", b"alone")))


async def test_a_new_replica_with_much_to_copy_delays_no_send(
    tmp_path: Path, controller: FakeController
) -> None:
    slow = {"haFlowControlEnable": "true", "maxHaTransferByteInSecond": 300_000, "slaveTimeout": 1000}
    async with (
        running_member(tmp_path / "a", controller.address, **slow) as master,
        master.client() as client,
    ):
        succeeded(await client.ask(create_topic("T", 1)))
        for _ in range(20):
            sent(await client.ask(send("T", b"x" * 50_000)))
        async with running_member(tmp_path / "b", controller.address) as replica:
            await until(lambda: replica.store.max_phy_offset() > 0, 20)
            while replica.store.max_phy_offset() < 900_000:
                sent(await client.ask(send("T", b"meanwhile")))
                assert master.in_sync == {1}
                await asyncio.sleep(0.05)
            await _pair(master, replica, controller)


async def test_a_replica_takes_over_and_the_old_master_follows(
    tmp_path: Path, controller: FakeController
) -> None:
    async with running_member(tmp_path / "b", controller.address) as second:
        # It is the first to come, so it has the id 1.
        async with running_member(tmp_path / "a", controller.address) as first:
            await until(lambda: second.in_sync == {1, 2}, 20)
            async with second.client() as client:
                succeeded(await client.ask(create_topic("T", 1)))
                for number in range(20):
                    sent(await client.ask(send("T", b"%d" % number)))
            assert controller.elect(2)
            await until(lambda: first.serves_as_master and second.follows, 20)
            async with first.client() as client:
                for number in range(20, 40):
                    sent(await client.ask(send("T", b"%d" % number)))
                await until(lambda: first.in_sync == {1, 2}, 20)
                assert first.store.max_offset("T", 0) == 40
                bodies = [each.body for each in pulled(await client.ask(pull("T", count=100)))]
                if len(bodies) < 40:
                    bodies += [
                        each.body
                        for each in pulled(await client.ask(pull("T", offset=len(bodies), count=100)))
                    ]
            assert bodies == [b"%d" % number for number in range(40)]
            await until(lambda: second.store.max_phy_offset() == first.store.max_phy_offset(), 20)
            assert _epochs(first) == [1, 2]
        await until(lambda: second.serves_as_master, 20)
        async with second.client() as client:
            sent(await client.ask(send("T", b"40")))


# --- a deposed master ---


async def test_messages_of_a_deposed_master_are_cut_off_and_kept(
    tmp_path: Path, controller: FakeController
) -> None:
    async with running_member(tmp_path / "a", controller.address) as first:
        async with running_member(tmp_path / "b", controller.address):
            await until(lambda: first.in_sync == {1, 2}, 20)
            await _send(first, b"both", 20)
        await until(lambda: controller.group.members == {1}, 20)
        await _send(first, b"lost", 10)
        end_of_first = first.store.max_phy_offset()
    # An operator elects the other one all the same, as with enableElectUncleanMaster.
    controller.group.members = frozenset({2})
    async with running_member(tmp_path / "b", controller.address) as second:
        common = second.store.max_phy_offset()
        await _send(second, b"kept", 5)
        async with running_member(tmp_path / "a", controller.address) as first:
            await until(lambda: second.in_sync == {1, 2}, 20)
            (kept,) = (tmp_path / "a" / "store" / "diverged").iterdir()
            assert kept.name == f"{common:020d}.log"
            assert kept.stat().st_size == end_of_first - common
            await _send(second, b"later", 5)
            assert _log(first) == _log(second)
            assert first.store.epochs is not None and second.store.epochs is not None
            assert first.store.epochs.epochs == second.store.epochs.epochs


async def test_a_master_that_is_deposed_before_anything_was_replicated_follows(
    tmp_path: Path, controller: FakeController
) -> None:
    keys = {"slaveTimeout": 200}
    async with (
        running_member(tmp_path / "a", controller.address, **keys) as first,
        running_member(tmp_path / "b", controller.address, **keys) as second,
    ):
        await until(lambda: first.in_sync == {1, 2}, 20)
        # The first epoch, in which nothing was written, stays in the file of the next master.
        await until(lambda: _epochs(second) == [1], 20)
        controller.notifies = False
        assert controller.elect(2)
        second.controlled.member.wake()
        await until(lambda: second.serves_as_master, 20)
        assert _epochs(second) == [1]
        async with first.client() as client:
            succeeded(await client.ask(create_topic("T", 1)))
            assert (await client.ask(send("T", b"lost"))).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        await _send(second, b"kept", 3)
        first.controlled.member.wake()
        await until(lambda: controller.group.members == {1, 2}, 20)
        await until(lambda: _log(first) == _log(second), 20)
        assert [each.name for each in (tmp_path / "a" / "store" / "diverged").iterdir()] == [
            "0" * 20 + ".log"
        ]


async def test_a_former_master_shows_consumers_nothing_before_it_has_compared_its_log(
    tmp_path: Path, controller: FakeController
) -> None:
    async with running_member(tmp_path / "a", controller.address) as first:
        async with running_member(tmp_path / "b", controller.address):
            await until(lambda: first.in_sync == {1, 2}, 20)
            await _send(first, b"both", 1)
        await until(lambda: controller.group.members == {1}, 20)
        await _send(first, b"alone", 1)
    # The other one is elected all the same, and is not there.
    controller.group.master, controller.group.members = 2, frozenset({2})
    controller.group.epoch += 1
    former = member(tmp_path / "a", controller.address)
    starting = asyncio.ensure_future(former.start())
    try:
        await until(lambda: former.built and former.broker is not None and former.store.holds_reads, 20)
        async with former.client() as client:
            assert (await client.ask(pull("T"))).code == ResponseCode.PULL_NOT_FOUND
        async with running_member(tmp_path / "b", controller.address) as second:
            await starting
            await until(lambda: former.follows and _log(former) == _log(second), 20)
            async with former.client() as client:
                assert [each.body for each in pulled(await client.ask(pull("T")))] == [b"both 0"]
    finally:
        await former.stop()


async def test_a_master_that_was_not_told_is_fenced(tmp_path: Path, controller: FakeController) -> None:
    """Its replica has left it: no send succeeds any more, and the controller refuses a smaller set."""
    keys = {"slaveTimeout": 300, "syncBrokerMetadataPeriod": 60_000}
    async with (
        running_member(tmp_path / "a", controller.address, **keys) as first,
        running_member(tmp_path / "b", controller.address, **keys) as second,
    ):
        await until(lambda: first.in_sync == {1, 2}, 20)
        await _send(first, b"both", 5)
        controller.notifies = False
        assert controller.elect(2)
        second.controlled.member.wake()
        await until(lambda: second.serves_as_master, 20)
        # The set that the old master asks for is refused, so it asks who is the master.
        await until(lambda: first.follows, 20)
        assert _log(first) == _log(second)


async def test_a_controller_that_is_away_stops_no_sends(tmp_path: Path, controller: FakeController) -> None:
    keys = {"syncBrokerMetadataPeriod": 50, "syncControllerMetadataPeriod": 50}
    async with running_member(tmp_path, controller.address, **keys) as master:
        controller.is_leader = False
        await until(lambda: "knows no leader" in master.controlled.member.problem)
        await _send(master, b"alone", 5)
        controller.is_leader = True
        await until(lambda: not master.controlled.member.problem)


async def test_a_new_epoch_of_the_same_master(tmp_path: Path, controller: FakeController) -> None:
    keys = {"syncBrokerMetadataPeriod": 50}
    async with (
        running_member(tmp_path / "a", controller.address, **keys) as master,
        running_member(tmp_path / "b", controller.address, **keys) as replica,
    ):
        await until(lambda: master.in_sync == {1, 2}, 20)
        await _send(master, b"first", 5)
        built = master.broker
        controller.group.epoch += 1
        await until(lambda: master.store.epochs and master.store.epochs.last == 2, 20)
        await _send(master, b"second", 5)
        assert master.broker is built  # it went on serving
        await until(lambda: replica.store.epochs and replica.store.epochs.last == 2, 20)
        await until(lambda: _log(master) == _log(replica), 20)


# --- bad set-ups ---


async def test_without_a_controller_a_broker_waits_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = member(tmp_path, f"{LOOPBACK}:1")
    starting = asyncio.ensure_future(broker.start())
    try:
        await until(lambda: broker.built and "Start the controllers" in broker.controlled.member.problem, 20)
        attempts = 0

        def is_asked_again() -> bool:
            nonlocal attempts
            broker.controlled.member.wake()
            attempts += 1
            return attempts > 50

        await until(is_asked_again, 20)
        assert not starting.done()
        assert len([each for each in caplog.records if "controller not followed" in each.message]) == 1
    finally:
        starting.cancel()
        await asyncio.wait([starting])
        await broker.stop()


async def test_a_controller_that_lost_its_data_is_told(tmp_path: Path, controller: FakeController) -> None:
    async with running_member(tmp_path, controller.address) as broker:
        await _send(broker, b"kept", 3)
    async with fake_controller() as other:
        broker = member(tmp_path, other.address)
        starting = asyncio.ensure_future(broker.start())
        try:
            known = "does not know broker id 1 of broker-a"
            await until(lambda: broker.built and known in broker.controlled.member.problem, 20)
            # Somebody registers the broker by hand: the controller's epochs begin again.
            other.group.addresses[1] = broker.address
            below = "its log has epoch 4"
            (tmp_path / "store" / "epochFileCheckpoint").write_bytes(b"1\n0\n4-0\n")
            assert broker.store.epochs is not None
            broker.store.epochs.load(0, 10_000)
            await until(lambda: below in broker.controlled.member.problem, 20)
        finally:
            starting.cancel()
            await asyncio.wait([starting])
            await broker.stop()


async def test_a_broker_with_the_id_of_another_does_not_start(
    tmp_path: Path, controller: FakeController
) -> None:
    async with running_member(tmp_path, controller.address):
        pass
    broker = member(tmp_path, controller.address, brokerName="broker-b")
    with pytest.raises(StartError, match="is of broker broker-a in cluster DefaultCluster"):
        await broker.start()
    await broker.stop()


async def test_a_learner_never_joins_the_set_nor_asks_for_an_election(
    tmp_path: Path, controller: FakeController
) -> None:
    learner = member(tmp_path / "b", controller.address, asyncLearner=True)
    try:
        async with running_member(tmp_path / "a", controller.address) as master:
            await learner.start()
            await _send(master, b"body", 5)
            await until(lambda: _log(learner) == _log(master), 20)
            assert master.in_sync == {1}
        await until(lambda: "asyncLearner=true" in learner.controlled.member.problem, 20)
        assert controller.group.master is None
    finally:
        await learner.stop()


# --- requests ---


async def test_tools_see_epochs_and_who_is_in_sync(tmp_path: Path, controller: FakeController) -> None:
    async with (
        running_member(tmp_path / "a", controller.address) as master,
        running_member(tmp_path / "b", controller.address) as replica,
    ):
        await until(lambda: master.in_sync == {1, 2}, 20)
        await _send(master, b"body", 5)
        for broker, broker_id in ((master, 0), (replica, 2)):
            async with broker.client() as client:
                answer = succeeded(await client.ask(request(RequestCode.GET_BROKER_EPOCH_CACHE)))
            told = EpochEntryCache.decode(answer.body)
            assert (told.broker_name, told.broker_id) == ("broker-a", broker_id)
            assert [(each.epoch, each.start_offset) for each in told.epoch_list] == [(1, 0)]
            assert told.max_offset == master.store.max_phy_offset()
        async with master.client() as client:
            answer = succeeded(await client.ask(request(RequestCode.GET_BROKER_HA_STATUS)))
        status = HARuntimeInfo.decode(answer.body)
        assert (status.master, status.in_sync_slave_nums) == (True, 1)
        assert [each.in_sync for each in status.ha_connection_info] == [True]


async def test_a_broker_without_a_controller_has_no_epochs(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, broker.client() as client:
        for code in (RequestCode.GET_BROKER_EPOCH_CACHE, RequestCode.NOTIFY_BROKER_ROLE_CHANGED):
            answer = await client.ask(request(code))
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "enableControllerMode" in (answer.remark or "")
