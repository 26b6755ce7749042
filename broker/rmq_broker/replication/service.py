"""Replication of one broker: the master's port for replicas, or the replica that follows a master."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rmq_remoting.daemon.tasks import OnDeath

from ..registration.master_address import MasterAddress
from .following import Follower
from .serving import ReplicaServer

if TYPE_CHECKING:
    from rmq_remoting.client import RemotingClient
    from rmq_remoting.daemon.tasks import TaskSupervisor

    from ..clock import ClockMs
    from ..settings.broker import BrokerSettings
    from ..store.api import MessageStore

log = logging.getLogger("rmq.broker.replication")

_FOLLOWING: Final = "replication"
_SERVING: Final = "replicas"


class ReplicationService:
    """Serves replicas; on a replica, follows the master."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        client: RemotingClient,
        announced_master: Callable[[], MasterAddress | None],
        now_ms: ClockMs,
    ) -> None:
        """`announced_master` returns the master that name servers tell; `client` sends it requests."""
        self._settings = settings
        self._announced_master = announced_master
        self._last_told: MasterAddress | None = None  # by a master that started (code 906)
        self.server = ReplicaServer(settings, store)
        self.follower = (
            Follower(settings, store, client, self.master, now_ms) if settings.is_replica else None
        )

    def master(self) -> MasterAddress | None:
        """Return the master to follow; None if none is known."""
        announced = self._announced_master() or self._last_told
        fixed = self._settings.ha_master_address
        if fixed:
            return MasterAddress(fixed, announced.clients if announced is not None else "")
        return announced

    def announced(self, ha: str, clients: str) -> None:
        """Note the addresses that a master has sent; those that name servers tell come first."""
        self._last_told = MasterAddress(ha, clients)

    def start_tasks(self, supervisor: TaskSupervisor) -> None:
        """Look after the connections of replicas, or follow the master."""
        supervisor.start(_SERVING, self.server.run)
        if self.follower is not None:
            # A fault in following must not leave a replica that silently stays behind: it restarts.
            supervisor.start(_FOLLOWING, self.follower.run, on_death=OnDeath.STOP_DAEMON)

    async def stop(self, supervisor: TaskSupervisor) -> None:
        """End all connections."""
        await supervisor.cancel(_FOLLOWING)
        await supervisor.cancel(_SERVING)
        if self.follower is not None:
            self.follower.close()
        await self.server.stop()
