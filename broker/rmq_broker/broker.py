"""The composition root: builds and wires the broker's parts, starts and stops them in order, nothing else."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
import socket
import time

from rmq_remoting.connection import Connection, ConnectionSettings
from rmq_remoting.daemon.configuration import Change, Configuration
from rmq_remoting.daemon.lifecycle import StartError
from rmq_remoting.daemon.remoting_metrics import RemotingCollector
from rmq_remoting.daemon.tasks import OnDeath, TaskSupervisor
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.message_ids import UniqueKeyGenerator
from rmq_remoting.server import RemotingServer

from .clients.consumers import ConsumerTable
from .clients.housekeeping import SCAN_SECONDS, ClientHousekeeping
from .clients.notifications import MemberChangeNotifier
from .clients.producers import ProducerTable
from .clients.queue_locks import SWEEP_SECONDS, QueueLocks
from .config import BrokerRole, BrokerSettings
from .delivery.cold_pulls import ColdPulls
from .delivery.delay_offsets import LOOK_SECONDS, DelayOffsetKeeper, DelayOffsets
from .delivery.delayed_messages import DelayedMessages
from .delivery.held_pulls import HeldPulls
from .delivery.message_writer import MessageWriter
from .delivery.retries import Retries
from .delivery.waiting_requests import TICK_SECONDS
from .delivery_metrics import DeliveryCollector
from .filtering.bit_maps import BitMaps
from .filtering.expressions import Expressions
from .filtering.filter_table import SWEEP_FILTERS_SECONDS, ConsumerFilterTable
from .filtering.message_filters import MessageFilters
from .groups.table import SubscriptionGroupTable
from .metrics import BrokerCollector, BrokerMetrics, Observed
from .offsets.broadcast import SCAN_SECONDS as BROADCAST_SCAN_SECONDS
from .offsets.broadcast import BroadcastOffsets
from .offsets.flusher import OffsetFlusher
from .offsets.table import ConsumerOffsetTable
from .persistence import ConfigFile, ConfigFileError
from .pop.metrics import PopCollector
from .pop.routes import QueueRoutes
from .pop.service import PopService
from .processor_table import Processors, Tiers, pull_rows, register_all, table
from .processors.admin.broker import BrokerAdminProcessor
from .processors.admin.cleaning import CleaningProcessor
from .processors.admin.clients import ConnectionAdminProcessor
from .processors.admin.consume_progress import ConsumeProgress
from .processors.admin.consume_stats import ConsumeStatsProcessor
from .processors.admin.delays import DelayAdminProcessor
from .processors.admin.groups import GroupAdminProcessor
from .processors.admin.offset_reset import ClientSideReset, OffsetResetProcessor, ServerSideReset
from .processors.admin.offsets import OffsetAdminProcessor, OffsetCloneProcessor
from .processors.admin.queue_view import QueueViewProcessor
from .processors.admin.relays import ConsumerRelayProcessor
from .processors.admin.reset_targets import ResetTargets
from .processors.admin.stats_data import StatsDataProcessor
from .processors.admin.topic_stats import TopicStatsProcessor
from .processors.admin.topics import TopicAdminProcessor
from .processors.client import ClientProcessor
from .processors.consumer import ConsumerOffsetProcessor
from .processors.locks import QueueLockProcessor
from .processors.offsets import QueueOffsetProcessor
from .processors.pop_processors import PopProcessors
from .processors.pull import PullProcessor
from .processors.query import QueryProcessor
from .processors.send import SendProcessor
from .processors.send_back import SendBackProcessor
from .processors.send_later import LaterSends
from .processors.send_target import TargetChecker
from .registration import BrokerIdentity, Registrar
from .runtime_info import RuntimeInfo
from .settings_version import SettingsVersion
from .statistics import SAMPLE_SECONDS, BrokerStatistics
from .store.append import Arrival
from .store.cleanup import Cleaner
from .store.disk_space import DiskSpace
from .store.errors import StoreError
from .store.log.record import pack_host
from .store.message_store import MessageStore
from .store.queues.consume_queue import ConsumeQueue
from .store.recovery import StopKind
from .store_metrics import StoreCollector
from .topics.deletion import TopicDeletion
from .topics.table import TopicTable
from .topics.unused import UnusedTopics

log = logging.getLogger("rmq.broker")

_HOLD_CHECK_SECONDS = 5.0
# How long a stop waits for answers that are under way.
_ANSWER_SECONDS = 3.0
_ANSWER_POLL_SECONDS = 0.005


def now_ms() -> int:
    """Milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


