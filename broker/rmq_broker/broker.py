"""The life of a broker: load, listen, register, serve; and everything in reverse at the stop."""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import TYPE_CHECKING, Final

from rmq_remoting.daemon.atomic_file import make_folder
from rmq_remoting.daemon.config_file import ConfigFileError
from rmq_remoting.daemon.lifecycle import StartError
from rmq_remoting.daemon.tasks import OnDeath

from .static_topics.cleaning import CLEANING_SECONDS
from .statistics.broker_statistics import SAMPLE_SECONDS
from .store.api import StoreError

if TYPE_CHECKING:
    from rmq_remoting.daemon.tasks import TaskSupervisor

    from .monitoring.broker_metrics import BrokerMetrics
    from .network.address import BrokerAddress
    from .network.listeners import Listeners
    from .registration.registrar import Registrar
    from .replication.service import ReplicationService
    from .services import Services
    from .settings.broker import BrokerSettings
    from .static_topics.cleaning import MappingCleaner

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
        registrar: Registrar,
        replication: ReplicationService,
        listeners: Listeners,
        metrics: BrokerMetrics,
        mapping_cleaner: MappingCleaner,
    ) -> None:
        self.settings = settings
        self.address = address
        self.services = services
        self.registrar = registrar
        self.replication = replication
        self.listeners = listeners
        self.metrics = metrics
        self.mapping_cleaner = mapping_cleaner
        self._supervisor = supervisor
        self._is_loaded = False

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return self.address.port

    async def start(self) -> str:
        """Load, listen and register; return the text of the ready line. Raises StartError."""
        await self._load()
        self._start_tasks()
        await self.listeners.start()
        await self.metrics.start()
        return await self._register()

    async def stop(self) -> None:
        """Shut down gracefully: answer the requests under way, leave all state on disk. Raises OSError."""
        self.listeners.stop_accepting()
        await self._unregister()
        self.services.pulls.held_pulls.release_all()
        self.services.pops.release_all()
        await self.listeners.drain()
        await self.listeners.stop()
        await self.replication.stop(self._supervisor)
        self.services.pulls.cold_reads.stop()
        await self.metrics.stop()
        await self._stop_services()

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
        services.groups.start()
        services.filters.start(
            services.storage.store.last_timestamp_ms,
            after_clean_stop=services.storage.store.stopped_cleanly,
        )
        if not self.settings.is_replica:
            await self._load_deliveries()
        self._is_loaded = True

    async def _load_deliveries(self) -> None:
        """Load popped messages and prepared transactions in flight. A replica leaves them to its master."""
        services = self.services
        try:
            await services.pops.load()
            # With the first message, the offset in the journal that POP counts from must be on the disk.
            await services.offsets.flusher.save()
        except (OSError, StoreError, ConfigFileError) as error:
            raise StartError(f"unacknowledged popped messages cannot be read: {error}") from error
        try:
            await services.transactions.load()
        except (OSError, StoreError, ConfigFileError) as error:
            raise StartError(f"transactions under way cannot be read: {error}") from error

    def _start_tasks(self) -> None:
        services, supervisor = self.services, self._supervisor
        # A replica gets delayed and timed messages from its master when they are due.
        delivers = not self.settings.is_replica
        self.listeners.start_tasks(supervisor)
        services.storage.start_tasks(supervisor)
        services.clients.start_tasks(supervisor)
        services.filters.start_tasks(supervisor)
        services.offsets.start_tasks(supervisor)
        services.pulls.start_tasks(supervisor)
        services.delivery.start_tasks(supervisor, delivers=delivers)
        services.timers.start_tasks(supervisor, delivers=delivers)
        if delivers:
            services.pops.start_tasks(supervisor)
            services.transactions.start_tasks(supervisor)
            supervisor.every("clean mappings", CLEANING_SECONDS, self.mapping_cleaner.clean_in_time)
        self.replication.start_tasks(supervisor)
        supervisor.every("statistics", SAMPLE_SECONDS, services.statistics.sample)

    async def _register(self) -> str:
        settings, supervisor, registrar = self.settings, self._supervisor, self.registrar
        if settings.enable_slave_acting_master:
            heartbeat_seconds = settings.broker_heartbeat_interval_ms / 1000
            supervisor.every("broker heartbeat", heartbeat_seconds, registrar.heartbeat)
        name_servers = ";".join(settings.name_server_addresses)
        if not name_servers:
            log.warning("no name server is set (-n or namesrvAddr): clients will not find this broker")
            return f"{settings.broker_name} {self.address} namesrv none"
        supervisor.start("registration", registrar.run, on_death=OnDeath.RESTART)
        wait_seconds = settings.ready_wait_ms / 1000
        if not await registrar.wait_registered(wait_seconds):
            log.warning(
                "not registered within %.1f s: no name server has accepted this broker; it serves and goes "
                "on trying name_servers=%s",
                wait_seconds,
                name_servers,
            )
        conflict = "".join(f" route-held-by {holder}" for holder in registrar.conflicts)
        return f"{settings.broker_name} {self.address} namesrv {name_servers}{conflict}"

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
        delivers = self._is_loaded and not self.settings.is_replica
        if delivers:
            await services.pops.stop_tasks(supervisor)
            await services.pops.stop()
            await services.transactions.stop_tasks(supervisor)
            await services.transactions.stop()
        if self._is_loaded:
            services.offsets.flusher.flush()
        files = (
            services.topics.file,
            services.topics.mappings_file,
            services.groups.file,
            services.offsets.file,
            services.filters.file,
        )
        closing = [services.access.close(), *[file.close() for file in files]]
        problems = await asyncio.gather(*closing, return_exceptions=True)
        await services.delivery.stop_tasks(supervisor)
        await services.timers.stop_tasks(supervisor)
        await services.storage.close()
        if delivers:
            await self._close_behind_store()
        for problem in problems:
            if problem is not None:
                raise problem

    async def _close_behind_store(self) -> None:
        services = self.services
        all_is_flushed = services.storage.store.all_is_flushed
        await services.delivery.close(all_is_flushed=all_is_flushed)
        await services.timers.close(all_is_flushed=all_is_flushed)
        pops_moved = services.pops.finish(all_is_flushed=all_is_flushed)
        transactions_moved = services.transactions.finish(all_is_flushed=all_is_flushed)
        if pops_moved or transactions_moved:
            await services.offsets.flusher.close()
