"""A broker group on hosts of its own whose master Apache's controller elects."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from rmq_remoting.bodies.controller import SyncStateSet
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.headers.controller import ElectMasterRequestHeader
from tests.support.broker_requests import request
from tests.support.toolchain import JavaProgram

from .group import BROKER, CLIENTS, NAME_SERVER, WHOLE_SECONDS, Group
from .history import Term
from .network import Network
from .nodes import START_SECONDS, HostedBroker, HostedController, HostedServer

CONTROLLER: Final = "controller"
_LOOK_SECONDS: Final = 0.05
# Hosts that are cut off are noticed within seconds, so that a run has many failovers. Apache's defaults are
# 10 s and 5 s for the controller, and 15 s for the in-sync set.
_SETTINGS: Final = {
    "enableControllerMode": "true",
    "controllerHeartBeatTimeoutMills": "3000",
    "haMaxTimeSlaveNotCatchup": "5000",
    "checkSyncStateSetPeriod": "1000",
    "syncBrokerMetadataPeriod": "2000",
}
_CONTROLLER_SETTINGS: Final = {"scanNotActiveBrokerInterval": "1000", "scanInactiveMasterInterval": "1000"}


class ControlledGroup(Group):
    """A name server, a controller, brokers, and a host with clients."""

    terms_are_exact = False

    def __init__(
        self, folder: Path, network: Network, settings: Mapping[str, str], program: JavaProgram
    ) -> None:
        """`network` has a host `controller` besides those of Group."""
        host = network.hosts[CONTROLLER]
        self.controller = HostedController(program, host, folder / CONTROLLER, _CONTROLLER_SETTINGS)
        controller = {"controllerAddr": self.controller.address}
        super().__init__(folder, network, {**_SETTINGS, **controller, **settings})
        self._epoch = -1
        self._in_sync: frozenset[int] = frozenset()
        self._looked_at = 0.0  # when the controller was asked last
        self._watching: asyncio.Task[None] | None = None

    async def __aexit__(self, *exception: object) -> None:
        if self._watching is not None:
            self._watching.cancel()
        await super().__aexit__(*exception)

    @property
    def _servers(self) -> list[HostedServer]:
        return [*super()._servers, self.controller]

    async def _start_brokers(self) -> None:
        await self.controller.start(START_SECONDS)
        self._looked_at = time.monotonic()
        for broker in self.brokers:
            await broker.start(START_SECONDS)
            await self._look()
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def start_again(self, broker: HostedBroker) -> None:
        """Start a broker's process; the controller gives it its role."""
        if broker is self.master:
            # It may be the master of the same epoch again.
            self.history.terms.append(Term(broker.address, time.monotonic()))
        await broker.start(START_SECONDS)

    async def until_whole(self, timeout_seconds: float = WHOLE_SECONDS) -> None:
        """Also wait until the in-sync set has all brokers. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            await super().until_whole(deadline - time.monotonic())
            master = self.master
            if await self._look() and len(self._in_sync) == len(self.brokers) and master is self.master:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"not all brokers are in sync after {timeout_seconds:.0f} s: {self._in_sync}"
                )
            await asyncio.sleep(_LOOK_SECONDS)

    async def elect(self, broker: HostedBroker) -> None:
        """Make a broker the master, as `mqadmin electMaster` does."""
        header = ElectMasterRequestHeader(
            broker_id=int((broker.store_path / "brokerIdentity").read_text().rpartition("#")[2]),
            broker_name=broker.broker_name,
            cluster_name=broker.cluster,
            designate_elect=True,
            invoke_time=int(time.time() * 1000),
        )
        asked = RemotingCommand.request(RequestCode.CONTROLLER_ELECT_MASTER, header.encode())
        answer = await self.controller.ask(asked)
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def stop_and_check(self) -> None:
        """Also make sure that the same broker stays the master."""
        assert self._watching is not None
        await self.until_whole()
        self._watching.cancel()
        await super().stop_and_check()

    # --- the controller's decisions ---

    async def _watch(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _is_master_still(self, broker: HostedBroker) -> bool:
        return await self._look() and broker is self.master

    async def _look(self) -> bool:
        """Ask the controller for the master; return whether it told one."""
        asked = request(RequestCode.CONTROLLER_GET_REPLICA_INFO, brokerName=self.master.broker_name)
        before, looked_at = self._looked_at, time.monotonic()
        try:
            answer = await self.controller.ask(asked)
        except (OSError, EOFError, TimeoutError):
            return False
        address = answer.ext_fields.get("masterAddress")
        if answer.code != ResponseCode.SUCCESS or not address:
            return False
        epoch = int(answer.ext_fields["masterEpoch"])
        if epoch < self._epoch:
            return False  # a controller that has just started
        self._looked_at = max(self._looked_at, looked_at)
        self._in_sync = frozenset(SyncStateSet.decode(answer.body).sync_state_set)
        if epoch > self._epoch:
            self._epoch = epoch
            self._elected(next(each for each in self.brokers if each.address == address), before)
        return True

    def _elected(self, master: HostedBroker, not_before: float) -> None:
        now = time.monotonic()
        for term in self.history.terms:
            if term.ended is None:
                term.ended = now
        self.history.terms.append(Term(master.address, not_before))
        self.master = master


@asynccontextmanager
async def running_controlled_group(
    folder: Path, seed: int, brokers: int, settings: Mapping[str, str], program: JavaProgram
) -> AsyncIterator[ControlledGroup]:
    """A group with a controller and `brokers` brokers, its hosts and their network; no load yet."""
    names = [NAME_SERVER, CONTROLLER, *(f"{BROKER}{number}" for number in range(brokers)), CLIENTS]
    with Network(names, seed) as network:
        async with ControlledGroup(folder, network, settings, program) as group:
            yield group
