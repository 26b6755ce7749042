"""Groups that are set up wrongly: each broker says what to do, and nothing is overwritten."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from rmq_broker.replication.following import Follower
from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.daemon.configuration import SettingsError
from tests.support.broker_requests import create_topic, request, send, sent, succeeded
from tests.support.brokers import RunningBroker, broker_configuration, running_broker
from tests.support.namesrv import running_namesrv
from tests.support.small_disk import small_disk
from tests.support.waiting import until

_SECONDS: Final = 20.0
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
    async with running_broker(folder, namesrvAddr=namesrv, readyWaitMillis=3000, **_FLUSHES_SOON, **keys) as one:
        yield one


async def _fill(broker: RunningBroker, topic: str, count: int, mark: bytes = b"") -> None:
    """Send messages, and commit the offset behind them."""
    async with broker.client() as client:
        succeeded(await client.ask(create_topic(topic, 1)))
        for number in range(count):
            sent(await client.ask(send(topic, b"%b%d" % (mark, number))))
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
    await until(lambda: replica.store.max_phy_offset() == master.store.max_phy_offset(), _SECONDS)


# --- logs that do not belong together ---


async def test_a_replica_of_another_group_keeps_its_topics_and_offsets(tmp_path: Path, namesrv: str) -> None:
    """The other master's tables are newer than this replica's, and lack its topics."""
    async with running_broker(tmp_path / "r", **_FLUSHES_SOON) as former:
        await _fill(former, "Mine", 30)
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
            assert "Mine" in replica.topics
            assert "Theirs0" not in replica.topics
            assert replica.offsets.query("G", "Mine", 0) == 30
            assert replica.bodies("Mine") == before
