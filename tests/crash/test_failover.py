"""A master is killed under load, and its replica becomes the master: no acknowledged message is lost.

The old master then becomes the replica. Its log has messages that nobody acknowledged, which it cuts off.
Some rounds; RMQ_CRASH_ROUNDS sets their number (`make test-crash`: 50).
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path

import pytest

from rmq_remoting.bodies.ha import HARuntimeInfo
from rmq_remoting.codes import RequestCode, ResponseCode
from tests.crash.brokers import FaultyBroker
from tests.crash.directory import check_directory
from tests.crash.ledger_load import QUEUES, LedgerLoad, read_queues
from tests.support.broker_requests import create_topic, request, succeeded
from tests.support.ledger import Ledger
from tests.support.namesrv import running_namesrv
from tests.support.raw_client import raw_client

_ROUNDS = int(os.environ.get("RMQ_CRASH_ROUNDS", "2"))
_FEWEST, _MOST = 200, 1200
_POLL_SECONDS = 0.02
_MASTER = {"brokerRole": "SYNC_MASTER", "brokerId": "0"}
_REPLICA = {"brokerRole": "SLAVE", "brokerId": "1"}


class _Node(FaultyBroker):
    """One broker of the group, in whichever role it is started."""

    def __init__(self, home: Path, namesrv: str, flush_mode: str) -> None:
        super().__init__(home, flush_mode)
        self.namesrv_address = namesrv

    async def start_as(self, role: dict[str, str]) -> None:
        self.settings |= role
        await self.start()

    async def status(self) -> HARuntimeInfo:
        async with raw_client(self.port) as client:
            answer = succeeded(await client.ask(request(RequestCode.GET_BROKER_HA_STATUS)))
        return HARuntimeInfo.decode(answer.body)

    async def has_replica(self) -> bool:
        """Whether a replica has the whole log."""
        status = await self.status()
        return any(not replica.diff for replica in status.ha_connection_info)

    def log(self) -> bytes:
        """The bytes of the commit log's files."""
        return b"".join(path.read_bytes() for path in self.log_files)


async def _followed(master: _Node, timeout_seconds: float = 30.0) -> None:
    """Wait until a replica has the whole log of a master without load."""
    deadline = time.monotonic() + timeout_seconds
    while not await master.has_replica():
        assert time.monotonic() < deadline, f"no replica follows: {await master.status()}"
        await asyncio.sleep(_POLL_SECONDS)


async def _create_topics(node: _Node) -> None:
    async with raw_client(node.port) as client:
        for topic in {topic for topic, _ in QUEUES}:
            succeeded(await client.ask(create_topic(topic, 4)))


@pytest.mark.timeout(60 + 30 * _ROUNDS)
async def test_a_replica_replaces_a_killed_master(tmp_path: Path, flush_mode: str, seed: int) -> None:
    chance = random.Random(seed)
    ledger = Ledger()
    async with running_namesrv(tmp_path / "namesrv") as namesrv:
        master = _Node(tmp_path / "a", namesrv.address, flush_mode)
        replica = _Node(tmp_path / "b", namesrv.address, flush_mode)
        try:
            await master.start_as(_MASTER)
            await replica.start_as(_REPLICA)
            for _ in range(_ROUNDS):
                await _followed(master)
                async with LedgerLoad(master.port, ledger, chance) as load:
                    await load.until_acknowledged(chance.randrange(_FEWEST, _MOST))
                    await asyncio.sleep(chance.random() * 0.02)
                    master.kill()
                    await load.until_ended()
                    assert set(load.answers) == {ResponseCode.SUCCESS}
                if chance.random() < 0.5:
                    replica.kill()
                else:
                    await replica.stop()
                master, replica = replica, master
                await master.start_as(_MASTER)
                await _create_topics(master)
                print(ledger.check(await read_queues(master.port)))
                await replica.start_as(_REPLICA)
            await _followed(master)
            await master.stop()
            await replica.stop()
            assert master.log() == replica.log()
            for node in (master, replica):
                check_directory(node.store_path, stopped_cleanly=True)
        finally:
            master.close()
            replica.close()
