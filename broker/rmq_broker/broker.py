"""The life of a broker: load, listen, register, serve; and everything in reverse at the stop."""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import TYPE_CHECKING, Final

from rmq_remoting.daemon.atomic_file import make_folder
from rmq_remoting.daemon.config_file import ConfigFileError
from rmq_remoting.daemon.lifecycle import StartError
from rmq_remoting.daemon.ready import Ready
from rmq_remoting.daemon.tasks import OnDeath

from .master_services import MasterServicesError
from .replication.metadata.new_topics import create_after_promotion
from .statistics.broker_statistics import SAMPLE_SECONDS
from .store.api import StoreError

if TYPE_CHECKING:
    from rmq_remoting.daemon.tasks import TaskSupervisor

    from .acting.service import ActingService
    from .local_proxy import LocalProxy
    from .master_services import MasterServices
    from .monitoring.broker_metrics import BrokerMetrics
    from .network.address import BrokerAddress
    from .network.listeners import Listeners
    from .registration.registrar import Registrar
    from .replication.service import ReplicationService
    from .services import Services
    from .settings.broker import BrokerSettings

log = logging.getLogger("rmq.broker")

_ADVICE: Final = {
    errno.ENOSPC: "; make room on its disk",
    errno.EIO: '; see "When a disk cannot be read" in docs/durability.md',
}


