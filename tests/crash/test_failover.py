"""A master is killed under load, and its replica becomes the master: no acknowledged message is lost.

The old master then becomes the replica. Its log has messages that nobody acknowledged, which it cuts off.
Some rounds; RMQ_CRASH_ROUNDS sets their number (`make test-crash`: 50).
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from rmq_remoting.codes import ResponseCode
from tests.crash.directory import check_directory
from tests.crash.failover import MASTER, REPLICA, Node, create_topics, followed
from tests.crash.ledger_load import LedgerLoad, read_queues
from tests.support.ledger import Ledger
from tests.support.namesrv import running_namesrv

_ROUNDS = int(os.environ.get("RMQ_CRASH_ROUNDS", "2"))
_FEWEST, _MOST = 200, 1200


@pytest.mark.smoke("[SYNC_FLUSH]")
@pytest.mark.timeout(60 + 30 * _ROUNDS)
async def test_a_replica_replaces_a_killed_master(tmp_path: Path, flush_mode: str, seed: int) -> None:
    chance = random.Random(seed)
    ledger = Ledger()
    async with running_namesrv(tmp_path / "namesrv") as namesrv:
        master = Node(tmp_path / "a", namesrv.address, flush_mode)
        replica = Node(tmp_path / "b", namesrv.address, flush_mode)
        try:
            await master.start_as(MASTER)
            await replica.start_as(REPLICA)
            for _ in range(_ROUNDS):
                await followed(master)
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
                await master.start_as(MASTER)
                await create_topics(master)
                print(ledger.check(await read_queues(master.port)))
                await replica.start_as(REPLICA)
            await followed(master)
            await master.stop()
            await replica.stop()
            assert master.log() == replica.log()
            for node in (master, replica):
                check_directory(node.store_path, stopped_cleanly=True)
        finally:
            master.close()
            replica.close()
