"""Slave acting master between Apache's brokers and ours: each acts for the other, and hands back."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rmq_remoting.bodies.group import SubscriptionGroupConfig
from rmq_remoting.codes import ResponseCode
from rmq_remoting.headers.send import SendMessageResponseHeader
from rmq_remoting.sys_flags import MessageSysFlag
from tests.support.apache import ApacheBroker, ApacheNamesrv
from tests.support.broker_requests import create_topic, pull, pulled, send, sent, succeeded
from tests.support.brokers import RunningBroker, broker_configuration
from tests.support.namesrv import running_namesrv
from tests.support.ports import LOOPBACK, free_broker_port
from tests.support.raw_client import RawClient, raw_client
from tests.support.toolchain import JavaProgram
from tests.support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.timeout(180, func_only=True)]

HALF, GROUP = "RMQ_SYS_TRANS_HALF_TOPIC", "PG"
_NAMESRV: dict[str, Any] = {"supportActingMaster": "true", "notifyMinBrokerIdChanged": "true"}
_COMMON = {
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "mappedFileSizeCommitLog": str(4 << 20),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    "brokerIP2": LOOPBACK,
    "haSendHeartbeatInterval": "200",
    "messageDelayLevel": "6s 8s 12s",
    "timerWheelEnable": "true",
    "timerRollWindowSlot": "60",
    "transactionTimeOut": "3000",
    "transactionCheckInterval": "500",
    "brokerHeartbeatInterval": "200",
    "syncBrokerMemberGroupPeriod": "200",
    "flushIntervalCommitLog": "100",
    "flushDelayOffsetInterval": "200",
    "flushConsumerOffsetInterval": "200",
}


def _ours(folder: Path, namesrv: str, **keys: object) -> RunningBroker:
    return RunningBroker(broker_configuration(folder, **{"namesrvAddr": namesrv, **_COMMON, **keys}))


@asynccontextmanager
async def _running(broker: RunningBroker) -> AsyncIterator[RunningBroker]:
    try:
        await broker.start()
        yield broker
    finally:
        await broker.stop()


@asynccontextmanager
async def _other_master(folder: Path, namesrv: str) -> AsyncIterator[RunningBroker]:
    """broker-b, which stores what an acting replica of broker-a sends."""
    async with (
        _running(_ours(folder, namesrv, brokerName="broker-b")) as other,
        other.client() as client,
    ):
        succeeded(await client.ask(create_topic("T", 1)))
        other.groups.update(SubscriptionGroupConfig(group_name=GROUP))
        yield other


async def _fill(client: RawClient) -> SendMessageResponseHeader:
    """Send a delayed, a timed and a half message to broker-a; return the place of the half message."""
    sent(await client.ask(send("T", b"delayed", properties={"DELAY": "1", "UNIQ_KEY": "D"})))
    due_ms = int(time.time() * 1000) + 7000
    timed = {"TIMER_DELIVER_MS": str(due_ms), "UNIQ_KEY": "T"}
    sent(await client.ask(send("T", b"timed", properties=timed)))
    half = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": "H"}
    flag = MessageSysFlag.TRANSACTION_PREPARED
    return sent(await client.ask(send("T", b"half", properties=half, sys_flag=flag, group=GROUP)))


async def _pulled(client: RawClient) -> list[bytes]:
    answer = await client.ask(pull("T"))
    return [each.body for each in pulled(answer)] if answer.code == ResponseCode.SUCCESS else []


def _has_all(other: RunningBroker) -> Callable[[], bool]:
    """Whether another master has the delayed, the timed and the half message."""
    return lambda: set(other.bodies()) == {b"delayed", b"timed"} and b"half" in other.bodies(HALF)


async def test_ours_acts_for_apaches_master(tmp_path: Path, apache_program: JavaProgram) -> None:
    async with (
        running_namesrv(tmp_path / "namesrv", **_NAMESRV) as namesrv,
        _other_master(tmp_path / "b", namesrv.address) as other,
        ApacheBroker(apache_program, namesrv.address, home=tmp_path / "java", settings=_COMMON) as java,
        _running(_ours(tmp_path / "ours", namesrv.address, brokerRole="SLAVE", brokerId=1)) as replica,
    ):
        async with raw_client(java.port) as client:
            succeeded(await client.ask(create_topic("T", 1)))
            await until(lambda: replica.broker.replication.has_master and "T" in replica.topics, 30)
            await _fill(client)
            await until(lambda: replica.store.max_offset(HALF, 0) == 1, 30)
        java.kill()
        await until(lambda: replica.broker.acting.smallest.acts, 20)
        await until(_has_all(other), 30)
        assert sorted(other.bodies()) == [b"delayed", b"timed"]


@pytest.mark.long
async def test_apaches_master_continues_behind_ours_with_name_servers_of_both(
    tmp_path: Path, apache_program: JavaProgram
) -> None:
    settings = {**_COMMON, "totalReplicas": "2", "inSyncReplicas": "1"}  # it asks its replicas at a start
    async with (
        ApacheNamesrv(apache_program, settings=_NAMESRV) as apaches,
        running_namesrv(tmp_path / "namesrv", **_NAMESRV) as namesrv,
        _other_master(tmp_path / "b", f"{apaches.address};{namesrv.address}") as other,
    ):
        address = f"{apaches.address};{namesrv.address}"
        java = ApacheBroker(apache_program, address, home=tmp_path / "java", settings=settings)
        # Apache's master asks for the timer's checkpoint at the fast port.
        port = free_broker_port()
        replica = _ours(
            tmp_path / "ours",
            address,
            brokerRole="SLAVE",
            brokerId=1,
            listenPort=port,
            fastListenPort=port - 2,
        )
        async with java, _running(replica):
            async with raw_client(java.port) as client:
                succeeded(await client.ask(create_topic("T", 1)))
                await until(lambda: replica.broker.replication.has_master and "T" in replica.topics, 30)
                await _fill(client)
                await until(lambda: replica.store.max_offset(HALF, 0) == 1, 30)
            java.kill()
            await until(_has_all(other), 30)
            await java.start()
            await until(lambda: not replica.broker.acting.smallest.acts, 30)
            async with raw_client(java.port) as client:
                sent(await client.ask(send("T", b"new", properties={"DELAY": "1"})))
                deadline = time.monotonic() + 30
                while b"new" not in (found := await _pulled(client)):
                    assert time.monotonic() < deadline
                # The slave may not have known how far its master had entered timed messages.
                assert set(found) <= {b"new", b"timed"}
            assert sorted(other.bodies()) == [b"delayed", b"timed"]


@pytest.mark.long
async def test_apaches_acts_for_our_master_which_continues_behind_it(
    tmp_path: Path, apache_program: JavaProgram
) -> None:
    async with (
        running_namesrv(tmp_path / "namesrv", **_NAMESRV) as namesrv,
        _other_master(tmp_path / "b", namesrv.address) as other,
    ):
        address = namesrv.address
        slave = {**_COMMON, "brokerRole": "SLAVE", "slaveReadEnable": "true"}
        java = ApacheBroker(apache_program, address, home=tmp_path / "java", broker_id=1, settings=slave)
        async with _running(_ours(tmp_path / "ours", address, brokerName="broker-a")) as master:
            async with master.client() as client:
                succeeded(await client.ask(create_topic("T", 1)))
            await java.start()
            try:
                await until(lambda: master.store.replicas.positions, 60)
                async with master.client() as client:
                    await _fill(client)
                await until(_has_replica_all(master), 30)
            except BaseException:
                java.close()
                raise
        async with java_closed(java):
            await until(_has_all(other), 40)
            async with (
                _running(_ours(tmp_path / "ours", address, brokerName="broker-a")) as master,
                master.client() as client,
            ):
                sent(await client.ask(send("T", b"new", properties={"DELAY": "1"})))
                await until(lambda: b"new" in master.bodies(), 20)
                # The slave may not have known how far its master had entered timed messages.
                assert set(master.bodies()) <= {b"new", b"timed"}
                assert not len(master.services.transactions.halves)
            assert sorted(other.bodies()) == [b"delayed", b"timed"]


@asynccontextmanager
async def java_closed(java: ApacheBroker) -> AsyncIterator[None]:
    """Kill a broker of Apache's at the end."""
    try:
        yield
    finally:
        java.close()


def _has_replica_all(master: RunningBroker) -> Callable[[], bool]:
    """Whether the replica has the whole log."""

    def has_all() -> bool:
        positions = master.store.replicas.positions
        return bool(positions) and positions[0].acknowledged == master.store.max_phy_offset()

    return has_all
