"""The power of a master and of its replica is cut at the same moment, under load, both with SYNC_FLUSH.

A message that was answered SEND_OK is on both disks: nothing is lost, whichever of the two becomes the
master. The other one then has the same log. RMQ_CRASH_ROUNDS sets the number of rounds (`make test-crash`:
50).
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Final

import pytest

from tests.crash.brokers import FaultyBroker
from tests.crash.directory import check_directory
from tests.crash.failover import MASTER, REPLICA, create_topics, followed
from tests.crash.ledger_load import LedgerLoad, read_queues
from tests.crash.machine import Machine
from tests.support.ledger import Ledger
from tests.support.namesrv import running_namesrv

pytestmark = pytest.mark.long

_ROUNDS: Final = max(4, int(os.environ.get("RMQ_CRASH_ROUNDS", "4")) // 2)
_FEWEST, _MOST = 200, 1000
_SHARES_KEPT: Final = (0.0, 0.0, 0.05, 0.5)


async def _start_as(broker: FaultyBroker, role: dict[str, str], namesrv: str) -> None:
    broker.namesrv_address = namesrv
    broker.settings |= role
    await broker.start()


async def _cut_under_load(master: Machine, replica: Machine, ledger: Ledger, chance: random.Random) -> None:
    async with LedgerLoad(master.broker.port, ledger, chance) as load:
        await load.until_acknowledged(chance.randrange(_FEWEST, _MOST), 60)
        await asyncio.sleep(chance.random() * 0.02)
        for machine in (master, replica):
            machine.lose_power(chance, chance.choice(_SHARES_KEPT))
        await load.until_ended()


@pytest.mark.timeout(60 + 30 * _ROUNDS)
async def test_a_power_cut_of_all_machines_loses_nothing_acknowledged(tmp_path: Path, seed: int) -> None:
    chance, ledger = random.Random(seed), Ledger()
    options = ("--strict-names",) if chance.random() < 0.5 else ()
    master, replica = (Machine(tmp_path / name, "SYNC_FLUSH", *options) for name in ("a", "b"))
    async with running_namesrv(tmp_path / "namesrv") as namesrv:
        try:
            await _start_as(master.broker, MASTER, namesrv.address)
            await _start_as(replica.broker, REPLICA, namesrv.address)
            for number in range(_ROUNDS):
                await followed(master.broker)
                await _cut_under_load(master, replica, ledger, chance)
                if chance.random() < 0.5:
                    master, replica = replica, master
                await _start_as(master.broker, MASTER, namesrv.address)
                print(f"round {number}: {len(master.check_loss())} records of the master lost")
                await create_topics(master.broker)
                print(ledger.check(await read_queues(master.broker.port)))
                await _start_as(replica.broker, REPLICA, namesrv.address)
            await followed(master.broker)
            await master.broker.stop()
            await replica.broker.stop()
            one, other = (
                b"".join(path.read_bytes() for path in machine.broker.log_files)
                for machine in (master, replica)
            )
            assert one == other
            for machine in (master, replica):
                check_directory(machine.broker.store_path, stopped_cleanly=True)
        finally:
            master.broker.close()
            replica.broker.close()


async def test_a_replica_that_acknowledges_before_its_flush_is_found(tmp_path: Path, seed: int) -> None:
    """The test above is able to fail."""
    chance, ledger = random.Random(seed), Ledger()
    master, replica = (
        Machine(tmp_path / "a", "SYNC_FLUSH"),
        Machine(tmp_path / "b", "SYNC_FLUSH", "--no-flush"),
    )
    async with running_namesrv(tmp_path / "namesrv") as namesrv:
        try:
            await _start_as(master.broker, MASTER, namesrv.address)
            await _start_as(replica.broker, REPLICA, namesrv.address)
            await followed(master.broker)
            await _cut_under_load(master, replica, ledger, chance)
            await _start_as(replica.broker, MASTER, namesrv.address)
            await create_topics(replica.broker)
            stored = await read_queues(replica.broker.port)
            with pytest.raises(AssertionError, match="lost:"):
                ledger.check(stored)
        finally:
            master.broker.close()
            replica.broker.close()
