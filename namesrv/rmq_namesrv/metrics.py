"""What a name server tells Prometheus beside what every daemon does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rmq_remoting.daemon.exposition import Family, counter, gauge

from .brokers import BrokerTable
from .liveness import LiveBrokers
from .registry import BrokerRegistry
from .routes import RouteTable
from .slices import SerialLane

NODE_LABELS: Final = {"node_type": "nameserver"}


class NamesrvCollector:
    """Reads the plain numbers of the tables and the lane."""

    def __init__(
        self,
        routes: RouteTable,
        brokers: BrokerTable,
        live: LiveBrokers,
        registry: BrokerRegistry,
        lane: SerialLane,
    ) -> None:
        self._routes = routes
        self._brokers = brokers
        self._live = live
        self._registry = registry
        self._lane = lane

    def collect(self) -> Iterable[Family]:
        """Tables, registrations, lane."""
        routes, brokers = self._routes, self._brokers
        yield gauge("rmq_namesrv_topics", "Topics that have a route.", len(routes))
        yield gauge(
            "rmq_namesrv_topic_brokers", "Pairs of a topic and a broker name.", routes.queue_group_count
        )
        yield gauge("rmq_namesrv_distinct_routes", "Routes that differ.", routes.distinct_routes)
        yield gauge("rmq_namesrv_clusters", "Clusters of brokers.", len(brokers.clusters()))
        yield gauge("rmq_namesrv_broker_names", "Broker names: masters with their slaves.", len(brokers))
        yield gauge("rmq_namesrv_brokers", "Brokers, slaves included.", brokers.address_count)
        yield gauge("rmq_namesrv_brokers_alive", "Brokers that give signs of life.", len(self._live))
        yield from self._of_registry()
        yield from self._of_lane()

    def _of_registry(self) -> Iterable[Family]:
        registry = self._registry
        yield Family(
            "rmq_namesrv_registrations_total",
            "counter",
            "Registrations: with the same bytes as before, the same version (repeated), or news (changed).",
            [((outcome,), count) for outcome, count in registry.registrations.copy().items()],
            ("outcome",),
        )
        yield Family(
            "rmq_namesrv_departures_total",
            "counter",
            "Brokers that left, by reason.",
            [((reason,), count) for reason, count in registry.departures.copy().items()],
            ("reason",),
        )

    def _of_lane(self) -> Iterable[Family]:
        lane, statistics = self._lane, self._lane.statistics
        yield gauge("rmq_namesrv_lane_depth", "Jobs that wait for their turn or run.", lane.depth)
        yield counter("rmq_namesrv_lane_jobs_total", "Jobs taken in.", statistics.jobs)
        yield counter("rmq_namesrv_lane_slices_total", "Slices that jobs ran in.", statistics.slices)
        yield counter(
            "rmq_namesrv_lane_rejected_total", "Jobs refused: too many bytes waited.", statistics.rejected
        )
        yield counter(
            "rmq_namesrv_lane_busy_seconds_total", "Time that jobs held the loop.", statistics.busy_seconds
        )
        yield gauge(
            "rmq_namesrv_lane_longest_step_seconds",
            "Longest time that a job held the loop without a pause, since the start.",
            statistics.longest_step_seconds,
        )