class Broker:
    """One broker in the running loop."""

    def __init__(self, configuration: Configuration[BrokerSettings], supervisor: TaskSupervisor) -> None:
        settings = self.settings = configuration.settings
        self._configuration = configuration
        self._supervisor = supervisor
        self._serving = False
        self._opening: asyncio.Future[None] | None = None

        # What the broker knows.
        self.topics = TopicTable(settings, settings.broker_cluster_name, settings.broker_name, now_ms)
        self.groups = SubscriptionGroupTable(settings, now_ms)
        self.offsets = ConsumerOffsetTable(now_ms)
        self.consumers = ConsumerTable()
        self.producers = ProducerTable()
        expressions = Expressions(settings)
        self.consumer_filters = ConsumerFilterTable(settings, expressions, now_ms)
        self.filters = MessageFilters(settings, expressions, self.consumer_filters)
        self.consumers.on_subscriptions(self.consumer_filters.register)
        self.consumers.on_change(self.consumer_filters.members_changed)
        self.queue_locks = QueueLocks(time.monotonic)
        self.statistics = BrokerStatistics(self.topics.system_topics, now_ms)
        self.store = MessageStore(settings, settings, settings, is_batch=self.topics.stores_batches)
        levels = settings.delay_levels
        self.writer = MessageWriter(
            self.store, self.statistics, levels, append_crc=settings.append_properties_crc
        )
        self.retries = Retries(self.groups, self.topics, levels, self.queue_locks.has_holder)
        self.delay_offsets = DelayOffsets(now_ms)
        self.delayed = DelayedMessages(self.store, self.writer, self.delay_offsets, self.statistics, now_ms)
        self._delay_file = ConfigFile(settings.config_dir / "delayOffset.json", self.delay_offsets)
        self._delay_keeper = DelayOffsetKeeper(
            self.delay_offsets, self.store.commit_log, self._delay_file, settings
        )
        self.disk = DiskSpace(settings, self.store.health)
        self.cleaner = Cleaner(
            self.store.commit_log, self.store.queues, (self.store.index,), self.disk, settings
        )
        self._broadcast_offsets = BroadcastOffsets(self.offsets, self.consumers, self.store, settings, now_ms)
        self.store.judge.bit_map_of = BitMaps(settings, self.consumer_filters).of
        self.held_pulls = HeldPulls(time.monotonic)
        self.store.appender.on_arrival = self.held_pulls.arrived
        self.topics.on_change(lambda change: self.held_pulls.topics_removed(change.removed))
        self._files = {
            name: ConfigFile(settings.config_dir / file_name, state)
            for name, file_name, state in (
                ("topics", "topics.json", self.topics),
                ("groups", "subscriptionGroup.json", self.groups),
                ("offsets", "consumerOffset.json", self.offsets),
                ("filters", "consumerFilter.json", self.consumer_filters),
            )
        }
        self._offset_flusher = OffsetFlusher(self.offsets, self._files["offsets"], settings)

        # What clients talk to.
        self._housekeeping = ClientHousekeeping(self.consumers, self.producers, settings, now_ms)
        self._notifier = MemberChangeNotifier(self.groups, settings)
        self.consumers.on_change(self._notifier.changed)
        self.dispatcher = Dispatcher()
        self._fast_dispatcher = Dispatcher()
        self.server = self._listener(self.dispatcher)
        self.fast_server = self._listener(self._fast_dispatcher)
        self._settings_version = SettingsVersion(now_ms)
        configuration.on_change(self._settings_version.changed)
        configuration.on_change(self._settings_changed)
        self.registrar: Registrar | None = None
        self._cold_pulls: ColdPulls | None = None
        self.pops: PopService | None = None
        self.metrics = self._metrics()

    # --- life ---

    async def start(self) -> str:
        """Open the store, listen, register; what the ready line says. Raises StartError."""
        settings = self.settings
        await self._open_store()
        port = self._bind()
        address = f"{settings.broker_ip1}:{port}"
        self.wire(address, port, await _resolve(settings.broker_ip1))
        await self._load_pops()
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
        if self._cold_pulls is not None:
            self._cold_pulls.stop()
        await self.metrics.stop()
        if self._serving:
            await self._supervisor.cancel("pop revival")
            if self.pops is not None:
                await self.pops.stop()
            self._offset_flusher.flush()
        closed = [file.close() for file in self._files.values()]
        problems = await asyncio.gather(*closed, return_exceptions=True)
        await self._supervisor.cancel("delayed messages")
        await self._close_store()
        if self._serving:
            await self._delay_keeper.close(all_is_flushed=self.store.all_is_flushed)
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
            await loop.run_in_executor(None, self._files["topics"].load)
            self._opening = asyncio.ensure_future(loop.run_in_executor(None, self.store.open))
            await asyncio.shield(self._opening)
            self.settings.config_dir.mkdir(parents=True, exist_ok=True)
            for name in ("groups", "offsets", "filters"):
                await loop.run_in_executor(None, self._files[name].load)
            await loop.run_in_executor(None, self._delay_file.load)
            self.delayed.correct_offsets()
        except OSError as error:
            folder = self.settings.store_path_root_dir
            advice = "; make room on its disk" if error.errno == errno.ENOSPC else ""
            raise StartError(f"the store in {folder} cannot be opened: {error}{advice}") from error
        except (StoreError, ConfigFileError) as error:
            raise StartError(str(error)) from error
        self.topics.on_change(lambda change: self._files["topics"].changed())
        self.groups.on_change(self._files["groups"].changed)
        self.consumer_filters.on_change(self._files["filters"].changed)
        if self.store.recovery is None or self.store.recovery.stop is not StopKind.CLEAN:
            self.consumer_filters.distrust_bit_maps()
        self.topics.ensure_system_topics()

    async def _load_pops(self) -> None:
        """Find out what POP consumers have in their hands."""
        assert self.pops is not None
        try:
            await self.pops.load()
            # From the first message on it is known from where the journal counts.
            await self._offset_flusher.save()
        except (OSError, StoreError, ConfigFileError) as error:
            raise StartError(f"what was popped and not acknowledged cannot be read: {error}") from error

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

    def wire(self, address: str, port: int, store_ip: str) -> None:
        """Build what has to know the broker's address, and the processor table."""
        settings = self.settings
        identity = BrokerIdentity(
            settings.broker_cluster_name,
            settings.broker_name,
            settings.broker_id,
            address,
            f"{settings.broker_ip2}:{settings.ha_listen_port or port + 1}",
        )
        self.registrar = Registrar(identity, settings, settings, self.topics)
        keys = UniqueKeyGenerator(store_ip, os.getpid(), random.getrandbits(32), now_ms)
        deletion = TopicDeletion(self.topics, self.offsets, self.store, self.statistics)
        info = RuntimeInfo(
            self.statistics, self.store, self.disk, self.dispatcher, settings, self.delayed.positions
        )
        progress = ConsumeProgress(self.store, self.offsets, self.statistics, settings.broker_name, now_ms)
        tiers = Tiers.of(settings)
        self._cold_pulls = ColdPulls(tiers.pull_cold)
        self.pops = PopService(
            settings,
            self.topics,
            self.groups,
            self.offsets,
            self.store,
            self.statistics,
            self.writer,
            pack_host(store_ip, port),
            now_ms,
        )
        self.store.appender.on_arrival = _both(self.held_pulls.arrived, self.pops.arrived)
        name_servers = settings.name_server_addresses
        routes = QueueRoutes(
            settings,
            self.registrar.client,
            name_servers,
            self.topics,
            settings.broker_name,
            time.monotonic,
        )
        processors = Processors(
            send=SendProcessor(
                settings,
                TargetChecker(settings, self.topics, now_ms),
                self.store,
                self.statistics,
                (store_ip, port),
                keys.next_key,
                LaterSends(self.writer, self.retries),
            ),
            send_back=SendBackProcessor(
                settings,
                self.retries,
                self.writer,
                self.store,
                pack_host(store_ip, port),
                self._cold_pulls,
            ),
            delay_admin=DelayAdminProcessor(self.delay_offsets),
            pops=PopProcessors.of(
                settings,
                self.pops,
                self.topics,
                self.groups,
                self.consumers,
                self.store,
                self._cold_pulls,
                self.filters,
                routes,
                now_ms,
            ),
            pull=PullProcessor(
                settings,
                self.topics,
                self.groups,
                self.consumers,
                self.offsets,
                self.filters,
                self._broadcast_offsets,
                self.store,
                self.held_pulls,
                self._cold_pulls,
                self.statistics,
            ),
            client=ClientProcessor(
                self.consumers, self.producers, self.groups, self.topics, self.filters, settings, now_ms
            ),
            consumer_offset=ConsumerOffsetProcessor(self.offsets, self.groups, self.topics, self.store),
            queue_offset=QueueOffsetProcessor(self.store),
            topic_admin=TopicAdminProcessor(self.topics, deletion, settings, self._settle_topics),
            query=QueryProcessor(self.store, settings),
            queue_view=QueueViewProcessor(self.store, self.consumers, self.consumer_filters),
            topic_stats=TopicStatsProcessor(self.topics, self.store, self.statistics, settings.broker_name),
            consume_stats=ConsumeStatsProcessor(
                progress, self.topics, self.groups, self.offsets, self.consumers, address
            ),
            stats_data=StatsDataProcessor(self.statistics, settings.broker_cluster_name, now_ms),
            group_admin=GroupAdminProcessor(
                self.groups, self.offsets, self.statistics, self._files["groups"].save
            ),
            connection_admin=ConnectionAdminProcessor(self.consumers, self.producers, self.offsets, address),
            offset_admin=OffsetAdminProcessor(self.offsets, self.store.min_offset),
            offset_clone=OffsetCloneProcessor(
                self.offsets, self.groups, self.topics, self.consumers, self._offset_flusher.save
            ),
            offset_reset=OffsetResetProcessor(
                ResetTargets(self.topics, self.store, settings.broker_name),
                ServerSideReset(self.offsets, self.groups, self._look_again, self._offset_flusher.save),
                ClientSideReset(self.offsets, self.consumers),
                settings,
            ),
            relay=ConsumerRelayProcessor(
                self.consumers, self.groups, self.topics, self.store.record_at, settings.broker_name
            ),
            locks=QueueLockProcessor(self.queue_locks, self.groups, self.topics, settings.broker_name),
            cleaning=CleaningProcessor(
                self.cleaner,
                UnusedTopics(self.topics, self.store.queues, deletion, self.store.min_phy_offset),
            ),
            broker_admin=BrokerAdminProcessor(self._configuration, self._settings_version, info),
        )
        self._configuration.on_change(processors.send.settings_changed)
        rows = table(processors, tiers)
        register_all(self.dispatcher, [*rows, *pull_rows(processors, tiers)])
        self.dispatcher.add_tier(tiers.pull_cold)
        register_all(self._fast_dispatcher, rows)

    def _start_tasks(self) -> None:
        supervisor, settings = self._supervisor, self.settings
        supervisor.every("held pulls", TICK_SECONDS, self.held_pulls.expire)
        assert self.pops is not None
        supervisor.every("pops", TICK_SECONDS, self.pops.tick)
        supervisor.start("pop revival", self.pops.revival.run, on_death=OnDeath.RESTART)
        supervisor.every("pop order", self._offset_flusher.period_seconds, self.pops.flush_orders)
        supervisor.every("check held pulls", _HOLD_CHECK_SECONDS, self.held_pulls.check_all)
        supervisor.every("client expiry", SCAN_SECONDS, self._housekeeping.scan)
        supervisor.every("broadcast offsets", BROADCAST_SCAN_SECONDS, self._broadcast_offsets.scan)
        supervisor.every("queue locks", SWEEP_SECONDS, self.queue_locks.forget_expired)
        supervisor.every("consumer filters", SWEEP_FILTERS_SECONDS, self.consumer_filters.forget_dead)
        if settings.broker_role is not BrokerRole.SLAVE:
            supervisor.every("delayed messages", self.delayed.pause_seconds, self.delayed.deliver_due)
        supervisor.every("delay offsets", LOOK_SECONDS, self._delay_keeper.look)
        supervisor.every("write delay offsets", self._delay_keeper.period_seconds, self._delay_keeper.write)
        supervisor.start("cleaning", self.cleaner.run)
        supervisor.every("statistics", SAMPLE_SECONDS, self.statistics.sample)
        supervisor.every(
            "consumer offsets",
            self._offset_flusher.period_seconds,
            self._offset_flusher.flush,
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
            dispatcher=self.dispatcher,
        )
        listeners = {"main": self.server, "fast": self.fast_server}
        collectors = (
            BrokerCollector(observed),
            StoreCollector(self.store, self.disk, self.cleaner.statistics, now_ms),
            DeliveryCollector(self.delayed, self.retries, self.topics.system_topics),
            PopCollector(lambda: self.pops),
            RemotingCollector(self.dispatcher, listeners),
        )
        return BrokerMetrics(self.settings, self._supervisor, collectors)

    def _connection_closed(self, connection: Connection) -> None:
        self.held_pulls.connection_closed(connection)
        if self.pops is not None:
            self.pops.connection_closed(connection)
        self._housekeeping.connection_closed(connection)

    def _look_again(self, topic: str, queue_id: int) -> None:
        """Have the pulls that are held for a queue looked at: there is news besides messages."""
        queue = self.store.queues.get(topic, queue_id)
        if queue is not None:
            self.held_pulls.arrived(queue)

    async def _settle_topics(self) -> None:
        assert self.registrar is not None
        await asyncio.gather(self._files["topics"].save(), self.registrar.announced())

    def _settings_changed(self, change: Change) -> None:
        if "brokerPermission" in change:
            self.topics.next_data_version()
        if "autoCreateTopicEnable" in change:
            self.topics.ensure_system_topics()


def _both(first: Arrival, second: Arrival) -> Arrival:
    """Tell both of each message that arrives."""

    def arrived(queue: ConsumeQueue) -> None:
        first(queue)
        second(queue)

    return arrived


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
    broker.wire("127.0.0.1:0", 0, "127.0.0.1")
    broker.dispatcher.stop()
    return broker.dispatcher
