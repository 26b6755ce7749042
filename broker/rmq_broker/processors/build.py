"""The processors of all requests, built by family out of the broker's services."""

from __future__ import annotations

import asyncio
import os
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmq_remoting.message_ids import UniqueKeyGenerator

from ..access.stored_topics import StoredTopics
from ..pop.routes import QueueRoutes
from ..pulling.admission import PullAdmission
from ..pulling.answering import PullAnswering
from ..pulling.cold_pulls import ColdPulls
from ..pulling.holding import PullHolding
from ..pulling.reading import PullReading
from ..pulling.replica_reads import ReplicaReads
from ..sending.created_topics import CreatedTopics
from ..sending.redirection import Redirection
from ..sending.target_check import TargetChecker
from ..static_topics.other_brokers import OtherBrokers
from ..static_topics.pulls import LogicalPulls
from .admin.build import AdminProcessors, build_admin_processors
from .client import ClientProcessor
from .cold_records import ColdRecords
from .consumer import ConsumerOffsetProcessor
from .locks import QueueLockProcessor
from .logical_queues import LogicalQueueProcessor
from .offsets import QueueOffsetProcessor
from .pop_processors import PopProcessors, build_pop_processors
from .pull import PullProcessor
from .query import QueryProcessor
from .recall import RecallProcessor
from .reply import ReplyProcessor
from .send import SendProcessor
from .send_back import SendBackProcessor
from .transaction import TransactionProcessor

if TYPE_CHECKING:
    from rmq_remoting.bounded_cache import BoundedCache
    from rmq_remoting.daemon.configuration import Configuration

    from ..acting.smallest_broker import SmallestBroker
    from ..clock import ClockMs, Clocks
    from ..monitoring.runtime_info import RuntimeInfo
    from ..network.address import BrokerAddress
    from ..registration.registrar import Registrar
    from ..replication.service import ReplicationService
    from ..services import Services
    from ..settings.broker import BrokerSettings


@dataclass(frozen=True, slots=True)
class SendProcessors:
    """What stores messages of clients."""

    send: SendProcessor
    send_back: SendBackProcessor
    recall: RecallProcessor
    reply: ReplyProcessor
    transactions: TransactionProcessor

    @property
    def caches(self) -> tuple[BoundedCache[Any, Any], ...]:
        """The bounded caches of these processors, for their metrics."""
        return (*self.send.caches, *self.reply.caches)


@dataclass(frozen=True, slots=True)
class ClientProcessors:
    """What clients ask about themselves, their groups and queues, and single messages."""

    client: ClientProcessor
    locks: QueueLockProcessor
    offsets: LogicalQueueProcessor
    query: QueryProcessor


@dataclass(frozen=True, slots=True)
class Processors:
    """All processors, by family."""

    sends: SendProcessors
    pull: PullProcessor
    pops: PopProcessors
    clients: ClientProcessors
    admin: AdminProcessors
    other_brokers: OtherBrokers

    @property
    def caches(self) -> tuple[BoundedCache[Any, Any], ...]:
        """The bounded caches of all processors, for their metrics."""
        return (*self.sends.caches, *self.pull.caches, *self.pops.caches, *self.other_brokers.caches)


def build_processors(
    configuration: Configuration[BrokerSettings],
    services: Services,
    address: BrokerAddress,
    registrar: Registrar,
    replication: ReplicationService,
    smallest: SmallestBroker,
    runtime_info: RuntimeInfo,
    clocks: Clocks,
) -> Processors:
    """Build all processors; those that keep something made out of settings follow their changes."""
    settings, now_ms = configuration.settings, clocks.now_ms
    routes = QueueRoutes(
        settings,
        registrar.client,
        settings.name_server_addresses,
        services.topics.table,
        settings.broker_name,
        time.monotonic,
        services.pulls.slices,
    )
    brokers = OtherBrokers(settings, registrar.client, settings.name_server_addresses, time.monotonic)
    processors = Processors(
        sends=_send_processors(settings, services, address, registrar, now_ms),
        pull=_pull_processor(settings, services, replication, brokers),
        pops=build_pop_processors(settings, services, routes, now_ms),
        clients=_client_processors(settings, services, brokers, clocks.steady_ms),
        admin=build_admin_processors(
            configuration, services, address, registrar, replication, smallest, runtime_info, now_ms
        ),
        other_brokers=brokers,
    )
    configuration.on_change(processors.sends.send.settings_changed)
    configuration.on_change(processors.pull.settings_changed)
    return processors


