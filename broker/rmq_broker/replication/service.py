"""Replication of one broker: the master's port for replicas, or the replica that follows a master."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rmq_remoting.daemon.tasks import OnDeath

from .following import Follower
from .lookup import MasterLookup
from .serving import ReplicaServer

if TYPE_CHECKING:
    from rmq_remoting.daemon.tasks import TaskSupervisor

    from ..clock import ClockMs
    from ..registration.registrar import Registrar
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
        registrar: Registrar,
        now_ms: ClockMs,
    ) -> None:
        """`registrar` knows the name servers, and its client sends requests to the master."""
        self.lookup = MasterLookup(settings, registrar)
        self.server = ReplicaServer(settings, store)
        self.follower = (
            Follower(settings, store, registrar.client, self.lookup, now_ms) if settings.is_replica else None
        )

    @property
    def has_master(self) -> bool:
        """Whether this broker is a replica that follows its master now."""
        return self.follower is not None and self.follower.status.is_connected

    def start_tasks(self, supervisor: TaskSupervisor) -> None:
        """Look after the connections of replicas, or follow the master."""
        supervisor.start(_SERVING, self.server.run)
        if self.follower is not None:
            # A fault in following must not leave a replica that silently stays behind: it restarts.
            supervisor.start(_FOLLOWING, self.follower.run, on_death=OnDeath.STOP_DAEMON)

    async def stop(self, supervisor: TaskSupervisor) -> None:
        """Follow the master no longer."""
        await supervisor.cancel(_FOLLOWING)
        await supervisor.cancel(_SERVING)
        if self.follower is not None:
            self.follower.close()
