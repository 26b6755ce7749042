"""Faults of hosts, network and disks under load, on a group of two whose master Apache's controller elects.

The checks are those of `test_replication_on_hosts.py`. Nobody replaces a master by hand here.

A failing run prints its seed: RMQ_CRASH_SEED repeats the order of the faults.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.controlled import running_controlled_group
from tests.cluster.controlled_faults import CONTROLLED_FAULTS
from tests.cluster.hosts import need_hosts
from tests.cluster.runs import LONG_RATE, LONG_SECONDS, random_order, run
from tests.support.toolchain import JavaProgram

pytestmark = pytest.mark.java

_SETTINGS: Final = {"allAckInSyncStateSet": "true"}
_SHORT: Final = ("kill master", "cut replica", "kill controller", "30 % loss, master")


@pytest.mark.timeout(300, func_only=True)
async def test_a_controller_replaces_the_master(
    tmp_path: Path, seed: int, apache_program: JavaProgram
) -> None:
    need_hosts()
    chance = random.Random(seed)
    names = chance.sample(_SHORT, len(_SHORT))
    async with running_controlled_group(tmp_path, seed, 2, _SETTINGS, apache_program) as group:
        await run(group, CONTROLLED_FAULTS, names, chance, rate=50, hold_seconds=1.0)


@pytest.mark.long
@pytest.mark.timeout(LONG_SECONDS + 3600, func_only=True)
async def test_faults_in_random_order_on_two_brokers_with_a_controller(
    tmp_path: Path, seed: int, apache_program: JavaProgram
) -> None:
    need_hosts()
    chance = random.Random(seed)
    async with running_controlled_group(tmp_path, seed, 2, _SETTINGS, apache_program) as group:
        await run(
            group, CONTROLLED_FAULTS, random_order(group, CONTROLLED_FAULTS, chance), chance, rate=LONG_RATE
        )
