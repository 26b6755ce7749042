"""Brokers of a group with a controller, in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rmq_broker.broker import Broker
from rmq_broker.controlled import ControlledBroker, build_controlled
from rmq_broker.settings.broker import BrokerSettings
from rmq_broker.store.api import InSyncReplicas, MessageStore
from rmq_remoting.daemon.configuration import Configuration
from rmq_remoting.daemon.tasks import TaskSupervisor
from tests.support.brokers import broker_configuration
from tests.support.ports import LOOPBACK
from tests.support.raw_client import RawClient, raw_client


class Member:
    """A running member of a group."""

    def __init__(self, configuration: Configuration[BrokerSettings]) -> None:
        self.configuration = configuration
        self.deaths: list[str] = []
        self.supervisor = TaskSupervisor(lambda name, error: self.deaths.append(f"{name}: {error!r}"))
        self._built: ControlledBroker | None = None

    async def start(self) -> None:
        """Start it, and wait until the controller has given it a role. Raises StartError."""
        self._built = await build_controlled(self.configuration, self.supervisor)
        await self._built.start()

    async def stop(self) -> None:
        """Shut it down gracefully, if it could be built."""
        if self._built is not None:
            built, self._built = self._built, None
            await built.stop()
            await self.supervisor.stop()
        assert not self.deaths, f"background tasks failed: {self.deaths}"

    @property
    def built(self) -> bool:
        """Whether it has taken its ports."""
        return self._built is not None

    @property
    def controlled(self) -> ControlledBroker:
        """The member of the group."""
        assert self._built is not None
        return self._built

    @property
    def broker(self) -> Broker | None:
        """The broker of the present role; None while that changes."""
        return self.controlled.broker

    @property
    def store(self) -> MessageStore:
        """The store of the present broker."""
        assert self.broker is not None
        return self.broker.services.storage.store

    @property
    def in_sync(self) -> frozenset[int]:
        """The in-sync set, as this master knows it."""
        replicas = self.store.replicas
        assert isinstance(replicas, InSyncReplicas)
        return replicas.members

    @property
    def address(self) -> str:
        """The address for clients."""
        return f"{LOOPBACK}:{self.configuration.settings.listen_port}"

    @property
    def serves_as_master(self) -> bool:
        """Whether it accepts messages."""
        role = self.controlled.serving
        return role is not None and role.is_master

    @property
    def follows(self) -> bool:
        """Whether it follows a master."""
        return self.broker is not None and self.broker.replication.has_master

    @asynccontextmanager
    async def client(self) -> AsyncIterator[RawClient]:
        """A connection to the main port."""
        async with raw_client(self.configuration.settings.listen_port) as client:
            yield client


def member(folder: Path, controller: str, /, **keys: object) -> Member:
    """A member that is not started."""
    chosen = {"enableControllerMode": True, "controllerAddr": controller, **keys}
    return Member(broker_configuration(folder, **chosen))


@asynccontextmanager
async def running_member(folder: Path, controller: str, /, **keys: object) -> AsyncIterator[Member]:
    """A member that has its role, shut down gracefully at the end."""
    running = member(folder, controller, **keys)
    try:
        await running.start()
        yield running
    finally:
        await running.stop()
