"""Replication of one broker: the master's port for replicas, or the replica that follows a master."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rmq_remoting.daemon.tasks import OnDeath

from .controlled import ControlledReplication
from .following import Follower
from .lookup import MasterLookup
from .metadata.build import MetadataReplication
from .serving import ReplicaServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq_remoting.daemon.tasks import TaskSupervisor

    from ..clock import Clocks
    from ..controller.member import GroupMember
    from ..registration.registrar import Registrar
    from ..settings.broker import BrokerSettings
    from ..store.api import MessageStore
    from .metadata.build import MetadataDependencies

log = logging.getLogger("rmq.broker.replication")

_FOLLOWING: Final = "replication"
_SERVING: Final = "replicas"
_METADATA: Final = "metadata"


class ReplicationService:
    """Serves replicas; on a replica, follows the master."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        registrar: Registrar,
        metadata: MetadataDependencies,
        clocks: Clocks,
        keeps_own_progress: Callable[[], bool],
        member: GroupMember | None = None,
    ) -> None:
        """`registrar` knows the name servers, and its client sends requests to the master.

        While this replica `keeps_own_progress`, it takes over no metadata. `member`: this broker's place in a
        group with a controller.
        """
        self.controlled = None if member is None else ControlledReplication(settings, store, member, clocks)
        self.lookup = MasterLookup(settings, registrar)
        self.server = ReplicaServer(settings, store)
        if self.controlled is not None:
            self.lookup = self.controlled.lookup(registrar)
            self.server = ReplicaServer(settings, store, self.controlled.connection)
        self.follower: Follower | None = None
        self.metadata: MetadataReplication | None = None
        if settings.is_replica:
            client = registrar.client
            self.metadata = MetadataReplication(
                metadata, client, self._master_address, clocks.steady_ms, keeps_own_progress
            )
            make = Follower if self.controlled is None else self.controlled.follower
            self.follower = make(settings, store, client, self.lookup, clocks.now_ms, self.metadata.sync.wake)

    @property
    def elected_epoch(self) -> int | None:
        """The epoch of this broker as the elected master; None if it is a replica, or has no controller."""
        return None if self.controlled is None else self.controlled.elected_epoch

    @property
    def has_master(self) -> bool:
        """Whether this broker is a replica that follows its master now."""
        return self.follower is not None and self.follower.status.is_connected

    def load(self) -> None:
        """Read the files of a replica. Raises ConfigFileError; blocks.

        With a controller, note the epoch of a master; the store is open. Raises OSError.
        """
        if self.metadata is not None:
            self.metadata.load()
        if self.controlled is not None:
            self.controlled.load()

    def start_tasks(self, supervisor: TaskSupervisor) -> None:
        """Look after the connections of replicas, or follow the master."""
        supervisor.start(_SERVING, self.server.run)
        if self.controlled is not None:
            self.controlled.start_tasks(supervisor, self.follower)
        if self.follower is not None:
            # A fault in following must not leave a replica that silently stays behind: it restarts.
            supervisor.start(_FOLLOWING, self.follower.run, on_death=OnDeath.STOP_DAEMON)
        if self.metadata is not None:
            supervisor.start(_METADATA, self.metadata.sync.run)

    async def keep_in_sync_set(self, supervisor: TaskSupervisor) -> None:
        """Take no replica out of the in-sync set any more: one of them takes over after a stop."""
        if self.controlled is not None:
            await self.controlled.keep_in_sync_set(supervisor)

    async def stop(self, supervisor: TaskSupervisor) -> None:
        """Follow the master no longer. Raises OSError."""
        if self.controlled is not None:
            await self.controlled.stop(supervisor)
        await supervisor.cancel(_FOLLOWING)
        await supervisor.cancel(_METADATA)
        await supervisor.cancel(_SERVING)
        if self.follower is not None:
            self.follower.close()
        if self.metadata is not None:
            await self.metadata.close()

    def _master_address(self) -> str | None:
        """Return where clients reach the master to take metadata from; None if there is none.

        The tables of a master with another log would delete the topics and offsets of this one.
        """
        known = self.lookup.known
        if known is None or self.follower is None or self.follower.status.agreed != known:
            return None
        return known.clients or None
