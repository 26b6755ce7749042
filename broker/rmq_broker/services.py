"""The broker's services, built from the bottom up: each takes the parts of those before it that it needs."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmq_remoting.client import RemotingClient
from rmq_remoting.daemon.access.broker_requests import RequestNeeds
from rmq_remoting.daemon.access.service import AccessService, DaemonTexts
from rmq_remoting.daemon.access.tables import AccessTables
from rmq_remoting.daemon.tls_contexts import client_tls
from rmq_remoting.signing import RequestSigner

from .access.migration import Migration
from .access.replay_window import ReplayWindow
from .access.replays import ReplayProtection
from .clients.service import ClientService
from .delivery.service import DeliveryService
from .escape.remote import RemoteEscape
from .escape.routes import EscapeRoutes
from .filtering.service import FilterService
from .groups.service import GroupService
from .offsets.service import OffsetService
from .pop.service import PopDependencies, PopService
from .pulling.service import PullService
from .statistics.broker_statistics import BrokerStatistics
from .store.api import StorageService
from .timers.intake import build_timer_intake
from .timers.service import TimerService
from .topics.service import TopicService
from .transactions.service import TransactionService

if TYPE_CHECKING:
    from rmq_remoting.bounded_cache import BoundedCache
    from rmq_remoting.connection import Connection
    from rmq_remoting.tiers import PoolTier

    from .clock import ClockMs, Clocks
    from .settings.broker import BrokerSettings
    from .store.api import MessageStore


@dataclass(frozen=True, slots=True)
class Services:
    """One service for each domain. Only the build and `Broker` see all of them."""

    access: AccessService
    migration: Migration
    replays: ReplayProtection | None
    topics: TopicService
    groups: GroupService
    clients: ClientService
    filters: FilterService
    statistics: BrokerStatistics
    storage: StorageService
    offsets: OffsetService
    pulls: PullService
    escape: RemoteEscape
    delivery: DeliveryService
    pops: PopService
    timers: TimerService
    transactions: TransactionService

    @property
    def caches(self) -> tuple[BoundedCache[Any, Any], ...]:
        """The bounded caches of all services, for their metrics."""
        return (
            *self.storage.store.caches,
            *self.delivery.writer.caches,
            *self.offsets.first_subscriptions.caches,
            *self.escape.routes.caches,
            *self.access.caches,
        )

    def connection_closed(self, connection: Connection) -> None:
        """Forget what a client waited for, and the client."""
        self.pulls.connection_closed(connection)
        self.pops.connection_closed(connection)
        self.clients.housekeeping.connection_closed(connection)

    async def save_offsets(self) -> None:
        """Write the committed offsets now. Raises OSError.

        Offsets on the disk must not be ahead of the messages that POP has in flight in order, so the order
        is written first.
        """
        await self.pops.save_orders()
        await self.offsets.flusher.save()

    async def save_consumption(self) -> None:
        """Write offsets and request modes now, after a topic or a group was deleted. Raises OSError.

        After a crash, a deleted topic or group that is created again would otherwise begin with the offsets
        and the request mode of its predecessor.
        """
        await asyncio.gather(self.save_offsets(), self.pops.modes_file.save())


def build_services(
    settings: BrokerSettings,
    store_host: bytes,
    cold_tier: PoolTier,
    clocks: Clocks,
    access_tables: AccessTables | None = None,
) -> Services:
    """Build all services; no file is opened and no task started yet.

    `store_host` is the broker's address as records hold it; the threads of `cold_tier` read messages that
    are not in memory. `access_tables` belong to the name server in this process, if there is one.
    """
    now_ms, steady_ms = clocks.now_ms, clocks.steady_ms
    topics = TopicService(settings, now_ms)
    groups = GroupService(settings, now_ms)
    clients = ClientService(settings, groups.table, steady_ms)
    filters = FilterService(settings, clients.consumers, now_ms)
    statistics = BrokerStatistics(topics.table.system_topics, now_ms)
    storage = StorageService(
        settings,
        settings,
        settings,
        settings,
        is_batch=topics.table.stores_batches,
        bit_map_of=filters.bit_maps.of,
        clocks=clocks,
    )
    store = storage.store
    offsets = OffsetService(settings, topics.table, clients.consumers, store, clocks)
    pulls = PullService(settings, settings, topics.table, clients.consumers, store, cold_tier, now_ms)
    escape = _escape(settings, store)
    intake = build_timer_intake(settings, settings, store, now_ms)
    delivery = DeliveryService(
        settings,
        topics.table,
        groups.table,
        store,
        statistics,
        intake.admission,
        clients.queue_locks.has_holder,
        now_ms,
        escape,
    )
    pops = PopService(
        settings,
        PopDependencies(
            topics.table,
            groups.table,
            offsets.table,
            store,
            statistics,
            delivery.writer,
            pulls.arrivals,
            intake.entering.announced.announce,
            escape,
        ),
        store_host,
        clocks,
    )
    timers = TimerService(
        settings, intake, topics.table, store, delivery.writer, pops.held_from_ms, clocks, escape
    )
    transactions = TransactionService(
        settings,
        topics.table,
        clients.producers,
        offsets.table,
        store,
        delivery.writer,
        store_host,
        clocks,
        escape,
    )
    access = _access(settings, access_tables)
    return Services(
        access,
        Migration(settings, access.tables.users, access.tables.acls),
        _replays(settings, now_ms),
        topics,
        groups,
        clients,
        filters,
        statistics,
        storage,
        offsets,
        pulls,
        escape,
        delivery,
        pops,
        timers,
        transactions,
    )


def _escape(settings: BrokerSettings, store: MessageStore) -> RemoteEscape:
    keys = settings.own_keys
    signer = None if keys is None else RequestSigner(keys.access_key, keys.secret_key)
    client = RemotingClient(signer=signer, tls=client_tls(settings))
    name = settings.broker_name
    routes = EscapeRoutes(
        settings.broker_cluster_name, name, client, settings.name_server_addresses, time.monotonic
    )
    group = f"InnerProducerGroup_{name}_{settings.broker_id}"  # as Apache's broker names it
    return RemoteEscape(settings, group, client, routes, lambda: store.is_replica)


def _access(settings: BrokerSettings, shared: AccessTables | None) -> AccessService:
    return AccessService(
        settings,
        settings,
        RequestNeeds(settings.broker_cluster_name),
        DaemonTexts("broker", clients_may="send and consume"),
        shared or AccessTables(settings.config_dir),
        owns_tables=shared is None,
    )


def _replays(settings: BrokerSettings, now_ms: ClockMs) -> ReplayProtection | None:
    seconds = settings.signature_replay_window_seconds
    return ReplayProtection(ReplayWindow(seconds * 1000, now_ms)) if seconds else None
