"""The master of a group with a controller is killed under load: another broker takes over by itself.

Every message that was answered SEND_OK is there. Some rounds; RMQ_CRASH_ROUNDS sets their number.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.controlled_groups import Group, check_failovers
from tests.support.fake_controller import fake_controller
from tests.support.namesrv import running_namesrv

_ROUNDS = int(os.environ.get("RMQ_CRASH_ROUNDS", "2"))


@pytest.mark.timeout(90 + 60 * _ROUNDS)
async def test_no_acknowledged_message_is_lost(tmp_path: Path, flush_mode: str) -> None:
    async with running_namesrv(tmp_path / "namesrv") as namesrv, fake_controller() as controller:
        group = Group(namesrv.address, controller.address)
        members = [group.ours(tmp_path / name, flushDiskType=flush_mode) for name in ("a", "b")]
        await check_failovers(group, members, rounds=_ROUNDS)
