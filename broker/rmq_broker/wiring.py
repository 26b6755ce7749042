"""Who answers requests: built out of the broker's parts once its address is known."""

from __future__ import annotations

import asyncio
import os
import random
import time
from typing import TYPE_CHECKING, NamedTuple

from rmq_remoting.message_ids import UniqueKeyGenerator

from .clock import now_ms
from .delivery.cold_reads import ColdReads
from .monitoring.runtime_info import RuntimeInfo
from .parts import BrokerParts
from .pop.routes import QueueRoutes
from .pop.service import PopService
from .processor_table import Processors, Tiers
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
from .processors.admin.timers import TimerAdminProcessor
from .processors.admin.topic_stats import TopicStatsProcessor
from .processors.admin.topics import TopicAdminProcessor
from .processors.client import ClientProcessor
from .processors.consumer import ConsumerOffsetProcessor
from .processors.locks import QueueLockProcessor
from .processors.offsets import QueueOffsetProcessor
from .processors.pop_processors import PopProcessors
from .processors.pull import PullProcessor
from .processors.query import QueryProcessor
from .processors.recall import RecallProcessor
from .processors.reply import ReplyProcessor
from .processors.send import SendProcessor
from .processors.send_back import SendBackProcessor
from .processors.send_later import LaterSends
from .processors.send_target import TargetChecker
from .processors.transaction import TransactionProcessor
from .registration.registrar import BrokerIdentity, Registrar
from .settings.version import SettingsVersion
from .store.api import pack_host
from .topics.deletion import TopicDeletion
from .topics.unused import UnusedTopics
from .transactions.service import TransactionService

if TYPE_CHECKING:
    from rmq_remoting.daemon.configuration import Configuration
    from rmq_remoting.dispatch import Dispatcher

    from .settings.broker import BrokerSettings


class Place(NamedTuple):
    """Where clients reach the broker; `store_ip` is the IP address that message ids carry."""

    address: str
    port: int
    store_ip: str

    @property
    def store_host(self) -> bytes:
        """The same as it stands in records."""
        return pack_host(self.store_ip, self.port)


class Wired(NamedTuple):
    """Everybody who takes the broker's address, and the processors of all requests."""

    registrar: Registrar
    pops: PopService
    transactions: TransactionService
    cold_reads: ColdReads
    tiers: Tiers
    processors: Processors


def wire(
    parts: BrokerParts, place: Place, configuration: Configuration[BrokerSettings], dispatcher: Dispatcher
) -> Wired:
    """Build them. What counts as busy in the broker's own figures is what `dispatcher` has in hand."""
    settings = parts.settings
    identity = BrokerIdentity(
        settings.broker_cluster_name,
        settings.broker_name,
        settings.broker_id,
        place.address,
    )
    registrar = Registrar(identity, settings, settings, parts.topics)
    tiers = Tiers.of(settings)
    cold_reads = ColdReads(tiers.pull_cold)
    pops = PopService(
        settings,
        parts.topics,
        parts.groups,
        parts.offsets,
        parts.store,
        parts.statistics,
        parts.writer,
        parts.arrivals,
        place.store_host,
        now_ms,
        parts.timers.entering.told,
    )
    parts.timers.held_from_ms = pops.held_from_ms
    transactions = TransactionService(
        settings,
        parts.topics,
        parts.producers,
        parts.offsets,
        parts.store,
        parts.writer,
        place.store_host,
        now_ms,
    )
    processors = _processors(
        parts, place, configuration, dispatcher, registrar, pops, transactions, cold_reads
    )
    configuration.on_change(processors.send.settings_changed)
    configuration.on_change(processors.pull.settings_changed)
    return Wired(registrar, pops, transactions, cold_reads, tiers, processors)


