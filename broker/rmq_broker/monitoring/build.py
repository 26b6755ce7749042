"""The metrics and the runtime information, built out of the broker's services."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from rmq_remoting.daemon.cache_metrics import CacheCollector
from rmq_remoting.daemon.exposition import Collector
from rmq_remoting.daemon.histogram import Histogram
from rmq_remoting.daemon.latency_metrics import LatencyLabels
from rmq_remoting.daemon.remoting_metrics import RemotingCollector
from rmq_remoting.daemon.tls_metrics import TlsCollector
from rmq_remoting.daemon.tls_reloads import TlsReloads

from ..acting.metrics import ActingCollector
from ..controller.metrics import ControllerCollector
from ..pop.metrics import PopCollector
from ..pulling.metrics import ColdReadCollector
from ..registration.metrics import RegistrationCollector
from ..replication.metadata.metrics import MetadataCollector
from ..replication.metrics import ReplicationCollector
from ..timers.metrics import TimerCollector
from ..transactions.metrics import TransactionCollector
from .broker_metrics import BrokerCollector, BrokerMetrics, Observed
from .delivery_metrics import DeliveryCollector
from .runtime_info import RuntimeInfo
from .store_metrics import StoreCollector

if TYPE_CHECKING:
    from rmq_remoting.bounded_cache import BoundedCache
    from rmq_remoting.daemon.tasks import TaskSupervisor

    from ..acting.smallest_broker import SmallestBroker
    from ..clock import Clocks
    from ..network.listeners import Listeners
    from ..network.tiers import Tiers
    from ..registration.registrar import Registrar
    from ..replication.service import ReplicationService
    from ..services import Services
    from ..settings.broker import BrokerSettings


class GrpcMetrics(Protocol):
    """The metrics of a gRPC face in this process."""

    def collector(self) -> Collector:
        """Return the collector of the face."""

    def latencies(self) -> Mapping[LatencyLabels, Histogram]:
        """Return the latencies of gRPC calls."""

    @property
    def certificates(self) -> TlsReloads[Any]:
        """The certificate of the gRPC port."""


def build_runtime_info(settings: BrokerSettings, services: Services, tiers: Tiers) -> RuntimeInfo:
    """Build the answer to request 28."""
    topics, groups, modes = services.topics.table, services.groups.table, services.pops.modes
    return RuntimeInfo(
        services.statistics,
        services.storage.store,
        services.storage.disk,
        tiers.all(),
        settings,
        services.delivery.delayed.positions,
        services.timers.runtime_info,
        lambda: f"{topics.version}.{groups.version}.{modes.version}",
    )


def build_metrics(
    settings: BrokerSettings,
    supervisor: TaskSupervisor,
    services: Services,
    tiers: Tiers,
    listeners: Listeners,
    registrar: Registrar,
    replication: ReplicationService,
    smallest: SmallestBroker,
    caches: Iterable[BoundedCache[Any, Any]],
    clocks: Clocks,
    grpc: GrpcMetrics | None = None,
) -> BrokerMetrics:
    """Build the collectors of all services, and the server that shows them.

    `caches` are those of the processors; the services' own are added.
    """
    now_ms, steady_ms = clocks.now_ms, clocks.steady_ms
    storage, system_topics = services.storage, services.topics.table.system_topics
    observed = Observed(
        settings=settings,
        topics=services.topics.table,
        groups=services.groups.table,
        offsets=services.offsets.table,
        consumers=services.clients.consumers,
        queue_locks=services.clients.queue_locks,
        producers=services.clients.producers,
        statistics=services.statistics,
        store=storage.store,
        held_pulls=services.pulls.held_pulls,
        in_flight=services.pops.in_flight,
        tiers=tiers.all(),
    )
    certificates: dict[str, TlsReloads[Any]] = {"remoting": listeners.contexts}
    if grpc is not None:
        certificates["grpc"] = grpc.certificates
    collectors: tuple[Collector, ...] = (
        BrokerCollector(observed),
        StoreCollector(storage.store, storage.disk, storage.cleaner.statistics, now_ms),
        DeliveryCollector(services.delivery.delayed, services.statistics, system_topics),
        ColdReadCollector(services.pulls.cold_groups, services.pulls.cold_flow),
        TimerCollector(services.timers),
        PopCollector(services.pops),
        TransactionCollector(services.transactions),
        RegistrationCollector(registrar),
        ReplicationCollector(replication, storage.store, now_ms),
        ActingCollector(smallest, services.escape, services.transactions.checks),
        CacheCollector((*services.caches, *caches)),
        RemotingCollector(
            listeners.main.dispatcher,
            {"main": listeners.main, "fast": listeners.fast},
            None if grpc is None else grpc.latencies,
        ),
        TlsCollector(certificates),
    )
    if replication.metadata is not None:
        collectors += (MetadataCollector(replication.metadata.sync, steady_ms),)
    if replication.controlled is not None:
        collectors += (ControllerCollector(replication.controlled.member),)
    if services.replays is not None:
        collectors += (services.replays,)
    if grpc is not None:
        collectors += (grpc.collector(),)
    return BrokerMetrics(settings, supervisor, collectors)
