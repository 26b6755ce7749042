"""Metrics of the gRPC face, besides those of every daemon.

`rocketmq_proxy_up` and `rocketmq_rpc_latency_milliseconds` have the names of Apache RocketMQ 5.3.3
(ProxyMetricsManager, RemotingMetricsManager). Apache's proxy measures no latencies of gRPC.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rmq_remoting.daemon.daemon_metrics import DaemonMetrics
from rmq_remoting.daemon.exposition import Collector, Family, counter, gauge
from rmq_remoting.daemon.latency_metrics import rpc_latency

from .clients import ClientRegistry
from .event_failures import EventFailures
from .flow_limits import FlowLimits
from .latencies import RpcLatencies, label
from .members import Members
from .protocol.definition_pb2 import ClientType
from .receiving import Receiving
from .refreshing_cache import RefreshingCache
from .renewals import Renewals

if TYPE_CHECKING:
    from rmq_remoting.daemon.tasks import TaskSupervisor

    from .daemon_settings import ProxyDaemonSettings


class ProxyMetrics(DaemonMetrics):
    """The metrics of a proxy's process."""

    def __init__(
        self, settings: ProxyDaemonSettings, supervisor: TaskSupervisor, collectors: Iterable[Collector]
    ) -> None:
        labels = {
            "cluster": settings.rocketmq_cluster_name,
            "node_type": "proxy",
            "node_id": settings.proxy_name,
        }
        super().__init__(settings, settings.bind_address, labels, supervisor, collectors)


class ProxyCollector:
    """Clients, calls, and the messages that the proxy keeps invisible."""

    def __init__(
        self,
        mode: str,
        clients: ClientRegistry,
        latencies: RpcLatencies,
        receiving: Receiving,
        renewals: Renewals,
        flows: FlowLimits,
        members: Members,
        failures: EventFailures,
        caches: Iterable[RefreshingCache[Any]],
        *,
        has_latencies: bool,
    ) -> None:
        """`mode`: cluster or local. Without `has_latencies` the collector of the process's port has them."""
        self._mode = mode
        self._clients = clients
        self._latencies = latencies
        self._receiving = receiving
        self._renewals = renewals
        self._flows = flows
        self._members = members
        self._failures = failures
        self._caches = list(caches)
        self._has_latencies = has_latencies

    def collect(self) -> Iterable[Family]:
        """Yield the metrics of the face."""
        yield Family(
            "rocketmq_proxy_up",
            "gauge",
            "1: the proxy serves. 0: its gRPC port is closed, because gRPC's library delivers no events.",
            [((self._mode,), int(not self._failures.is_broken))],
            ("proxy_mode",),
        )
        yield counter(
            "rmq_proxy_lost_events_total",
            "Events that gRPC's library failed to deliver. Each may leave a call without an answer.",
            self._failures.lost,
        )
        if self._has_latencies:
            yield rpc_latency(self._latencies.series())
        yield from self._of_clients()
        yield Family(
            "rmq_proxy_calls_open",
            "gauge",
            "Calls that have begun and not ended, by method; `telemetry` counts streams.",
            [((label(method),), number) for method, number in self._latencies.open.items()],
            ("method",),
        )
        yield from self._of_flows()
        yield from self._of_messages()
        yield Family(
            "rmq_proxy_cache_entries",
            "gauge",
            "Entries in a cache of routes, topics or groups.",
            [((cache.name,), len(cache)) for cache in self._caches],
            ("cache",),
        )

    def _of_clients(self) -> Iterable[Family]:
        kinds = Counter(client.settings.client_type for client in self._clients.all())
        yield Family(
            "rmq_proxy_clients",
            "gauge",
            "Clients that have reported their settings, by type.",
            [((ClientType.Name(kind).lower(),), number) for kind, number in kinds.items()],
            ("client_type",),
        )
        yield counter(
            "rmq_proxy_clients_expired_total",
            "Clients that counted as gone because their heartbeats stopped.",
            self._clients.expired,
        )
        yield gauge(
            "rmq_proxy_member_connections",
            "Connections to brokers that the proxy has opened for consumers, so that brokers list them.",
            self._members.connections,
        )
        yield gauge(
            "rmq_proxy_consumers_unlisted",
            "Consumers that a broker does not list, because of the limit of these connections.",
            self._members.unlisted,
        )

    def _of_flows(self) -> Iterable[Family]:
        yield Family(
            "rmq_proxy_calls_in_progress",
            "gauge",
            "Calls that count towards the flow limit of their kind; those that a broker holds do not.",
            [((flow.kind,), flow.in_progress) for flow in self._flows.all],
            ("kind",),
        )
        yield Family(
            "rmq_proxy_calls_limit",
            "gauge",
            "Flow limit: most calls in progress, by kind.",
            [((flow.kind,), flow.most) for flow in self._flows.all],
            ("kind",),
        )
        yield Family(
            "rmq_proxy_calls_refused_total",
            "counter",
            "Calls beyond a flow limit, which were answered TOO_MANY_REQUESTS.",
            [((flow.kind,), flow.refused) for flow in self._flows.all],
            ("kind",),
        )

    def _of_messages(self) -> Iterable[Family]:
        renewals = self._renewals
        yield gauge(
            "rmq_proxy_renewed_messages",
            "Unacknowledged messages of push consumers that the proxy keeps invisible.",
            renewals.held_count,
        )
        yield counter(
            "rmq_proxy_renewals_total", "Invisible times that the proxy has renewed.", renewals.succeeded
        )
        yield counter(
            "rmq_proxy_renewals_failed_total", "Renewals that brokers refused or missed.", renewals.failed
        )
        yield counter(
            "rmq_proxy_undelivered_messages_total",
            "Received messages that could not be written to their client, and were returned to the broker.",
            self._receiving.undelivered,
        )