class Broker:
    """One broker in the running loop, as `build_broker` makes it."""

    def __init__(
        self,
        settings: BrokerSettings,
        supervisor: TaskSupervisor,
        address: BrokerAddress,
        services: Services,
        master_services: MasterServices,
        acting: ActingService,
        registrar: Registrar,
        replication: ReplicationService,
        listeners: Listeners,
        metrics: BrokerMetrics,
        local_proxy: LocalProxy | None = None,
    ) -> None:
        """`local_proxy`: the gRPC face of a broker that has one."""
        self.settings = settings
        self.address = address
        self.services = services
        self.master_services = master_services
        self.acting = acting
        self.registrar = registrar
        self.replication = replication
        self.listeners = listeners
        self.metrics = metrics
        self._local_proxy = local_proxy
        self._supervisor = supervisor
        self._is_loaded = False

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return self.address.port

    async def start(self) -> Ready:
        """Load, listen and register; return the facts to announce. Raises StartError."""
        await self.start_alone()
        await self._register()
        proxy = self._local_proxy
        return Ready(
            name=self.settings.broker_name,
            address=str(self.address),
            namesrv=";".join(self.settings.name_server_addresses),
            route_held_by=self.registrar.conflicts,
            grpc=None if proxy is None else await proxy.start(self._supervisor),
            metrics=self.metrics.address,
        )

    async def start_alone(self) -> None:
        """Load and listen, known to no name server. Raises StartError."""
        await self._load()
        await self._start_tasks()
        self._is_loaded = True
        await self.listeners.start()
        await self.metrics.start()

    async def stop(self) -> None:
        """Shut down gracefully: answer the requests under way, leave all state on disk. Raises OSError."""
        await self.replication.keep_in_sync_set(self._supervisor)
        self.listeners.stop_accepting()
        await self._unregister()
        ending = self._end_local_proxy()
        self.services.pulls.release_all()
        self.services.pops.release_all()
        await ending
        await self.listeners.drain()
        await self.listeners.stop()
        await self.acting.stop_tasks(self._supervisor)
        await self.replication.stop(self._supervisor)
        self.services.pulls.cold_reads.stop()
        await self.metrics.stop()
        await self._stop_services()

    def _end_local_proxy(self) -> asyncio.Future[None]:
        """Begin to stop the gRPC face: its calls end with the held pops, and none begins anew."""
        if self._local_proxy is None:
            ended = asyncio.get_running_loop().create_future()
            ended.set_result(None)
            return ended
        return asyncio.ensure_future(self._local_proxy.stop(self._supervisor))

    # --- start ---

    async def _load(self) -> None:
        """Open the store and load the state of every service. Raises StartError."""
        services = self.services
        try:
            # Opening the store asks for the queue types of topics.
            await asyncio.to_thread(services.topics.load)
            await services.storage.open()
            await asyncio.to_thread(make_folder, self.settings.config_dir)
            for load in (
                services.access.load,
                services.migration.load,
                services.groups.load,
                services.offsets.load,
                services.filters.load,
                services.pops.modes_file.load,
                services.delivery.load,
                services.timers.load,
                self.replication.load,
            ):
                await asyncio.to_thread(load)
        except OSError as error:
            folder, advice = self.settings.store_path_root_dir, _ADVICE.get(error.errno or 0, "")
            raise StartError(f"the store in {folder} cannot be opened: {error}{advice}") from error
        except (StoreError, ConfigFileError) as error:
            raise StartError(str(error)) from error
        services.access.start(services.migration.apply)
        services.topics.start()
        if self.replication.elected_epoch is not None:
            services.topics.table.elected(self.replication.elected_epoch)
        services.groups.start()
        services.filters.start(
            services.storage.store.last_timestamp_ms,
            after_clean_stop=services.storage.store.stopped_cleanly,
        )
        if not self.settings.is_replica:
            await self._create_new_topics()

    async def _create_new_topics(self) -> None:
        """Create the topics that a former replica had not taken over from its master yet."""
        topics, store = self.services.topics, self.services.storage.store
        try:
            await create_after_promotion(self.settings.config_dir, topics, store)
        except OSError as error:
            raise StartError(f"the topics of the former master cannot be written: {error}") from error

    async def _start_tasks(self) -> None:
        """Start the tasks of every broker, and those of a master. Raises StartError."""
        services, supervisor = self.services, self._supervisor
        self.listeners.start_tasks(supervisor)
        services.storage.start_tasks(supervisor)
        services.clients.start_tasks(supervisor)
        services.filters.start_tasks(supervisor)
        services.offsets.start_tasks(supervisor)
        services.pulls.start_tasks(supervisor)
        services.pops.start_tasks(supervisor)
        services.delivery.start_tasks(supervisor)
        services.timers.start_tasks(supervisor)
        if not self.settings.is_replica:
            await self.acting.prepare_master()
            try:
                await self.master_services.start()
            except MasterServicesError as error:
                raise StartError(str(error)) from error
        self.replication.start_tasks(supervisor)
        self.acting.start_tasks(supervisor)
        supervisor.every("statistics", SAMPLE_SECONDS, services.statistics.sample)

    async def _register(self) -> None:
        settings, supervisor, registrar = self.settings, self._supervisor, self.registrar
        if settings.enable_slave_acting_master:
            heartbeat_seconds = settings.broker_heartbeat_interval_ms / 1000
            supervisor.every("broker heartbeat", heartbeat_seconds, registrar.heartbeat)
        name_servers = ";".join(settings.name_server_addresses)
        if not name_servers:
            log.warning("no name server is set (-n or namesrvAddr): clients will not find this broker")
            return
        supervisor.start("registration", registrar.run, on_death=OnDeath.RESTART)
        wait_seconds = settings.ready_wait_ms / 1000
        if not await registrar.wait_registered(wait_seconds):
            log.warning(
                "not registered within %.1f s: no name server has accepted this broker; it serves and goes "
                "on trying name_servers=%s",
                wait_seconds,
                name_servers,
            )

    # --- stop ---

    async def _unregister(self) -> None:
        await self._supervisor.cancel("registration")
        await self.registrar.stop()

    async def _stop_services(self) -> None:
        """Stop each service, the highest first; a file that cannot be written keeps no other from closing.

        Some state may only be written up to the part of the commit log that has been flushed. It is written
        after the store is closed.
        """
        services, supervisor = self.services, self._supervisor
        ran = self.master_services.are_running
        await self.master_services.halt()
        if self._is_loaded:
            services.offsets.flusher.flush()
        files = (
            services.topics.file,
            services.topics.mappings_file,
            services.groups.file,
            services.offsets.file,
            services.filters.file,
        )
        closing = [
            services.access.close(),
            services.pops.close(),
            services.transactions.close(),
            *[file.close() for file in files],
        ]
        problems = await asyncio.gather(*closing, return_exceptions=True)
        await services.timers.stop_tasks(supervisor)
        await services.storage.close()
        await services.escape.stop()
        if self._is_loaded:
            await self.master_services.close(ran=ran)
        for problem in problems:
            if problem is not None:
                raise problem
