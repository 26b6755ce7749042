"""The name server: builds all parts, starts them, and shuts them down gracefully."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from rmq_remoting.admission import Admission
from rmq_remoting.client import RemotingClient
from rmq_remoting.connection import Connection, ConnectionSettings
from rmq_remoting.daemon.access.acl_processor import AclAdminProcessor
from rmq_remoting.daemon.access.service import AccessService, DaemonTexts
from rmq_remoting.daemon.access.tables import AccessTables
from rmq_remoting.daemon.access.user_processor import UserAdminProcessor
from rmq_remoting.daemon.cache_metrics import CacheCollector
from rmq_remoting.daemon.config_file import ConfigFileError
from rmq_remoting.daemon.configuration import Change, Configuration
from rmq_remoting.daemon.exposition import Collector
from rmq_remoting.daemon.lifecycle import StartError
from rmq_remoting.daemon.metrics import (
    GarbageCollectionProbe,
    LoopLagProbe,
    MetricsRegistry,
    ProcessCollector,
    TaskCollector,
)
from rmq_remoting.daemon.metrics_server import MetricsServer
from rmq_remoting.daemon.ready import Listening, Ready, local_address
from rmq_remoting.daemon.remoting_metrics import RemotingCollector
from rmq_remoting.daemon.tasks import TaskSupervisor
from rmq_remoting.daemon.tls_contexts import ServerContexts, client_tls
from rmq_remoting.daemon.tls_metrics import TlsCollector
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.draining import all_answered
from rmq_remoting.server import RemotingServer
from rmq_remoting.signing import RequestSigner

from .brokers import BrokerTable
from .config import NamesrvSettings
from .kv_config import KvConfig, KvConfigError
from .liveness import LiveBrokers
from .metrics import NODE_LABELS, NamesrvCollector
from .notifications import MinBrokerNotifier
from .processor_table import Processors, fill_table
from .processors.config import ConfigProcessor
from .processors.kv import KvProcessor
from .processors.members import MemberProcessor
from .processors.permissions import PermissionProcessor
from .processors.registration import RegistrationProcessor
from .processors.route import RouteProcessor
from .processors.topics import TopicProcessor
from .registry import BrokerRegistry
from .request_needs import NamesrvNeeds
from .route_bodies import RouteBodies
from .routes import RouteTable
from .slices import SerialLane

log = logging.getLogger("rmq.namesrv")

_DRAIN_SECONDS: Final = 5.0


class Namesrv:
    """A name server in this process: a daemon, or a part of a test or of a standalone broker.

    `supervisor` watches its background tasks; by default it creates one. `clock` returns seconds. Raises
    StartError.
    """

    def __init__(
        self,
        configuration: Configuration[NamesrvSettings],
        supervisor: TaskSupervisor | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        port_option: str = "listenPort",
    ) -> None:
        """`port_option`: how the operator chooses the port, for errors."""
        settings = configuration.settings
        self._settings = settings
        self._port_option = port_option
        self._own_supervisor = TaskSupervisor(_task_failed) if supervisor is None else None
        self._supervisor = supervisor or self._own_supervisor or TaskSupervisor(_task_failed)
        self._contexts = ServerContexts(settings)
        self._contexts.load()
        keys = settings.own_keys
        signer = None if keys is None else RequestSigner(keys.access_key, keys.secret_key)
        self._client = RemotingClient(signer=signer, tls=client_tls(settings))
        self._notifier = MinBrokerNotifier(self._client)
        self._lane = SerialLane()
        self._routes = RouteTable()
        self._brokers = BrokerTable()
        self._route_bodies = RouteBodies(self._routes, self._brokers, settings)
        self._live = LiveBrokers(clock)
        self._registry = BrokerRegistry(
            self._routes, self._brokers, self._live, settings, self._notifier.notify
        )
        self._kv_config = KvConfig(settings.kv_config_path)
        self.access = AccessService(
            settings,
            settings,
            NamesrvNeeds(self._brokers),
            DaemonTexts("name server", clients_may="register brokers and read routes"),
            AccessTables(settings.access_folder),
        )
        guard = self.access.guard
        self.dispatcher = Dispatcher(guard=None if guard is None else guard.check)
        fill_table(self.dispatcher, self._processors(configuration, clock), settings)
        self._server = RemotingServer(
            self.dispatcher,
            settings=ConnectionSettings(
                write_high_bytes=settings.write_high_bytes, write_low_bytes=settings.write_low_bytes
            ),
            idle_seconds=settings.server_channel_max_idle_seconds,
            backlog=settings.server_socket_backlog,
            admission=Admission(settings.connection_limits),
            tls=self._contexts.tls,
            on_close=self._connection_closed,
        )
        self._lag_probe = LoopLagProbe()
        self._gc_probe = GarbageCollectionProbe()
        self._metrics_server: MetricsServer | None = None
        configuration.on_change(self._settings_changed)

    def _processors(
        self, configuration: Configuration[NamesrvSettings], clock: Callable[[], float]
    ) -> Processors:
        settings, tables = configuration.settings, self.access.tables
        return Processors(
            route=RouteProcessor(self._route_bodies, self._brokers, self._kv_config, settings, clock),
            registration=RegistrationProcessor(
                self._registry, self._live, self._lane, self._kv_config, settings
            ),
            topics=TopicProcessor(self._routes, self._brokers, self._registry, settings),
            members=MemberProcessor(self._brokers),
            permissions=PermissionProcessor(self._registry, self._lane),
            kv=KvProcessor(self._kv_config),
            config=ConfigProcessor(configuration),
            users=UserAdminProcessor(
                tables.users, tables.acls, tables.save, is_authenticated=settings.authentication_enabled
            ),
            acls=AclAdminProcessor(tables.users, tables.acls, tables.save),
        )

    # --- life ---

    async def start(self) -> Ready:
        """Start serving, and return the facts to announce. Raises StartError."""
        settings = self._settings
        try:
            await asyncio.to_thread(self._kv_config.load)
            await asyncio.to_thread(self.access.load)
            self.access.start()
            await self._server.start(settings.bind_address, settings.listen_port)
        except (ConfigFileError, KvConfigError) as error:
            raise StartError(str(error)) from error
        except OSError as error:
            raise StartError(
                f"the name server cannot listen on {settings.bind_address}:{settings.listen_port}: "
                f"{error.strerror or error}. Is another one running? {self._port_option} chooses the port"
            ) from error
        self._supervisor.every(
            "scan-silent-brokers",
            lambda: settings.scan_not_active_broker_interval_ms / 1000,
            self._drop_silent,
        )
        self._contexts.watch(self._supervisor, "namesrv-tls-files")
        if settings.metrics_enabled:
            await self._start_metrics()
        log.info("name server listens address=%s:%d", settings.bind_address, self.port)
        return Ready(name="namesrv", address=self.address, metrics=self.metrics_address)

    async def stop(self) -> None:
        """Shut down gracefully: accept nothing more, drain requests in flight, close connections.

        Raises OSError if changes of users or rules cannot be written.
        """
        self._server.stop_accepting()
        if not await all_answered(self.dispatcher, _DRAIN_SECONDS):
            log.warning("requests not drained within the time-out limit_s=%.1f", _DRAIN_SECONDS)
        if self._metrics_server is not None:
            self._lag_probe.stop()
            self._gc_probe.stop()
            await self._metrics_server.stop()
        if self._own_supervisor is not None:
            await self._own_supervisor.stop()
        await self._server.stop()
        self._lane.stop()
        await self._notifier.stop()
        await self._client.stop()
        self.dispatcher.stop()
        await self.access.close()

    @property
    def port(self) -> int:
        """The port that the name server listens on."""
        return self._server.port

    @property
    def address(self) -> str:
        """The address for clients on this machine, as host:port."""
        return local_address(self._settings.bind_address, self.port)

    @property
    def metrics_address(self) -> Listening | None:
        """Where the metrics are served; None if they are not."""
        return None if self._metrics_server is None else self._metrics_server.address

    def collectors(self) -> list[Collector]:
        """Return the collectors of the name server, for its own registry or for that of its process."""
        return [
            NamesrvCollector(self._routes, self._brokers, self._live, self._registry, self._lane),
            RemotingCollector(self.dispatcher, {"namesrv": self._server}),
            TlsCollector({"remoting": self._contexts}),
            CacheCollector((*self._route_bodies.caches, *self.access.caches)),
        ]

    # --- events ---

    def _connection_closed(self, connection: Connection) -> None:
        steps = self._registry.leave_by_connection(connection)
        if steps is not None:
            self._lane.submit("removal of brokers after a closed connection", steps)

    def _drop_silent(self) -> None:
        steps = self._registry.leave_silent()
        if steps is not None:
            self._lane.submit("removal of silent brokers", steps)

    def _settings_changed(self, _: Change) -> None:
        self._brokers.touch()  # read the brokers' next registrations again, under the new settings

    async def _start_metrics(self) -> None:
        settings = self._settings
        registry = MetricsRegistry({**NODE_LABELS, **settings.metrics_extra_labels})
        self._lag_probe.start()
        self._gc_probe.start()
        for collector in (
            *self.collectors(),
            self._lag_probe,
            self._gc_probe,
            ProcessCollector(),
            TaskCollector(self._supervisor),
        ):
            registry.register(collector)
        self._metrics_server = MetricsServer(registry)
        await self._metrics_server.start(
            settings.metrics_host or settings.bind_address,
            settings.metrics_port,
            is_default=settings.metrics_port_is_default,
        )


def _task_failed(name: str, error: BaseException) -> None:
    log.error("task failed task=%s cause=%s", name, error)
