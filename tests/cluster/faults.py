"""The faults that a run injects: each has a name, a begin, a time for which it is there, and an end.

A fault is an asynchronous context manager over the group: it begins when it is entered, and ends when it is
left. Its `hold_seconds` bound the time between the two. A fault that loses packets checks that it lost some.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from tests.support.small_disk import fill_disk, free_disk

from .group import CLIENTS, NAME_SERVER, Group
from .history import FaultRecord
from .network import Direction
from .nodes import DISK_MEBIBYTES, HostedServer, is_running, pause, resume
from .switch import Counts, Fault

LOSS: Final = Fault(loss=0.3)
DELAY: Final = Fault(delay_seconds=0.2)
CUT: Final = Fault(is_cut=True)
# Of begin and end: the start of a broker takes long on a busy machine.
_STEP_SECONDS: Final = 600.0

Chance = random.Random
Act = Callable[[Group, Chance], AbstractAsyncContextManager[None]]
# Of the server that a fault concerns.
Choose = Callable[[Group, Chance], HostedServer]


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A fault. `hold_seconds`: the shortest and the longest time for which it is there."""

    act: Act
    hold_seconds: tuple[float, float] = (0.5, 6.0)


async def inject(
    name: str, kind: FaultKind, group: Group, chance: random.Random, hold_seconds: float | None = None
) -> FaultRecord:
    """Let one fault begin and end, and wait until the group is whole and accepts messages.

    `hold_seconds`: how long it is there; None: a random time within its bounds. Raises TimeoutError if begin,
    end or recovery take too long.
    """
    record = FaultRecord(name, time.monotonic())
    group.history.faults.append(record)
    fault = kind.act(group, chance)
    async with asyncio.timeout(_STEP_SECONDS):
        await fault.__aenter__()
    await asyncio.sleep(chance.uniform(*kind.hold_seconds) if hold_seconds is None else hold_seconds)
    async with asyncio.timeout(_STEP_SECONDS):
        await fault.__aexit__(None, None, None)
    record.healed = time.monotonic()
    await group.until_whole()
    await group.until_accepted()
    record.whole = time.monotonic()
    return record


# --- processes ---


def the_master(group: Group, chance: Chance) -> HostedServer:
    """The broker that is the master when a fault begins."""
    return group.master


def a_replica(group: Group, chance: Chance) -> HostedServer:
    """Any replica."""
    return chance.choice(group.replicas)


def the_name_server(group: Group, chance: Chance) -> HostedServer:
    """The name server."""
    return group.name_server


@asynccontextmanager
async def killed(group: Group, chance: Chance, *, choose: Choose) -> AsyncIterator[None]:
    """SIGKILL; afterwards the same process is started again. By hand, a master is the master again."""
    server = choose(group, chance)
    group.kill(server)
    yield
    await group.start_server(server)


@asynccontextmanager
async def standing_still(group: Group, chance: Chance, *, choose: Choose) -> AsyncIterator[None]:
    """SIGSTOP, later SIGCONT."""
    server = choose(group, chance)
    pause(server)
    yield
    resume(server)


# --- the network ---


@asynccontextmanager
async def _network_fault(group: Group, faults: Mapping[Direction, Fault]) -> AsyncIterator[None]:
    before = group.network.set(faults)
    yield
    after = group.network.heal()
    if not any(fault.delay_seconds for fault in faults.values()):
        met = {route: _dropped(after, route) - _dropped(before, route) for route in faults}
        assert any(met.values()), f"the fault met no packet: {met}"


def _dropped(counts: Mapping[Direction, Counts], route: Direction) -> int:
    found = counts.get(route, Counts())
    return found.cut + found.lost


def _host(group: Group, role: str, chance: Chance) -> str:
    if role == "master":
        return group.master.host.name
    return chance.choice(group.replicas).host.name if role == "replica" else role


def around(role: str, fault: Fault) -> Act:
    """A fault of all packets from and to a host: the master's, a replica's, or that of another name."""

    def act(group: Group, chance: Chance) -> AbstractAsyncContextManager[None]:
        host = _host(group, role, chance)
        return _network_fault(group, dict.fromkeys(group.network.both(host), fault))

    return act