def _send_processors(
    settings: BrokerSettings,
    services: Services,
    address: BrokerAddress,
    registrar: Registrar,
    now_ms: ClockMs,
) -> SendProcessors:
    topics, store, delivery = services.topics.table, services.storage.store, services.delivery
    store_host, cold_reads = address.store_host, services.pulls.cold_reads
    stored_topics = StoredTopics(services.access.guard)
    unique_keys = UniqueKeyGenerator(address.store_ip, os.getpid(), random.getrandbits(32), now_ms)
    return SendProcessors(
        send=SendProcessor(
            settings,
            TargetChecker(settings, topics, now_ms),
            store,
            services.statistics,
            store_host,
            unique_keys.next_key,
            Redirection(delivery.writer, delivery.retries, services.transactions.preparing),
            CreatedTopics(services.topics, registrar),
        ),
        send_back=SendBackProcessor(
            settings, delivery.retries, delivery.writer, store, store_host, cold_reads, stored_topics
        ),
        recall=RecallProcessor(settings, topics, store, delivery.writer, store_host, now_ms),
        reply=ReplyProcessor(
            settings,
            TargetChecker(settings, topics, now_ms),
            services.clients.producers,
            delivery.writer,
            (address.store_ip, address.port),
            store_host,
            now_ms,
        ),
        transactions=TransactionProcessor(
            services.transactions, store, ColdRecords(store, cold_reads), stored_topics
        ),
    )


def _pull_processor(
    settings: BrokerSettings,
    services: Services,
    replication: ReplicationService,
    brokers: OtherBrokers,
) -> PullProcessor:
    store, offsets, pulls = services.storage.store, services.offsets, services.pulls
    admission = PullAdmission(
        settings,
        services.topics.table,
        services.groups.table,
        services.clients.consumers,
        services.filters.filters,
        offsets.broadcast,
        store,
    )
    reading = PullReading(store, offsets.table, offsets.broadcast, pulls.cold_groups)
    replicas = ReplicaReads(
        settings.is_replica, lambda: replication.has_master, lambda: bool(store.replicas.positions)
    )
    answering = PullAnswering(offsets.table, services.statistics, replicas)
    cold = ColdPulls(store, pulls.cold_reads, pulls.cold_groups)
    holding = PullHolding(settings, store, pulls.held_pulls, admission, reading, answering, cold, replicas)
    logical = LogicalPulls(services.topics.table, brokers)
    return PullProcessor(admission, reading, holding, answering, cold, replicas, logical, pulls.cold_flow)


def _client_processors(
    settings: BrokerSettings, services: Services, brokers: OtherBrokers, steady_ms: ClockMs
) -> ClientProcessors:
    topics, groups, offsets = services.topics.table, services.groups.table, services.offsets.table
    clients, store = services.clients, services.storage.store
    consumers = ConsumerOffsetProcessor(offsets, groups, topics, store, services.offsets.first_subscriptions)
    return ClientProcessors(
        client=ClientProcessor(
            clients.consumers,
            clients.producers,
            groups,
            topics,
            services.filters.filters,
            settings,
            steady_ms,
        ),
        locks=QueueLockProcessor(clients.queue_locks, groups, topics, settings.broker_name),
        offsets=LogicalQueueProcessor(
            QueueOffsetProcessor(store),
            consumers,
            topics,
            offsets,
            store,
            brokers,
            asyncio.get_running_loop(),
        ),
        query=QueryProcessor(store, settings, StoredTopics(services.access.guard)),
    )
