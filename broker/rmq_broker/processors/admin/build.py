"""The processors of admin requests, built out of the broker's services."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmq_remoting.daemon.access.acl_processor import AclAdminProcessor
from rmq_remoting.daemon.access.user_processor import UserAdminProcessor

from ...settings.version import SettingsVersion
from ...topics.deletion import TopicDeletion
from ...topics.unused import UnusedTopics
from .broker import BrokerAdminProcessor
from .cleaning import CleaningProcessor
from .clients import ConnectionAdminProcessor
from .cold_data import ColdDataProcessor
from .consume_progress import ConsumeProgress
from .consume_stats import ConsumeStatsProcessor
from .delays import DelayAdminProcessor
from .groups import GroupAdminProcessor
from .offset_reset import ClientSideReset, OffsetResetProcessor, ServerSideReset
from .offsets import OffsetAdminProcessor, OffsetCloneProcessor
from .pop_records import PopRecordProcessor
from .queue_view import QueueViewProcessor
from .relays import ConsumerRelayProcessor
from .replication import ReplicationAdminProcessor
from .reset_targets import ResetTargets
from .stats_data import StatsDataProcessor
from .timers import TimerAdminProcessor
from .topic_stats import TopicStatsProcessor
from .topics import TopicAdminProcessor

if TYPE_CHECKING:
    from rmq_remoting.daemon.configuration import Configuration

    from ...acting.smallest_broker import SmallestBroker
    from ...clock import ClockMs
    from ...monitoring.runtime_info import RuntimeInfo
    from ...network.address import BrokerAddress
    from ...registration.registrar import Registrar
    from ...replication.service import ReplicationService
    from ...services import Services
    from ...settings.broker import BrokerSettings


@dataclass(frozen=True, slots=True)
class TopicProcessors:
    """Administration of topics, their queues and files."""

    topics: TopicAdminProcessor
    stats: TopicStatsProcessor
    queue_view: QueueViewProcessor
    cleaning: CleaningProcessor


@dataclass(frozen=True, slots=True)
class GroupProcessors:
    """Administration of consumer groups, their offsets and members."""

    groups: GroupAdminProcessor
    consume_stats: ConsumeStatsProcessor
    connections: ConnectionAdminProcessor
    offsets: OffsetAdminProcessor
    offset_clone: OffsetCloneProcessor
    offset_reset: OffsetResetProcessor
    relay: ConsumerRelayProcessor


@dataclass(frozen=True, slots=True)
class AdminProcessors:
    """All processors of admin requests."""

    users: UserAdminProcessor
    acls: AclAdminProcessor
    topics: TopicProcessors
    groups: GroupProcessors
    delays: DelayAdminProcessor
    timers: TimerAdminProcessor
    stats_data: StatsDataProcessor
    cold_data: ColdDataProcessor
    pop_records: PopRecordProcessor
    broker: BrokerAdminProcessor
    replication: ReplicationAdminProcessor


def build_admin_processors(
    configuration: Configuration[BrokerSettings],
    services: Services,
    address: BrokerAddress,
    registrar: Registrar,
    replication: ReplicationService,
    smallest: SmallestBroker,
    runtime_info: RuntimeInfo,
    now_ms: ClockMs,
) -> AdminProcessors:
    """Build the processors of admin requests; topics are created once `registrar` has announced them."""
    settings = configuration.settings
    settings_version = SettingsVersion(now_ms)
    configuration.on_change(settings_version.changed)
    access = services.access.tables
    return AdminProcessors(
        users=UserAdminProcessor(
            access.users, access.acls, access.save, is_authenticated=settings.authentication_enabled
        ),
        acls=AclAdminProcessor(access.users, access.acls, access.save),
        topics=_topic_processors(settings, services, registrar),
        groups=_group_processors(settings, services, address, now_ms),
        delays=DelayAdminProcessor(services.delivery.delay_offsets),
        timers=TimerAdminProcessor(services.timers),
        stats_data=StatsDataProcessor(services.statistics, settings.broker_cluster_name, now_ms),
        cold_data=ColdDataProcessor(services.pulls.cold_groups, configuration),
        pop_records=PopRecordProcessor(),
        broker=BrokerAdminProcessor(configuration, settings_version, runtime_info),
        replication=ReplicationAdminProcessor(
            replication,
            smallest,
            services.storage.store,
            registrar.announcements.identity,
            services.pops.closed,
        ),
    )


def _topic_processors(settings: BrokerSettings, services: Services, registrar: Registrar) -> TopicProcessors:
    topics, store, statistics = services.topics.table, services.storage.store, services.statistics
    deletion = TopicDeletion(topics, services.offsets.table, store, statistics)
    unused = UnusedTopics(topics, store.queues, deletion, store.min_phy_offset)

    async def saved_and_announced() -> None:
        await asyncio.gather(services.topics.save(), registrar.announced())

    async def mapped() -> None:
        # The tool that remaps a queue asks next where the queue ends. Messages that are still being flushed
        # or replicated, and are therefore not in the queue yet, would be behind that end.
        if store.answers_when_durable:
            await store.durable()
        await saved_and_announced()

    async def deleted() -> None:
        await asyncio.gather(saved_and_announced(), services.save_consumption())

    return TopicProcessors(
        topics=TopicAdminProcessor(topics, deletion, settings, saved_and_announced, mapped, deleted),
        stats=TopicStatsProcessor(topics, store, statistics, settings.broker_name),
        queue_view=QueueViewProcessor(store, services.clients.consumers, services.filters.table),
        cleaning=CleaningProcessor(services.storage.cleaner, unused, services.save_consumption),
    )


def _group_processors(
    settings: BrokerSettings, services: Services, address: BrokerAddress, now_ms: ClockMs
) -> GroupProcessors:
    topics, groups, offsets = services.topics.table, services.groups.table, services.offsets.table
    consumers, store, statistics = services.clients.consumers, services.storage.store, services.statistics
    broker_name, broker_address = settings.broker_name, str(address)

    async def deleted() -> None:
        await asyncio.gather(services.groups.file.save(), services.save_consumption())

    progress = ConsumeProgress(store, offsets, statistics, broker_name, now_ms)
    return GroupProcessors(
        groups=GroupAdminProcessor(groups, offsets, statistics, settings, services.groups.file.save, deleted),
        consume_stats=ConsumeStatsProcessor(progress, topics, groups, offsets, consumers, broker_address),
        connections=ConnectionAdminProcessor(consumers, services.clients.producers, offsets, broker_address),
        offsets=OffsetAdminProcessor(offsets, store.min_offset),
        offset_clone=OffsetCloneProcessor(offsets, groups, topics, consumers, services.save_offsets),
        offset_reset=OffsetResetProcessor(
            ResetTargets(topics, store, broker_name),
            ServerSideReset(
                offsets,
                topics,
                groups,
                services.pulls.slices,
                services.pulls.wake,
                services.save_offsets,
            ),
            ClientSideReset(offsets, consumers, services.pulls.slices),
            settings,
        ),
        relay=ConsumerRelayProcessor(consumers, groups, topics, store.record_at, broker_name),
    )
