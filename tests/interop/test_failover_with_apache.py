"""Failover by Apache's controller: groups of ours, and of one broker of ours and one of Apache's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.support.apache import ApacheBroker, ApacheController
from tests.support.controlled_groups import START_SECONDS, Group, Server, bodies, check_failovers, started
from tests.support.namesrv import running_namesrv
from tests.support.toolchain import JavaProgram

pytestmark = [pytest.mark.java, pytest.mark.timeout(900, func_only=True)]


@asynccontextmanager
async def _group(tmp_path: Path, program: JavaProgram) -> AsyncIterator[Group]:
    controller = ApacheController(program, home=tmp_path / "controller")
    try:
        await controller.start(START_SECONDS)
        async with running_namesrv(tmp_path / "namesrv") as namesrv:
            yield Group(namesrv.address, controller.address)
    finally:
        controller.close()


async def test_a_group_of_ours_fails_over_by_apaches_controller(
    tmp_path: Path, apache_program: JavaProgram
) -> None:
    async with _group(tmp_path, apache_program) as group:
        await check_failovers(group, [group.ours(tmp_path / "a"), group.ours(tmp_path / "b")], rounds=2)


@pytest.mark.long
@pytest.mark.parametrize("is_ours_first", [False, True])
async def test_brokers_of_both_kinds_fail_over(
    tmp_path: Path, apache_program: JavaProgram, is_ours_first: bool
) -> None:
    async with _group(tmp_path, apache_program) as group:
        members: list[Server] = [
            group.apaches(apache_program, tmp_path / "a"),
            group.ours(tmp_path / "b"),
        ]
        if is_ours_first:
            members.reverse()
        await check_failovers(group, members, rounds=4)


@pytest.mark.long
async def test_a_store_moves_between_both_kinds(tmp_path: Path, apache_program: JavaProgram) -> None:
    """Identity and epochs of Apache's broker are ours, and the other way round."""
    store = tmp_path / "a" / "store"
    async with _group(tmp_path, apache_program) as group, AsyncExitStack() as stack:
        java = await started(stack, group.apaches(apache_program, tmp_path / "a"))
        await group.create_topic(java.port)
        await group.until_accepted(b"by Apache's")
        await java.stop()
        identity = (store / "brokerIdentity").read_text()
        ours = await started(stack, group.ours(tmp_path / "a"))
        await group.until_accepted(b"by ours")
        await ours.stop()
        assert (store / "brokerIdentity").read_text() == identity
        again = ApacheBroker(
            apache_program, group.namesrv, home=tmp_path / "a", port=java.port, settings=java.settings
        )
        await started(stack, again)
        await group.until_accepted(b"by Apache's again")
        assert await bodies(again.port) == [b"by Apache's", b"by ours", b"by Apache's again"]
