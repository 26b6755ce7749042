"""Groups that are set up wrongly: each broker says what to do, and nothing is overwritten."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from rmq_broker.replication.following import Follower
from rmq_remoting.bodies.group import SubscriptionGroupConfig
from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.daemon.lifecycle import StartError
from tests.support.broker_requests import create_topic, request, send, sent, succeeded
from tests.support.brokers import RunningBroker, broker_configuration, running_broker
from tests.support.namesrv import running_namesrv
from tests.support.small_disk import fill_disk, free_disk, remount_disk, small_disk
from tests.support.stores import copy_of
from tests.support.waiting import until

_SECONDS: Final = 20.0
_MEBIBYTES: Final = 40
# The replica applies offsets and deletions once its log is flushed.
_FLUSHES_SOON: Final = {"flushIntervalCommitLog": 20, "flushCommitLogLeastPages": 0}


@pytest.fixture
async def namesrv(tmp_path: Path) -> AsyncIterator[str]:
    """The address of a name server."""
    async with running_namesrv(tmp_path / "namesrv") as server:
        yield server.address


def _replica(folder: Path, namesrv: str, **keys: object) -> RunningBroker:
    keys = {"brokerRole": "SLAVE", "brokerId": 1, "namesrvAddr": namesrv, **_FLUSHES_SOON, **keys}
    return RunningBroker(broker_configuration(folder, readyWaitMillis=3000, **keys))


@asynccontextmanager
async def _running(broker: RunningBroker) -> AsyncIterator[RunningBroker]:
    try:
        await broker.start()
        yield broker
    finally:
        await broker.stop()


@asynccontextmanager
async def _master(folder: Path, namesrv: str, **keys: object) -> AsyncIterator[RunningBroker]:
    async with running_broker(
        folder, namesrvAddr=namesrv, readyWaitMillis=3000, **_FLUSHES_SOON, **keys
    ) as one:
        yield one


async def _fill(broker: RunningBroker, topic: str, count: int, mark: bytes = b"") -> None:
    """Send messages, and commit the offset behind them."""
    async with broker.client() as client:
        succeeded(await client.ask(create_topic(topic, 1)))
        for number in range(count):
            sent(await client.ask(send(topic, b"%b%d" % (mark, number))))
        group = SubscriptionGroupConfig(group_name="G").encode()
        succeeded(await client.ask(request(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group)))
        fields = {"consumerGroup": "G", "topic": topic, "queueId": 0, "commitOffset": count}
        succeeded(await client.ask(request(Code.UPDATE_CONSUMER_OFFSET, **fields)))


def _follower(replica: RunningBroker) -> Follower:
    follower = replica.broker.replication.follower
    assert follower is not None
    return follower


async def _says(replica: RunningBroker, text: str) -> None:
    """Wait until the replica tells that text as the reason why it does not follow."""
    await until(lambda: text in _follower(replica).status.problem, _SECONDS)


async def _same_end(master: RunningBroker, replica: RunningBroker) -> None:
    await until(lambda: replica.store.entries_end == master.store.max_phy_offset(), _SECONDS)


# --- logs that do not belong together ---


async def test_two_masters_of_one_name(
    tmp_path: Path, namesrv: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with _master(tmp_path / "m", namesrv) as first:
        await _fill(first, "T", 20)
        async with _running(_replica(tmp_path / "r", namesrv)) as replica:
            await _same_end(first, replica)
        async with _master(tmp_path / "other", namesrv) as second:
            await _fill(second, "T", 5, b"other")
            await until(lambda: "Set another brokerName, or stop the broker at" in caplog.text, _SECONDS)
            # The name server tells the address of the second one.
            async with _running(_replica(tmp_path / "r", namesrv)) as replica:
                await _says(replica, "no record in common. Is this the store of another broker?")
                assert len(replica.bodies("T")) == 20
            assert len(second.bodies("T")) == 5
        assert len(first.bodies("T")) == 20


async def test_a_master_that_comes_back_with_an_empty_disk(tmp_path: Path, namesrv: str) -> None:
    """The replica is the only one that has the messages still."""
    async with _running(_replica(tmp_path / "r", namesrv)) as replica:
        async with _master(tmp_path / "m", namesrv) as master:
            await _fill(master, "T", 20)
            await _same_end(master, replica)
            await until(lambda: "T" in replica.topics, _SECONDS)
        async with _master(tmp_path / "new disk", namesrv) as empty:
            await _says(replica, "they have nothing in common. Is this the store of another broker?")
            await _fill(empty, "U", 50)
            await _says(replica, "no record in common. Is this the store of another broker?")
            assert len(replica.bodies("T")) == 20
            assert "T" in replica.topics


async def test_a_replica_with_a_longer_log_keeps_what_it_cuts_off(tmp_path: Path, namesrv: str) -> None:
    """A copy of the master's store from before is put in its place."""
    async with _master(tmp_path / "m", namesrv) as master:
        await _fill(master, "T", 20)
        shorter = master.store.max_phy_offset()
    copy_of(tmp_path / "m", tmp_path / "before")
    async with _master(tmp_path / "m", namesrv) as master:
        await _fill(master, "T", 20, b"later")
        longer = master.store.max_phy_offset()
        async with _running(_replica(tmp_path / "r", namesrv)) as replica:
            await _same_end(master, replica)
    async with _master(tmp_path / "before", namesrv):
        replica = _replica(tmp_path / "r", namesrv)
        await replica.start()
        await until(lambda: replica.deaths, _SECONDS)
        assert "the log is truncated to" in replica.deaths.pop()
        await replica.stop()
        async with _running(_replica(tmp_path / "r", namesrv)) as replica:
            assert replica.store.max_phy_offset() == shorter
    (kept,) = (tmp_path / "r" / "store" / "diverged").iterdir()
    assert kept.stat().st_size == longer - shorter