def _processors(
    parts: BrokerParts,
    place: Place,
    configuration: Configuration[BrokerSettings],
    dispatcher: Dispatcher,
    registrar: Registrar,
    pops: PopService,
    transactions: TransactionService,
    cold_reads: ColdReads,
) -> Processors:
    settings = parts.settings
    settings_version = SettingsVersion(now_ms)
    configuration.on_change(settings_version.changed)
    keys = UniqueKeyGenerator(place.store_ip, os.getpid(), random.getrandbits(32), now_ms)
    deletion = TopicDeletion(parts.topics, parts.offsets, parts.store, parts.statistics)
    info = RuntimeInfo(
        parts.statistics,
        parts.store,
        parts.disk,
        dispatcher,
        settings,
        parts.delayed.positions,
        parts.timers.runtime_info,
    )
    progress = ConsumeProgress(parts.store, parts.offsets, parts.statistics, settings.broker_name, now_ms)
    routes = QueueRoutes(
        settings,
        registrar.client,
        settings.name_server_addresses,
        parts.topics,
        settings.broker_name,
        time.monotonic,
    )

    async def settle_topics() -> None:
        await asyncio.gather(parts.files["topics"].save(), registrar.announced())

    async def save_offsets() -> None:
        # They are not to be ahead of what groups have in their hands.
        await pops.orders_saved()
        await parts.offset_flusher.save()

    return Processors(
        send=SendProcessor(
            settings,
            TargetChecker(settings, parts.topics, now_ms),
            parts.store,
            parts.statistics,
            (place.store_ip, place.port),
            keys.next_key,
            LaterSends(parts.writer, parts.retries, transactions.preparing),
        ),
        send_back=SendBackProcessor(
            settings,
            parts.retries,
            parts.writer,
            parts.store,
            place.store_host,
            cold_reads,
        ),
        transactions=TransactionProcessor(transactions, parts.store, cold_reads),
        reply=ReplyProcessor(
            settings,
            TargetChecker(settings, parts.topics, now_ms),
            parts.producers,
            parts.writer,
            (place.store_ip, place.port),
            place.store_host,
            now_ms,
        ),
        recall=RecallProcessor(settings, parts.topics, parts.store, parts.writer, place.store_host, now_ms),
        delay_admin=DelayAdminProcessor(parts.delay_offsets),
        timer_admin=TimerAdminProcessor(parts.timers),
        pops=PopProcessors.of(
            settings,
            pops,
            parts.topics,
            parts.groups,
            parts.consumers,
            parts.store,
            cold_reads,
            parts.filters,
            routes,
            now_ms,
        ),
        pull=PullProcessor(
            settings,
            parts.topics,
            parts.groups,
            parts.consumers,
            parts.offsets,
            parts.filters,
            parts.broadcast_offsets,
            parts.store,
            parts.held_pulls,
            cold_reads,
            parts.statistics,
        ),
        client=ClientProcessor(
            parts.consumers, parts.producers, parts.groups, parts.topics, parts.filters, settings, now_ms
        ),
        consumer_offset=ConsumerOffsetProcessor(
            parts.offsets, parts.groups, parts.topics, parts.store, parts.first_subscriptions
        ),
        queue_offset=QueueOffsetProcessor(parts.store),
        topic_admin=TopicAdminProcessor(parts.topics, deletion, settings, settle_topics),
        query=QueryProcessor(parts.store, settings),
        queue_view=QueueViewProcessor(parts.store, parts.consumers, parts.consumer_filters),
        topic_stats=TopicStatsProcessor(parts.topics, parts.store, parts.statistics, settings.broker_name),
        consume_stats=ConsumeStatsProcessor(
            progress, parts.topics, parts.groups, parts.offsets, parts.consumers, place.address
        ),
        stats_data=StatsDataProcessor(parts.statistics, settings.broker_cluster_name, now_ms),
        group_admin=GroupAdminProcessor(
            parts.groups, parts.offsets, parts.statistics, parts.files["groups"].save
        ),
        connection_admin=ConnectionAdminProcessor(
            parts.consumers, parts.producers, parts.offsets, place.address
        ),
        offset_admin=OffsetAdminProcessor(parts.offsets, parts.store.min_offset),
        offset_clone=OffsetCloneProcessor(
            parts.offsets, parts.groups, parts.topics, parts.consumers, save_offsets
        ),
        offset_reset=OffsetResetProcessor(
            ResetTargets(parts.topics, parts.store, settings.broker_name),
            ServerSideReset(parts.offsets, parts.groups, parts.look_again, save_offsets),
            ClientSideReset(parts.offsets, parts.consumers),
            settings,
        ),
        relay=ConsumerRelayProcessor(
            parts.consumers, parts.groups, parts.topics, parts.store.record_at, settings.broker_name
        ),
        locks=QueueLockProcessor(parts.queue_locks, parts.groups, parts.topics, settings.broker_name),
        cleaning=CleaningProcessor(
            parts.cleaner,
            UnusedTopics(parts.topics, parts.store.queues, deletion, parts.store.min_phy_offset),
        ),
        broker_admin=BrokerAdminProcessor(configuration, settings_version, info),
    )
