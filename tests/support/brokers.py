"""A broker in this process, on free ports. (As a process of its own: `own_servers`.)"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rmq_broker.broker import Broker
from rmq_broker.build import build_broker
from rmq_broker.clock import Clocks
from rmq_broker.pulling.held_pulls import HeldPulls
from rmq_broker.services import Services
from rmq_broker.settings.broker import BrokerSettings
from rmq_remoting.daemon.configuration import Configuration
from rmq_remoting.daemon.tasks import TaskSupervisor
from rmq_testing import settings
from tests.support.ports import LOOPBACK
from tests.support.raw_client import RawClient, raw_client
from tests.support.service_views import ServiceViews


def broker_configuration(
    folder: Path, file: Path | None = None, /, **keys: object
) -> Configuration[BrokerSettings]:
    """Settings by Apache's keys; without more: free ports on loopback, small files, no name server."""
    return settings.broker_configuration(folder / "store", file, **keys)


class RunningBroker(ServiceViews):
    """A running broker; `stop` fails if one of its background tasks has failed."""

    def __init__(self, configuration: Configuration[BrokerSettings], clocks: Clocks | None = None) -> None:
        """`clocks`: those of a test, instead of the machine's."""
        self.configuration = configuration
        self._clocks = clocks
        self.deaths: list[str] = []
        self.supervisor = TaskSupervisor(lambda name, error: self.deaths.append(f"{name}: {error!r}"))
        self._built: Broker | None = None
        self.ready_text = ""

    async def build(self) -> None:
        """Build the broker, for a test that changes it before its start. Raises StartError."""
        self._built = await build_broker(self.configuration, self.supervisor, self._clocks)

    async def start(self) -> str:
        """Start it, built before if it is not; return the text of the ready line. Raises StartError."""
        if self._built is None:
            await self.build()
        self.ready_text = (await self.broker.start()).line()
        return self.ready_text

    async def stop(self) -> None:
        """Shut it down gracefully, if it could be built."""
        if self._built is not None:
            await self._built.stop()
        await self.supervisor.stop()
        failed = {name: task.failures for name, task in self.supervisor.statistics.items() if task.failures}
        assert not self.deaths and not failed, f"background tasks failed: {self.deaths} {failed}"

    @property
    def broker(self) -> Broker:
        """The broker, once it is built."""
        assert self._built is not None
        return self._built

    @property
    def services(self) -> Services:
        """The services of the broker."""
        return self.broker.services

    @property
    def held_pulls(self) -> HeldPulls:
        """The held pulls."""
        return self.services.pulls.held_pulls

    @property
    def port(self) -> int:
        """The main port."""
        return self.broker.port

    @property
    def fast_port(self) -> int:
        """The fast port, for sends."""
        return self.broker.listeners.fast.port

    @property
    def address(self) -> str:
        """The address for clients."""
        return f"{LOOPBACK}:{self.port}"

    @asynccontextmanager
    async def client(self) -> AsyncIterator[RawClient]:
        """A connection to the main port."""
        async with raw_client(self.port) as client:
            yield client

    def change(self, **keys: object) -> None:
        """Change settings while it runs, as request 25 does."""
        self.configuration.update({key: str(value) for key, value in keys.items()})


@asynccontextmanager
async def running_broker(
    folder: Path, file: Path | None = None, /, **keys: object
) -> AsyncIterator[RunningBroker]:
    """A running broker with its files in `folder`, shut down gracefully at the end."""
    broker = RunningBroker(broker_configuration(folder, file, **keys))
    try:
        await broker.start()
        yield broker
    finally:
        await broker.stop()
