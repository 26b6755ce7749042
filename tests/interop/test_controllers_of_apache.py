"""Groups of our brokers with each kind of Apache's controller, and the tools for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.interop.foreign import AdminOutput, JavaClient
from tests.support.apache import (
    ApacheController,
    ApacheNamesrv,
    controller_settings,
    dledger_controllers,
    jraft_controllers,
)
from tests.support.controlled_groups import (
    START_SECONDS,
    Group,
    check_failovers,
    check_losses,
    started,
    started_members,
)
from tests.support.namesrv import running_namesrv
from tests.support.ports import LOOPBACK, free_port
from tests.support.toolchain import JavaProgram
from tests.support.waiting import until_answer

pytestmark = [pytest.mark.java, pytest.mark.timeout(900, func_only=True)]


@asynccontextmanager
async def _controlled_by(
    tmp_path: Path, controllers: Sequence[ApacheController], **namesrv_settings: Any
) -> AsyncIterator[Group]:
    """A group without brokers yet; the controllers are started, and killed at the end."""
    async with AsyncExitStack() as stack:
        for controller in controllers:
            stack.callback(controller.close)
        await asyncio.gather(*(controller.start(START_SECONDS) for controller in controllers))
        namesrv = await stack.enter_async_context(running_namesrv(tmp_path / "namesrv", **namesrv_settings))
        yield Group(namesrv.address, ";".join(controller.address for controller in controllers))


async def test_the_masters_of_a_group_of_three_are_lost_one_after_the_other(
    tmp_path: Path, apache_program: JavaProgram
) -> None:
    controller = ApacheController(apache_program, home=tmp_path / "controller")
    async with _controlled_by(tmp_path, [controller]) as group:
        await check_losses(group, [group.ours(tmp_path / name) for name in "abc"])


async def test_a_controller_inside_apaches_name_server(tmp_path: Path, apache_program: JavaProgram) -> None:
    controller = f"{LOOPBACK}:{free_port()}"
    home = tmp_path / "namesrv"
    settings = {"enableControllerInNamesrv": "true", **controller_settings(controller, home)}
    async with ApacheNamesrv(apache_program, home=home, settings=settings) as namesrv:
        group = Group(namesrv.address, controller)
        await check_failovers(group, [group.ours(tmp_path / name) for name in "ab"], rounds=1)


async def test_the_leader_of_three_controllers_is_lost(tmp_path: Path, apache_program: JavaProgram) -> None:
    controllers = dledger_controllers(apache_program, tmp_path, 3)
    async with _controlled_by(tmp_path, controllers) as group:

        async def kill_leader() -> None:
            before = await group.leading_controller()
            next(each for each in controllers if each.address == before).kill()
            await group.until_another_leads(before)

        members = [group.ours(tmp_path / name) for name in "ab"]
        await check_failovers(group, members, rounds=1, before_each=kill_leader)


@pytest.mark.parametrize("count", [1, 3])
async def test_a_group_with_jraft_controllers(
    tmp_path: Path, apache_program: JavaProgram, count: int
) -> None:
    async with _controlled_by(tmp_path, jraft_controllers(apache_program, tmp_path, count)) as group:
        await check_failovers(group, [group.ours(tmp_path / name) for name in "ab"], rounds=1)


async def test_replicas_that_may_act_as_the_master_fail_over(
    tmp_path: Path, apache_program: JavaProgram
) -> None:
    controller = ApacheController(apache_program, home=tmp_path / "controller")
    names = {"supportActingMaster": "true", "notifyMinBrokerIdChanged": "true"}
    async with _controlled_by(tmp_path, [controller], **names) as group:
        both = {"enableSlaveActingMaster": "true", "enableRemoteEscape": "true"}
        await check_failovers(group, [group.ours(tmp_path / name, **both) for name in "ab"], rounds=2)


async def test_mqadmin_on_the_controller_of_our_group(
    tmp_path: Path, apache_program: JavaProgram, java_program: JavaProgram
) -> None:
    controller = ApacheController(apache_program, home=tmp_path / "controller")
    async with _controlled_by(tmp_path, [controller]) as group, AsyncExitStack() as stack:
        shell = stack.enter_context(JavaClient(java_program, group.namesrv, tmp_path / "java").shell())

        async def mqadmin(line: str) -> AdminOutput:
            return (await shell.mqadmin(*line.replace("$controller", controller.address).split())).check()

        members = [group.ours(tmp_path / name) for name in "ab"]
        servers = await started_members(stack, group, members)
        assert await group.until_in_sync(2) == 1
        metadata = (await mqadmin("getControllerMetaData -a $controller")).text
        assert f"#ControllerLeaderAddress\t{controller.address}" in metadata

        async def epochs_of_both() -> str:
            text = (await mqadmin("getBrokerEpoch -b broker-a")).text
            # A replica notes the epoch with the first bytes of its master.
            return text if text.count("#Epoch: ") == 2 else ""

        epochs = await until_answer(epochs_of_both, 20)
        for server in servers.values():
            assert f"#brokerAddr\t{server.address}" in epochs

        key = "enableElectUncleanMaster"
        assert [key, "=", "false"] in (await mqadmin("getControllerConfig -a $controller")).rows
        await mqadmin(f"updateControllerConfig -a $controller -k {key} -v true")
        assert [key, "=", "true"] in (await mqadmin("getControllerConfig -a $controller")).rows

        cluster = "-bn broker-a -c DefaultCluster"
        elected = await mqadmin(f"electMaster -a $controller -b 2 {cluster}")
        assert f"#BrokerMasterAddr\t{servers[2].address}" in elected.text
        assert await group.until_accepted(b"after the election") == servers[2].port
        assert await group.until_in_sync(2) == 2

        servers[1].kill()
        assert await group.until_in_sync(1) == 2
        await mqadmin(f"cleanBrokerMetadata -a $controller -b 1 {cluster}")
        known = (await mqadmin("getSyncStateSet -a $controller -b broker-a")).text
        assert servers[2].address in known and servers[1].address not in known
        # A broker with an empty store is a new member.
        await started(stack, group.ours(tmp_path / "c"))
        assert await group.until_in_sync(2) == 2
