"""The parts of replication that a group with a controller has besides: epochs, and the in-sync set.

A broker of such a group is built for one role. When that changes, another one is built (`controlled.py`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from ..controller.role import LogState
from ..store.api import InSyncReplicas
from .controlled_lookup import ControlledLookup
from .epoch_following import EpochFollower
from .epoch_sending import EpochReplicaConnection
from .in_sync_set import InSyncSet

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from rmq_remoting.client import RemotingClient
    from rmq_remoting.daemon.tasks import TaskSupervisor

    from ..clock import ClockMs, Clocks
    from ..controller.member import GroupMember
    from ..controller.role import Role
    from ..registration.registrar import Registrar
    from ..settings.broker import BrokerSettings
    from ..store.api import EpochFile, MessageStore
    from .following import Follower
    from .lookup import MasterLookup
    from .sending import ReplicaConnection

log = logging.getLogger("rmq.broker.replication")

_IN_SYNC: Final = "in-sync set"
_EPOCHS: Final = "epochs"
_DELETED_SECONDS: Final = 60.0


class ControlledReplication:
    """Belongs to the loop's thread, except `load`."""

    def __init__(
        self, settings: BrokerSettings, store: MessageStore, member: GroupMember, clocks: Clocks
    ) -> None:
        assert store.epochs is not None
        self.member = member
        self.epochs: EpochFile = store.epochs
        self._settings = settings
        self._store = store
        self._follower: Follower | None = None
        role = member.role
        self.in_sync: InSyncSet | None = None
        if role is not None and role.is_master:
            assert isinstance(store.replicas, InSyncReplicas)
            self.in_sync = InSyncSet(settings, member, role, store.replicas, clocks.steady_ms)
        self._epoch = -1 if role is None else role.epoch

    @property
    def elected_epoch(self) -> int | None:
        """The epoch of this broker as the master; None if it is a replica."""
        return None if self.in_sync is None else self._epoch

    # --- the build ---

    def lookup(self, registrar: Registrar) -> MasterLookup:
        """Return the lookup of the master."""
        return ControlledLookup(self._settings, registrar, self.member)

    def connection(
        self,
        store: MessageStore,
        settings: BrokerSettings,
        executor: Executor,
        admit: Callable[[ReplicaConnection, str], str | None],
        on_closed: Callable[[ReplicaConnection], None],
    ) -> ReplicaConnection:
        """Return a connection to a replica."""
        return EpochReplicaConnection(store, settings, executor, admit, on_closed, self.epochs, self.in_sync)

    def follower(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        client: RemotingClient,
        lookup: MasterLookup,
        now_ms: ClockMs,
        on_following: Callable[[], None],
    ) -> Follower:
        """Return the follower of the master."""
        return EpochFollower(
            settings,
            store,
            client,
            lookup,
            now_ms,
            on_following,
            self.epochs,
            self._own_id,
            lambda: self._epoch,
        )

    # --- life ---

    def load(self) -> None:
        """Begin the epoch of a master. Raises OSError; blocks."""
        if self.in_sync is not None:
            self._begin_epoch(self._epoch)

    def start_tasks(self, supervisor: TaskSupervisor, follower: Follower | None) -> None:
        """Tell the controller about the log from now on, and keep the in-sync set of a master."""
        self._follower = follower
        self.member.log_state = self.log_state
        self.member.add_listener(self._told)
        supervisor.every(_EPOCHS, _DELETED_SECONDS, self._drop_deleted)
        if self.in_sync is not None:
            supervisor.start(_IN_SYNC, self.in_sync.run)

    async def keep_in_sync_set(self, supervisor: TaskSupervisor) -> None:
        """Propose no change of the in-sync set any more."""
        await supervisor.cancel(_IN_SYNC)

    async def stop(self, supervisor: TaskSupervisor) -> None:
        """Hear of no more roles. The log stays as it is, also for heartbeats after the store is closed."""
        self.member.remove_listener(self._told)
        state = self.log_state()
        self.member.log_state = lambda: state
        await supervisor.cancel(_EPOCHS)

    def log_state(self) -> LogState:
        """Return the state of the log that elections compare."""
        store = self._store
        confirmed = store.entries_end if self.in_sync is None else store.replicas.confirmed_offset
        return LogState(self.epochs.last, store.max_phy_offset(), confirmed)

    # --- inside ---

    def _told(self, role: Role) -> None:
        """Take over a new epoch, set or master; another role gets another broker."""
        if self.in_sync is not None:
            if not role.is_master:
                self._store.replicas.depose()
                return
            if role.epoch > self._epoch:
                # Appends run on this thread, too: none comes between the end of the log and the epoch.
                self._epoch = role.epoch
                self._begin_epoch(role.epoch)
                self._store.replicas.elected()
            self.in_sync.told(role.sync_state)
        elif self._follower is not None and role.epoch > self._epoch:
            self._epoch = role.epoch
            self._follower.master_changed()

    def _begin_epoch(self, number: int) -> None:
        store = self._store
        self.epochs.begin(number, store.min_phy_offset(), store.max_phy_offset())
        log.info("epoch begun epoch=%d log_end=%d", number, store.max_phy_offset())

    async def _drop_deleted(self) -> None:
        begin = self._store.min_phy_offset()
        await asyncio.to_thread(self.epochs.drop_deleted, begin)

    def _own_id(self) -> int:
        assert self.member.broker_id is not None
        return self.member.broker_id
