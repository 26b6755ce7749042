"""A broker whose role a controller decides: master or replica, and another one after a failover.

A broker is built for one role. When the role changes, this broker stops gracefully and another one is built
on the same ports and store, in the same process, which takes some tenths of a second. Until the controller
gives a role for the first time, the broker is a replica of nobody that no name server knows: it opens its
store, since elections compare the ends of logs. Heartbeats to the controller go on all the time, because it
takes a closed connection for the death of the broker.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from rmq_remoting.client import RemotingClient
from rmq_remoting.daemon.lifecycle import StartError
from rmq_remoting.daemon.tasks import DaemonRestart, OnDeath, TaskSupervisor
from rmq_remoting.daemon.tls_contexts import client_tls
from rmq_remoting.signing import RequestSigner

from .build import build_broker
from .clock import Clocks, system_clocks
from .controller.controllers import Controllers
from .controller.identity import IdentityFiles
from .controller.member import GroupMember
from .network.address import BoundPorts, bind_ports, resolve_address
from .store.api import BrokerRole

if TYPE_CHECKING:
    from rmq_remoting.daemon.access.tables import AccessTables
    from rmq_remoting.daemon.configuration import Configuration
    from rmq_remoting.daemon.ready import Ready

    from .broker import Broker
    from .controller.role import Role
    from .settings.broker import BrokerSettings

log = logging.getLogger("rmq.broker")

_CONTROLLER: Final = "controller"
_ROLES: Final = "role"
_MASTER_ID: Final = 0


class ControlledBroker:
    """A member of a group with a controller."""

    def __init__(
        self,
        configuration: Configuration[BrokerSettings],
        supervisor: TaskSupervisor,
        ports: BoundPorts,
        member: GroupMember,
        client: RemotingClient,
        clocks: Clocks,
        access_tables: AccessTables | None,
    ) -> None:
        """`client` has the connections to controllers, which outlive the broker of one role."""
        self._configuration = configuration
        self._kept_listeners = configuration.listener_count
        self._supervisor = supervisor
        self._ports: BoundPorts | None = ports
        self._client = client
        self._clocks = clocks
        self._access_tables = access_tables
        self.member = member
        self.broker: Broker | None = None
        self.serving: Role | None = None  # the role in which requests are served now
        self._own: TaskSupervisor | None = None  # of the broker that runs
        self._role: Role | None = None  # the one that it was built for
        self._restarts = False  # the broker that runs asks to be built anew
        self._changed = asyncio.Event()
        self._change: asyncio.Task[Ready | None] | None = None
        self._fatal: BaseException | None = None

    async def start(self) -> Ready:
        """Serve in the role that the controller gives, however long that takes. Raises StartError."""
        try:
            await asyncio.to_thread(self.member.load)
        except OSError as error:
            raise StartError(f"the broker's id cannot be read: {error}") from error
        self.member.add_listener(self._told)
        ready = await self._build(None)
        self._supervisor.start(_CONTROLLER, self.member.run, on_death=OnDeath.STOP_DAEMON)
        while ready is None or self._is_outdated:
            await self._next_change()
            ready = await self._change_role()
        self._supervisor.start(_ROLES, self._follow_roles, on_death=OnDeath.STOP_DAEMON)
        return ready

    async def stop(self) -> None:
        """Stop the broker, then the heartbeats: the controller elects another master then. Raises OSError."""
        await self._supervisor.cancel(_ROLES)
        if self._change is not None and not self._change.done():
            await asyncio.wait([self._change])
        try:
            await self._stop_broker()
        finally:
            await self._supervisor.cancel(_CONTROLLER)
            await self._client.stop()
            if self._ports is not None:
                self._ports.close()

    # --- changes of the role ---

    async def _follow_roles(self) -> None:
        while True:
            await self._next_change()
            if self._is_outdated:
                await self._change_role()

    async def _next_change(self) -> None:
        """Wait for a role, or for a broker that needs to be built anew. Raises what a task of it died of."""
        await self._changed.wait()
        self._changed.clear()
        if self._fatal is not None:
            raise self._fatal

    @property
    def _is_outdated(self) -> bool:
        role, built = self.member.role, self._role
        if self._restarts or role is None or built is None:
            return self._restarts or role is not built
        return role.is_master != built.is_master

    async def _change_role(self) -> Ready | None:
        """Stop the broker that runs, and build and start one for the present role; return its facts.

        Cancelling the caller interrupts neither: a store is flushed and closed as a whole.
        """
        self._change = asyncio.ensure_future(self._stop_and_build())
        return await asyncio.shield(self._change)

    async def _stop_and_build(self) -> Ready | None:
        began = time.monotonic()
        await self._stop_broker()
        role = self.member.role
        ready = await self._build(role)
        self.member.change_seconds = time.monotonic() - began
        log.info(
            "serving role=%s epoch=%s after_ms=%.0f",
            "none" if role is None else "master" if role.is_master else "replica",
            "none" if role is None else role.epoch,
            self.member.change_seconds * 1000,
        )
        return ready

    async def _build(self, role: Role | None) -> Ready | None:
        """Build and start a broker; return the facts to announce. Without a role none are."""
        settings = self._configuration.settings
        settings.broker_role = BrokerRole.SYNC_MASTER if role and role.is_master else BrokerRole.SLAVE
        settings.broker_id = _MASTER_ID if role and role.is_master else self.member.broker_id or -1
        self._role, self._restarts = role, False
        own = self._own = TaskSupervisor(self._task_died)
        ports, self._ports = self._ports, None
        self.broker = await build_broker(
            self._configuration, own, self._clocks, self._access_tables, ports, self.member
        )
        if role is None:
            await self.broker.start_alone()
            return None
        ready = await self.broker.start()
        self.serving = role
        return ready

    async def _stop_broker(self) -> None:
        self.serving = None
        broker, self.broker = self.broker, None
        own, self._own = self._own, None
        try:
            if broker is not None:
                await broker.stop()
        finally:
            if own is not None:
                await own.stop()
            self._configuration.drop_listeners(self._kept_listeners)

    # --- inside ---

    def _told(self, role: Role) -> None:
        self._changed.set()

    def _task_died(self, name: str, error: BaseException) -> None:
        if isinstance(error, DaemonRestart):
            self._restarts = True
        else:
            self._fatal = error
        self._changed.set()


async def build_controlled(
    configuration: Configuration[BrokerSettings],
    supervisor: TaskSupervisor,
    clocks: Clocks | None = None,
    access_tables: AccessTables | None = None,
) -> ControlledBroker:
    """Take the ports and build the member of a group. Arguments as of `build_broker`. Raises StartError."""
    settings = configuration.settings
    clocks = clocks or system_clocks()
    ports = bind_ports(settings)
    try:
        address = await resolve_address(settings, ports.main_port)
        keys, tls = settings.own_keys, client_tls(settings)
    except BaseException:
        ports.close()
        raise
    # The broker of another role takes the same ports.
    settings.listen_port = ports.main_port
    settings.fast_listen_port = ports.fast_port
    settings.ha_listen_port = ports.replication_port
    cluster, name = settings.broker_cluster_name, settings.broker_name
    signer = None if keys is None else RequestSigner(keys.access_key, keys.secret_key)
    client = RemotingClient(signer=signer, tls=tls)
    controllers = Controllers(settings, client, cluster, name, clocks.now_ms)
    path = settings.store_path_broker_identity or settings.store_path_root_dir / "brokerIdentity"
    member = GroupMember(
        settings, str(address), controllers, IdentityFiles(path, cluster, name), clocks.now_ms
    )
    return ControlledBroker(configuration, supervisor, ports, member, client, clocks, access_tables)
