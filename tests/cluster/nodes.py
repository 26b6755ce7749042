"""Name server, controller and brokers as processes, each on a host of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from rmq_remoting.bodies.ha import HARuntimeInfo
from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand
from tests.crash.brokers import FaultyBroker
from tests.support.apache import ApacheController
from tests.support.broker_requests import request, succeeded
from tests.support.own_servers import OwnNamesrv
from tests.support.raw_client import RawClient
from tests.support.toolchain import JavaProgram

from .hosts import Host

NAMESRV_PORT: Final = 9876
BROKER_PORT: Final = 10911
CONTROLLER_PORT: Final = 9878
_EVERYWHERE: Final = "0.0.0.0"  # of a host that only this test reaches
DISK_MEBIBYTES: Final = 1024
START_SECONDS: Final = 300.0


class HostedNamesrv(OwnNamesrv):
    """The name server of a host."""

    def __init__(self, host: Host, home: Path) -> None:
        super().__init__(port=NAMESRV_PORT, home=home, settings={"bindAddress": _EVERYWHERE})
        self.host = host
        self.address = f"{host.address}:{NAMESRV_PORT}"

    @property
    def disk(self) -> Path:
        """The folder of its files."""
        return self.home

    def _command(self) -> Sequence[str]:
        return self.host.command(super()._command())


class HostedController(ApacheController):
    """Apache's controller on a host. `settings` are further keys of its configuration."""

    def __init__(self, program: JavaProgram, host: Host, home: Path, settings: Mapping[str, str]) -> None:
        super().__init__(program, port=CONTROLLER_PORT, home=home, settings=settings)
        self.host = host
        self.address = f"{host.address}:{CONTROLLER_PORT}"

    @property
    def disk(self) -> Path:
        """The folder of its files."""
        return self.home / "controller"

    async def is_ready(self) -> bool:
        """Whether it leads."""
        try:
            answer = await self.ask(request(RequestCode.CONTROLLER_GET_METADATA_INFO))
        except (OSError, EOFError, TimeoutError):
            return False
        return bool(answer.ext_fields.get("controllerLeaderAddress"))

    async def ask(self, command: RemotingCommand) -> RemotingCommand:
        """Ask it from its own host. Raises OSError, EOFError, TimeoutError."""
        async with self.host.console(self.port) as client:
            return await client.ask(command)

    def _command(self) -> Sequence[str]:
        return self.host.command(super()._command())


class HostedBroker(FaultyBroker):
    """The broker of a host, in whichever role it is started; its store is on a disk of its own."""

    def __init__(self, host: Host, home: Path, namesrv: str, settings: Mapping[str, str]) -> None:
        own = {
            "brokerIP1": host.address,
            "brokerIP2": host.address,
            "bindAddress": _EVERYWHERE,
            # The checks read all messages at the end.
            "cleanFileForciblyEnable": "false",
        }
        super().__init__(home, "SYNC_FLUSH", settings={**own, **settings})
        self.host = host
        self.port = BROKER_PORT
        self.address = f"{host.address}:{BROKER_PORT}"
        self.namesrv_address = namesrv

    @property
    def disk(self) -> Path:
        """The folder of its store."""
        return self.store_path

    async def start_as(self, role: Mapping[str, str]) -> None:
        """Start it with these settings besides its own."""
        self.settings |= role
        await self.start(START_SECONDS)

    def _command(self) -> Sequence[str]:
        return self.host.command(super()._command())

    # --- questions, which no fault of the network concerns ---

    @asynccontextmanager
    async def console(self) -> AsyncIterator[RawClient]:
        """A connection from its own host."""
        async with self.host.console(self.port) as client:
            yield client

    async def ha_status(self) -> HARuntimeInfo:
        """Its replicas, or its own state as a replica."""
        async with self.console() as client:
            answer = succeeded(await client.ask(request(RequestCode.GET_BROKER_HA_STATUS)))
        return HARuntimeInfo.decode(answer.body)


HostedServer = HostedNamesrv | HostedController | HostedBroker


def is_running(server: HostedServer) -> bool:
    """Whether its process has not ended."""
    return server.process.exit_code is None


def pause(server: HostedServer) -> None:
    """SIGSTOP: the process stands still, and its kernel keeps the connections."""
    os.kill(server.process.pid, signal.SIGSTOP)


def resume(server: HostedServer) -> None:
    """SIGCONT."""
    os.kill(server.process.pid, signal.SIGCONT)