def one_way(role: str, *, sends: bool) -> Act:
    """The packets that a host sends are lost, or those that are sent to it."""

    def act(group: Group, chance: Chance) -> AbstractAsyncContextManager[None]:
        host, network = _host(group, role, chance), group.network
        return _network_fault(
            group, dict.fromkeys((network.sending if sends else network.receiving)(host), CUT)
        )

    return act


def cut_replication(group: Group, chance: Chance) -> AbstractAsyncContextManager[None]:
    """Master and all replicas do not reach each other; everybody reaches clients and name server."""
    replicas = [replica.host.name for replica in group.replicas]
    return _network_fault(group, dict.fromkeys(group.network.both(group.master.host.name, replicas), CUT))


def cut_clients(group: Group, chance: Chance) -> AbstractAsyncContextManager[None]:
    """Clients do not reach the master."""
    return _network_fault(group, dict.fromkeys(group.network.both(group.master.host.name, [CLIENTS]), CUT))


# --- disks ---


@asynccontextmanager
async def full_disk(group: Group, chance: Chance, *, choose: Choose) -> AsyncIterator[None]:
    """The disk of a server has no space; one that ends because of that is started again."""
    server = choose(group, chance)
    fill_disk(server.disk)
    yield
    free_disk(server.disk, DISK_MEBIBYTES)
    if not is_running(server):
        group.kill(server)
        await group.start_server(server)


# --- failover ---


@asynccontextmanager
async def _fail_over(group: Group, chance: Chance) -> AsyncIterator[None]:
    """The master is killed, a replica replaces it at once, and the old master becomes a replica."""
    former = group.master
    group.kill(former)
    await group.replace_master()
    yield
    await group.start_again(former)


@asynccontextmanager
async def _fail_over_from(group: Group, chance: Chance, *, before: Act) -> AsyncIterator[None]:
    """The master is cut off or stands still for a while, and is then killed and replaced."""
    former = group.master
    async with before(group, chance):
        await asyncio.sleep(chance.uniform(0.5, 4.0))
        group.kill(former)
        await group.replace_master()
        yield
    await group.start_again(former)


@asynccontextmanager
async def _standing_still(group: Group, chance: Chance) -> AsyncIterator[None]:
    pause(group.master)
    yield


_QUICK: Final = (0.0, 1.0)
FAULTS: Final[Mapping[str, FaultKind]] = {
    "kill master": FaultKind(partial(killed, choose=the_master), _QUICK),
    "kill replica": FaultKind(partial(killed, choose=a_replica)),
    "kill name server": FaultKind(partial(killed, choose=the_name_server)),
    "stop master": FaultKind(partial(standing_still, choose=the_master)),
    "stop replica": FaultKind(partial(standing_still, choose=a_replica)),
    "stop name server": FaultKind(partial(standing_still, choose=the_name_server)),
    "cut master": FaultKind(around("master", CUT)),
    "cut replica": FaultKind(around("replica", CUT)),
    "cut name server": FaultKind(around(NAME_SERVER, CUT), (6.0, 6.0)),
    "cut replication": FaultKind(cut_replication),
    "cut clients": FaultKind(cut_clients),
    "one way: master is not heard": FaultKind(one_way("master", sends=True)),
    "one way: master does not hear": FaultKind(one_way("master", sends=False)),
    "one way: replica is not heard": FaultKind(one_way("replica", sends=True), (5.0, 6.0)),
    "one way: replica does not hear": FaultKind(one_way("replica", sends=False)),
    "30 % loss, master": FaultKind(around("master", LOSS)),
    "30 % loss, replica": FaultKind(around("replica", LOSS)),
    "30 % loss, name server": FaultKind(around(NAME_SERVER, LOSS), (6.0, 6.0)),
    "200 ms delay, master": FaultKind(around("master", DELAY)),
    "200 ms delay, replica": FaultKind(around("replica", DELAY)),
    "full disk, master": FaultKind(partial(full_disk, choose=the_master), (4.0, 8.0)),
    "full disk, replica": FaultKind(partial(full_disk, choose=a_replica), (4.0, 8.0)),
    "full disk, name server": FaultKind(partial(full_disk, choose=the_name_server)),
    "failover": FaultKind(_fail_over, _QUICK),
    "failover from a master that is cut off": FaultKind(
        partial(_fail_over_from, before=around("master", CUT)), _QUICK
    ),
    "failover from a master that stands still": FaultKind(
        partial(_fail_over_from, before=_standing_still), _QUICK
    ),
}
