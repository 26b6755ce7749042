"""The broker's life: its parts start, listen, register, and stop, in order."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from typing import TYPE_CHECKING

from rmq_remoting.connection import ConnectionSettings
from rmq_remoting.daemon.lifecycle import StartError
from rmq_remoting.daemon.remoting_metrics import RemotingCollector
from rmq_remoting.daemon.tasks import OnDeath, TaskSupervisor
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.server import RemotingServer

from .clients.housekeeping import SCAN_SECONDS
from .clients.queue_locks import SWEEP_SECONDS
from .clock import now_ms
from .delivery.delay_offsets import LOOK_SECONDS
from .delivery.waiting_requests import TICK_SECONDS
from .filtering.filter_table import SWEEP_FILTERS_SECONDS
from .monitoring.broker_metrics import BrokerCollector, BrokerMetrics, Observed
from .monitoring.delivery_metrics import DeliveryCollector
from .monitoring.store_metrics import StoreCollector
from .offsets.broadcast import SCAN_SECONDS as BROADCAST_SCAN_SECONDS
from .parts import BrokerParts
from .persistence.config_file import ConfigFileError
from .pop.metrics import PopCollector
from .processor_table import pull_rows, register_all, table
from .settings.broker import BrokerRole
from .statistics.broker_statistics import SAMPLE_SECONDS
from .store.api import StopKind, StoreError
from .timers.backlog import CLEAN_SECONDS, COUNT_SECONDS
from .timers.metrics import TimerCollector
from .transactions.metrics import TransactionCollector
from .wiring import Place, wire

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection
    from rmq_remoting.daemon.configuration import Change, Configuration

    from .delivery.cold_reads import ColdReads
    from .pop.service import PopService
    from .registration.registrar import Registrar
    from .settings.broker import BrokerSettings
    from .transactions.service import TransactionService

log = logging.getLogger("rmq.broker")

_HOLD_CHECK_SECONDS = 5.0
# How long a stop waits for answers that are under way.
_ANSWER_SECONDS = 3.0
_ANSWER_POLL_SECONDS = 0.005


class Broker(BrokerParts):
    """One broker in the running loop: its parts, and who answers for them."""

    def __init__(self, configuration: Configuration[BrokerSettings], supervisor: TaskSupervisor) -> None:
        super().__init__(configuration.settings)
        self._configuration = configuration
        self._supervisor = supervisor
        self._serving = False
        self._opening: asyncio.Future[None] | None = None
        self.dispatcher = Dispatcher()
        self._fast_dispatcher = Dispatcher()
        self.server = self._listener(self.dispatcher)
        self.fast_server = self._listener(self._fast_dispatcher)
        configuration.on_change(self._settings_changed)
        # Known with the address, see `wire`.
        self.registrar: Registrar | None = None
        self._cold_reads: ColdReads | None = None
        self.pops: PopService | None = None
        self.transactions: TransactionService | None = None
        self.metrics = self._metrics()

    # --- life ---

    async def start(self) -> str:
        """Open the store, listen, register; what the ready line says. Raises StartError."""
        settings = self.settings
        await self._open_store()
        port = self._bind()
        address = f"{settings.broker_ip1}:{port}"
        self.wire(Place(address, port, await _resolve(settings.broker_ip1)))
        await self._load_pops()
        await self._load_transactions()
        self.store.start()
        self._start_tasks()
        await self.server.start(settings.bind_address, settings.listen_port)
        await self.fast_server.start(settings.bind_address, settings.fast_listen_port)
        self._serving = True
        await self.metrics.start()
        return await self._register(address)

    async def stop(self) -> None:
        """Take no more, answer what is in flight, leave everything on disk."""
        self.server.stop_accepting()
        self.fast_server.stop_accepting()
        if self.registrar is not None:
            await self._supervisor.cancel("registration")
            await self.registrar.stop()
        self.held_pulls.release_all()
        if self.pops is not None:
            self.pops.release_all()
        await self._answers_given()
        await self.server.stop()
        await self.fast_server.stop()
        self.dispatcher.stop()
        self._fast_dispatcher.stop()
        if self._cold_reads is not None:
            self._cold_reads.stop()
        await self.metrics.stop()
        if self._serving:
            await self._supervisor.cancel("pop revival")
            if self.pops is not None:
                await self.pops.stop()
            await self._supervisor.cancel("transaction checks")
            await self._supervisor.cancel("transaction progress")
            if self.transactions is not None:
                await self.transactions.stop()
            self.offset_flusher.flush()
        closed = [file.close() for file in self.files.values()]
        problems = await asyncio.gather(*closed, return_exceptions=True)
        await self._supervisor.cancel("delayed messages")
        await self._supervisor.cancel("timed messages")
        await self._supervisor.cancel("write timers")
        await self._close_store()
        if self._serving:
            await self.delay_keeper.close(all_is_flushed=self.store.all_is_flushed)
            await self.timers.close(all_is_flushed=self.store.all_is_flushed)
            if self._finish_offsets():
                await self.offset_flusher.close()  # a second time
        for problem in problems:
            if problem is not None:
                raise problem

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return self.server.port

    # --- steps of the start ---

    async def _open_store(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            # The store asks of what type the topics' queues are.
            await loop.run_in_executor(None, self.files["topics"].load)
            self._opening = asyncio.ensure_future(loop.run_in_executor(None, self.store.open))
            await asyncio.shield(self._opening)
            self.settings.config_dir.mkdir(parents=True, exist_ok=True)
            for name in ("groups", "offsets", "filters"):
                await loop.run_in_executor(None, self.files[name].load)
            await loop.run_in_executor(None, self.delay_file.load)
            self.delayed.correct_offsets()
            await loop.run_in_executor(None, self.timers.load)
        except OSError as error:
            folder = self.settings.store_path_root_dir
            advice = "; make room on its disk" if error.errno == errno.ENOSPC else ""
            raise StartError(f"the store in {folder} cannot be opened: {error}{advice}") from error
        except (StoreError, ConfigFileError) as error:
            raise StartError(str(error)) from error
        self.topics.on_change(lambda change: self.files["topics"].changed())
        self.groups.on_change(self.files["groups"].changed)
        self.consumer_filters.on_change(self.files["filters"].changed)
        self.consumer_filters.stored_until(self.store.appender.last_timestamp_ms)
        if self.store.recovery is None or self.store.recovery.stop is not StopKind.CLEAN:
            self.consumer_filters.distrust_bit_maps()
        self.topics.ensure_system_topics()

    async def _load_pops(self) -> None:
        """Find out what POP consumers have in their hands."""
        assert self.pops is not None
        try:
            await self.pops.load()
            # From the first message on it is known from where the journal counts.
            await self.offset_flusher.save()
        except (OSError, StoreError, ConfigFileError) as error:
            raise StartError(f"what was popped and not acknowledged cannot be read: {error}") from error

    async def _load_transactions(self) -> None:
        """Find out which transactions have not ended."""
        assert self.transactions is not None
        try:
            await self.transactions.load()
        except (OSError, StoreError, ConfigFileError) as error:
            raise StartError(f"transactions that have not ended cannot be read: {error}") from error

    def _bind(self) -> int:
        settings = self.settings
        try:
            port = self.server.bind(settings.bind_address, settings.listen_port)
            fast_port = settings.fast_listen_port if settings.listen_port else 0
            self.fast_server.bind(settings.bind_address, fast_port)
        except OSError as error:
            raise StartError(
                f"cannot listen on {settings.bind_address}:{settings.listen_port} (and, for sends, "
                f"{settings.fast_listen_port}): {error.strerror}. Is another broker running? listenPort "
                "chooses the port"
            ) from error
        return port

    def wire(self, place: Place) -> None:
        """Build what has to know the broker's address, and the processor table."""
        wired = wire(self, place, self._configuration, self.dispatcher)
        self.registrar, self.pops, self._cold_reads = wired.registrar, wired.pops, wired.cold_reads
        self.transactions = wired.transactions
        rows = table(wired.processors, wired.tiers)
        register_all(self.dispatcher, [*rows, *pull_rows(wired.processors, wired.tiers)])
        self.dispatcher.add_tier(wired.tiers.pull_cold)
        register_all(self._fast_dispatcher, rows)

    def _start_tasks(self) -> None:
        supervisor, settings = self._supervisor, self.settings
        supervisor.every("held pulls", TICK_SECONDS, self.held_pulls.expire)
        assert self.pops is not None
        supervisor.every("pops", TICK_SECONDS, self.pops.tick)
        supervisor.start("pop revival", self.pops.revival.run, on_death=OnDeath.RESTART)
        supervisor.every("pop order", self.offset_flusher.period_seconds, self.pops.flush_orders)
        assert self.transactions is not None
        self.transactions.start_tasks(supervisor)
        supervisor.every("check held pulls", _HOLD_CHECK_SECONDS, self.held_pulls.check_all)
        supervisor.every("client expiry", SCAN_SECONDS, self.housekeeping.scan)
        supervisor.every("broadcast offsets", BROADCAST_SCAN_SECONDS, self.broadcast_offsets.scan)
        supervisor.every("queue locks", SWEEP_SECONDS, self.queue_locks.forget_expired)
        supervisor.every("consumer filters", SWEEP_FILTERS_SECONDS, self.consumer_filters.forget_dead)
        if settings.broker_role is not BrokerRole.SLAVE:
            supervisor.every("delayed messages", self.delayed.pause_seconds, self.delayed.deliver_due)
            supervisor.every("timed messages", self.timed.pause_seconds, self.timed.deliver_due)
        supervisor.every("write timers", self.timers.flush_seconds, self.timers.flush)
        supervisor.every("clean timer log", CLEAN_SECONDS, self.timers.remove_old_files)
        supervisor.every("count timed messages", COUNT_SECONDS, self.timers.count_by_time)
        supervisor.every("delay offsets", LOOK_SECONDS, self.delay_keeper.look)
        supervisor.every("write delay offsets", self.delay_keeper.period_seconds, self.delay_keeper.write)
        supervisor.start("cleaning", self.cleaner.run)
        supervisor.every("statistics", SAMPLE_SECONDS, self.statistics.sample)
        supervisor.every(
            "consumer offsets",
            self.offset_flusher.period_seconds,
            self.offset_flusher.flush,
        )
        if self.settings.enable_slave_acting_master and self.registrar is not None:
            heartbeat_seconds = self.settings.broker_heartbeat_interval_ms / 1000
            supervisor.every("broker heartbeat", heartbeat_seconds, self.registrar.heartbeat)

    async def _register(self, address: str) -> str:
        settings, registrar = self.settings, self.registrar
        assert registrar is not None
        name_servers = ";".join(settings.name_server_addresses)
        if not name_servers:
            log.warning("no name server is set (-n or namesrvAddr): clients will not find this broker")
            return f"{settings.broker_name} {address} namesrv none"
        self._supervisor.start("registration", registrar.run, on_death=OnDeath.RESTART)
        wait_seconds = settings.ready_wait_ms / 1000
        if not await registrar.wait_registered(wait_seconds):
            log.warning(
                "no name server of %s has answered within %.1f s; the broker serves and goes on trying",
                name_servers,
                wait_seconds,
            )
        return f"{settings.broker_name} {address} namesrv {name_servers}"

    # --- steps of the stop ---

    async def _answers_given(self) -> None:
        """Wait until nothing that was deferred or handed to a pool is under way any more, for a while."""
        # Released pulls and the answers of ended tasks are on their way: they need an iteration of the loop.
        await asyncio.sleep(0)
        deadline = time.monotonic() + _ANSWER_SECONDS
        while any(tier.statistics.waiting for tier in self.dispatcher.tiers()):
            if time.monotonic() > deadline:
                log.warning("some requests are left without an answer")
                return
            await asyncio.sleep(_ANSWER_POLL_SECONDS)

    async def _close_store(self) -> None:
        if self._opening is None:
            return
        await asyncio.wait([self._opening])  # a stop may come in the middle of a long recovery
        if self._opening.exception() is None:
            await self.cleaner.stop()
            await self.store.stop()
        else:
            self.store.close()  # what could not be opened is left as it was found

    def _finish_offsets(self) -> bool:
        """Commit what had to wait for the log to be on the disk; whether any offset is new."""
        services = [service for service in (self.pops, self.transactions) if service is not None]
        return any([service.finish(all_is_flushed=self.store.all_is_flushed) for service in services])

    # --- small things ---

    def _listener(self, dispatcher: Dispatcher) -> RemotingServer:
        settings = self.settings
        return RemotingServer(
            dispatcher,
            settings=ConnectionSettings(
                write_high_bytes=settings.write_high_bytes, write_low_bytes=settings.write_low_bytes
            ),
            idle_seconds=settings.server_channel_max_idle_seconds,
            backlog=settings.server_socket_backlog,
            on_close=self._connection_closed,
        )

    def _metrics(self) -> BrokerMetrics:
        observed = Observed(
            settings=self.settings,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            consumers=self.consumers,
            queue_locks=self.queue_locks,
            producers=self.producers,
            statistics=self.statistics,
            store=self.store,
            held_pulls=self.held_pulls,
            popped=lambda: {} if self.pops is None else self.pops.in_flight.by_group(),
            dispatcher=self.dispatcher,
        )
        listeners = {"main": self.server, "fast": self.fast_server}
        collectors = (
            BrokerCollector(observed),
            StoreCollector(self.store, self.disk, self.cleaner.statistics, now_ms),
            DeliveryCollector(self.delayed, self.statistics, self.topics.system_topics),
            TimerCollector(self.timers),
            PopCollector(lambda: self.pops),
            TransactionCollector(lambda: self.transactions),
            RemotingCollector(self.dispatcher, listeners),
        )
        return BrokerMetrics(self.settings, self._supervisor, collectors)

    def _connection_closed(self, connection: Connection) -> None:
        self.held_pulls.connection_closed(connection)
        if self.pops is not None:
            self.pops.connection_closed(connection)
        self.housekeeping.connection_closed(connection)

    def _settings_changed(self, change: Change) -> None:
        if "brokerPermission" in change:
            self.topics.next_data_version()
        if "autoCreateTopicEnable" in change:
            self.topics.ensure_system_topics()


async def _resolve(host: str) -> str:
    """The IP address that message ids carry: brokerIP1, or what it resolves to."""
    bare = host.strip("[]")
    try:
        infos = await asyncio.get_running_loop().getaddrinfo(bare, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise StartError(f"brokerIP1={host} is no address and cannot be resolved: {error}") from error
    return str(infos[0][4][0])


async def dispatcher_of(configuration: Configuration[BrokerSettings]) -> Dispatcher:
    """The processor table of a broker with these settings; nothing is opened or bound."""
    broker = Broker(configuration, TaskSupervisor(lambda name, error: None))
    broker.wire(Place("127.0.0.1:0", 0, "127.0.0.1"))
    broker.dispatcher.stop()
    return broker.dispatcher
