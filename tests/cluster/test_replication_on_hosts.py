"""Faults of hosts, network and disks under load, on a SYNC_MASTER with SYNC_FLUSH and its replicas.

Nothing acknowledged is lost, all logs are the same after the last fault, no two masters accept messages at
the same time, consumers get every acknowledged message and none that a failover takes back, and committed
offsets do not go back. `checks.py` has the checks, `faults.py` the faults.

A failing run prints its seed: RMQ_CRASH_SEED repeats the order of the faults.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.faults import FAULTS
from tests.cluster.group import running_group
from tests.cluster.hosts import need_hosts
from tests.cluster.runs import LONG_RATE, LONG_SECONDS, random_order, run

# A message that is answered SEND_OK is on two machines, and one of them may be lost.
_SETTINGS: Final = {"minInSyncReplicas": "2"}
_SHORT: Final = (
    "cut replica",
    "one way: master does not hear",
    "30 % loss, replica",
    "200 ms delay, replica",
    "failover",
)


@pytest.mark.timeout(300)
async def test_each_fault_of_the_network_and_a_failover(tmp_path: Path, seed: int) -> None:
    need_hosts()
    chance = random.Random(seed)
    names = chance.sample(_SHORT, len(_SHORT))
    async with running_group(tmp_path, seed, 2, _SETTINGS) as group:
        await run(group, FAULTS, names, chance, rate=50, hold_seconds=0.5)


@pytest.mark.long
@pytest.mark.timeout(LONG_SECONDS + 3600)
async def test_faults_in_random_order_on_a_master_with_two_replicas(tmp_path: Path, seed: int) -> None:
    need_hosts()
    chance = random.Random(seed)
    async with running_group(tmp_path, seed, 3, _SETTINGS) as group:
        await run(group, FAULTS, random_order(group, FAULTS, chance), chance, rate=LONG_RATE)
