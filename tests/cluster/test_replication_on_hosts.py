"""Faults of hosts, network and disks under load, on a SYNC_MASTER with SYNC_FLUSH and its replicas.

Nothing acknowledged is lost, all logs are the same after the last fault, no two masters accept messages at
the same time, consumers get every acknowledged message and none that a failover takes back, and committed
offsets do not go back. `checks.py` has the checks, `faults.py` the faults.

A failing run prints its seed: RMQ_CRASH_SEED repeats the order of the faults.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.faults import FAULTS, inject
from tests.cluster.group import Group, running_group
from tests.cluster.history import statuses
from tests.cluster.hosts import need_hosts
from tests.cluster.recovery_times import report, seconds_to_first_accepted

# A message that is answered SEND_OK is on two machines, and one of them may be lost.
_SETTINGS: Final = {"minInSyncReplicas": "2"}
_SHORT: Final = (
    "cut replica",
    "one way: master does not hear",
    "30 % loss, replica",
    "200 ms delay, replica",
    "failover",
)
_LONG_SECONDS: Final = float(os.environ.get("RMQ_FAULT_SECONDS", "600"))


async def _run(
    group: Group, names: Iterable[str], chance: random.Random, rate: float, hold_seconds: float | None = None
) -> None:
    await group.start_load(rate)
    for name in names:
        print(f"{name}: ", end="", flush=True)
        fault = await inject(name, group, chance, hold_seconds)
        print(
            f"healed after {fault.healed - fault.began:.1f} s, whole after {fault.whole - fault.began:.1f} s"
        )
    await group.end_load()
    history = group.history
    print(f"sends by answer: {statuses(history.sends)}; deliveries: {len(history.deliveries)}")
    print(report(seconds_to_first_accepted(history.faults, history.sends)))
    await group.stop_and_check()


@pytest.mark.timeout(300)
async def test_each_fault_of_the_network_and_a_failover(tmp_path: Path, seed: int) -> None:
    need_hosts()
    chance = random.Random(seed)
    names = chance.sample(_SHORT, len(_SHORT))
    async with running_group(tmp_path, seed, 2, _SETTINGS) as group:
        await _run(group, names, chance, rate=50, hold_seconds=0.5)


@pytest.mark.long
@pytest.mark.timeout(_LONG_SECONDS + 600)
async def test_faults_in_random_order_on_a_master_with_two_replicas(tmp_path: Path, seed: int) -> None:
    need_hosts()
    chance = random.Random(seed)
    async with running_group(tmp_path, seed, 3, _SETTINGS) as group:
        await _run(group, _random_order(group, chance), chance, rate=60)


def _random_order(group: Group, chance: random.Random) -> Iterable[str]:
    """All faults in random order again and again, until the time is over."""
    while True:
        for name in chance.sample(list(FAULTS), len(FAULTS)):
            faults = group.history.faults
            if faults and faults[-1].whole - faults[0].began > _LONG_SECONDS:
                return
            yield name
