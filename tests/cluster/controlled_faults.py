"""The faults of a group with a controller: those of any group, and those of the controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from .controlled import CONTROLLER, ControlledGroup
from .faults import (
    CUT,
    DELAY,
    LOSS,
    Chance,
    Choose,
    FaultKind,
    a_replica,
    around,
    cut_clients,
    cut_replication,
    full_disk,
    killed,
    one_way,
    standing_still,
    the_master,
    the_name_server,
)
from .group import NAME_SERVER, Group
from .nodes import HostedServer


def the_controller(group: Group, chance: Chance) -> HostedServer:
    """The only controller."""
    assert isinstance(group, ControlledGroup)
    return group.controller


@asynccontextmanager
async def _stopped_gracefully(group: Group, chance: Chance) -> AsyncIterator[None]:
    """The master shuts down; another broker takes over."""
    master = group.master
    await master.stop()
    yield
    await group.start_server(master)


@asynccontextmanager
async def _elected(group: Group, chance: Chance) -> AsyncIterator[None]:
    """An operator makes a replica the master."""
    assert isinstance(group, ControlledGroup)
    await group.elect(chance.choice(group.replicas))
    yield


@asynccontextmanager
async def _all_brokers_killed(group: Group, chance: Chance) -> AsyncIterator[None]:
    """All brokers are killed, and started in any order. One that is not in sync waits for the others."""
    brokers = chance.sample(group.brokers, len(group.brokers))
    for broker in brokers:
        group.kill(broker)
    yield
    await group.start_all(brokers)


@asynccontextmanager
async def _killed_together(
    group: Group, chance: Chance, *, choices: tuple[Choose, ...]
) -> AsyncIterator[None]:
    """Servers are killed in this order, and all started again. A broker waits for the controller."""
    servers = [choose(group, chance) for choose in choices]
    for server in servers:
        group.kill(server)
        await asyncio.sleep(chance.uniform(0.0, 0.5))
    yield
    await group.start_all(servers)


_QUICK: Final = (0.0, 1.0)
CONTROLLED_FAULTS: Final[Mapping[str, FaultKind]] = {
    "kill master": FaultKind(partial(killed, choose=the_master), (0.0, 3.0)),
    "kill replica": FaultKind(partial(killed, choose=a_replica)),
    "kill name server": FaultKind(partial(killed, choose=the_name_server)),
    "kill controller": FaultKind(partial(killed, choose=the_controller), (0.5, 12.0)),
    "kill controller and master": FaultKind(partial(_killed_together, choices=(the_controller, the_master))),
    "kill master and controller": FaultKind(partial(_killed_together, choices=(the_master, the_controller))),
    "kill all brokers": FaultKind(_all_brokers_killed, _QUICK),
    "shut down master": FaultKind(_stopped_gracefully),
    "elect replica": FaultKind(_elected, _QUICK),
    "stop master": FaultKind(partial(standing_still, choose=the_master), (0.5, 12.0)),
    "stop replica": FaultKind(partial(standing_still, choose=a_replica), (0.5, 12.0)),
    "stop name server": FaultKind(partial(standing_still, choose=the_name_server)),
    "stop controller": FaultKind(partial(standing_still, choose=the_controller), (0.5, 12.0)),
    "cut master": FaultKind(around("master", CUT), (0.5, 12.0)),
    "cut replica": FaultKind(around("replica", CUT), (0.5, 12.0)),
    "cut name server": FaultKind(around(NAME_SERVER, CUT), (6.0, 6.0)),
    "cut controller": FaultKind(around(CONTROLLER, CUT), (2.0, 12.0)),
    "cut replication": FaultKind(cut_replication, (0.5, 12.0)),
    "cut clients": FaultKind(cut_clients),
    "one way: master is not heard": FaultKind(one_way("master", sends=True), (0.5, 12.0)),
    "one way: master does not hear": FaultKind(one_way("master", sends=False), (0.5, 12.0)),
    "one way: replica is not heard": FaultKind(one_way("replica", sends=True), (5.0, 12.0)),
    "one way: replica does not hear": FaultKind(one_way("replica", sends=False), (0.5, 12.0)),
    "one way: controller is not heard": FaultKind(one_way(CONTROLLER, sends=True), (3.0, 12.0)),
    "one way: controller does not hear": FaultKind(one_way(CONTROLLER, sends=False), (3.0, 12.0)),
    "30 % loss, master": FaultKind(around("master", LOSS)),
    "30 % loss, replica": FaultKind(around("replica", LOSS)),
    "30 % loss, name server": FaultKind(around(NAME_SERVER, LOSS), (6.0, 6.0)),
    "30 % loss, controller": FaultKind(around(CONTROLLER, LOSS), (6.0, 12.0)),
    "200 ms delay, master": FaultKind(around("master", DELAY)),
    "200 ms delay, replica": FaultKind(around("replica", DELAY)),
    "200 ms delay, controller": FaultKind(around(CONTROLLER, DELAY)),
    "full disk, master": FaultKind(partial(full_disk, choose=the_master), (4.0, 8.0)),
    "full disk, replica": FaultKind(partial(full_disk, choose=a_replica), (4.0, 8.0)),
    "full disk, name server": FaultKind(partial(full_disk, choose=the_name_server)),
    "full disk, controller": FaultKind(partial(full_disk, choose=the_controller), (4.0, 8.0)),
}