async def test_a_replica_of_another_group_keeps_its_topics_and_offsets(tmp_path: Path, namesrv: str) -> None:
    """The other master's tables are newer than this replica's, and lack its topics."""
    async with running_broker(tmp_path / "r", **_FLUSHES_SOON) as former:
        await _fill(former, "Mine", 100)
        before = former.bodies("Mine")
    async with _master(tmp_path / "m", namesrv) as master:
        for number in range(20):
            await _fill(master, f"Theirs{number}", 2)
        async with _running(_replica(tmp_path / "r", namesrv)) as replica:
            await _says(replica, "no record in common. Is this the store of another broker?")
            metadata = replica.broker.replication.metadata
            assert metadata is not None
            for _ in range(3):
                await metadata.sync.sync_all()
            assert {"Mine"} == {name for name in ("Mine", "Theirs0") if name in replica.topics}
            assert replica.offsets.query("G", "Mine", 0) == 100
            assert replica.bodies("Mine") == before


# --- ids ---


async def test_two_replicas_with_one_id(
    tmp_path: Path, namesrv: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Both follow the master; clients reach only one of them."""
    async with (
        _master(tmp_path / "m", namesrv) as master,
        _running(_replica(tmp_path / "r", namesrv)) as one,
        _running(_replica(tmp_path / "s", namesrv)) as other,
    ):
        await until(lambda: "Set another brokerId, or stop the broker at" in caplog.text, _SECONDS)
        await _fill(master, "T", 5)
        await _same_end(master, one)
        await _same_end(master, other)


# --- disks ---


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", mebibytes=_MEBIBYTES) as folder:
        yield folder


async def test_a_replica_on_a_full_disk_goes_on_once_there_is_room(
    tmp_path: Path, namesrv: str, disk: Path
) -> None:
    keys = {"mappedFileSizeCommitLog": 256 * 1024, "cleanFileForciblyEnable": "false"}
    async with (
        _master(tmp_path / "m", namesrv, **keys) as master,
        _running(_replica(disk, namesrv, **keys)) as replica,
    ):
        await _fill(master, "T", 5)
        await _same_end(master, replica)
        fill_disk(disk)
        await _fill(master, "T", 100, b"x" * 10_000)
        await until(lambda: not _follower(replica).status.is_connected, _SECONDS)
        await _says(replica, "No space left on device")
        free_disk(disk, _MEBIBYTES)
        await _same_end(master, replica)
        assert replica.bodies("T") == master.bodies("T")


async def test_a_replica_on_a_disk_that_is_read_only_says_so(
    tmp_path: Path, namesrv: str, disk: Path
) -> None:
    keys = {"mappedFileSizeCommitLog": 256 * 1024}
    async with _master(tmp_path / "m", namesrv, **keys) as master:
        async with _running(_replica(disk, namesrv, **keys)) as replica:
            await _fill(master, "T", 5)
            await _same_end(master, replica)
        remount_disk(disk, "ro")
        replica = _replica(disk, namesrv, **keys)
        with pytest.raises(StartError, match="Read-only file system"):
            await replica.start()
        await replica.stop()
        remount_disk(disk, "rw")
        await _fill(master, "T", 5)
        async with _running(_replica(disk, namesrv, **keys)) as replica:
            await _same_end(master, replica)
