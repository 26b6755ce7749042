"""Metrics of a name server, besides those of every daemon."""

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
        """Yield the metrics of tables, registrations and lane."""
        routes, brokers = self._routes, self._brokers
        yield gauge("rmq_namesrv_topics", "Topics that have a route.", len(routes))
        yield gauge(
            "rmq_namesrv_topic_brokers", "Pairs of a topic and a broker name.", routes.queue_group_count
        )
        yield gauge("rmq_namesrv_distinct_routes", "Distinct routes.", routes.distinct_routes)
        yield gauge("rmq_namesrv_clusters", "Clusters of brokers.", len(brokers.clusters()))
        yield gauge("rmq_namesrv_broker_names", "Broker names: masters with their slaves.", len(brokers))
        yield gauge("rmq_namesrv_brokers", "Brokers, slaves included.", brokers.address_count)
        yield gauge("rmq_namesrv_brokers_alive", "Live brokers.", len(self._live))
        yield from self._of_registry()
        yield from self._of_lane()

    def _of_registry(self) -> Iterable[Family]:
        registry = self._registry
        yield Family(
            "rmq_namesrv_registrations_total",
            "counter",
            "Registrations by outcome; unchanged: the same bytes, repeated: the same version.",
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
        yield gauge("rmq_namesrv_lane_depth", "Jobs that wait or run.", lane.depth)
        yield counter("rmq_namesrv_lane_jobs_total", "Jobs accepted.", statistics.jobs)
        yield counter("rmq_namesrv_lane_slices_total", "Slices in which jobs ran.", statistics.slices)
        yield counter(
            "rmq_namesrv_lane_rejected_total",
            "Jobs refused because too many bytes waited.",
            statistics.rejected,
        )
        yield counter(
            "rmq_namesrv_lane_busy_seconds_total", "Time that jobs blocked the loop.", statistics.busy_seconds
        )
        yield gauge(
            "rmq_namesrv_lane_longest_step_seconds",
            "Longest time that a job blocked the loop without a pause, since the start.",
            statistics.longest_step_seconds,
        )
