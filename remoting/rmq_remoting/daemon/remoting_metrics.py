"""Metrics of a daemon's network side: listeners, tiers, requests by code."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ..codes import ResponseCode
from ..dispatch import LATENCY_BOUNDS_MS, Dispatcher, Latency, Registration
from ..server import RemotingServer
from .exposition import Family, Field, counter, fields_of
from .histogram import Histogram
from .latency_metrics import FurtherLatencies, rpc_latency

_TIER_FIELDS: Final = {
    "capacity": Field("rmq_tier_capacity", "gauge", "Bound of the requests that wait in a tier."),
    "threads": Field("rmq_tier_threads", "gauge", "Threads of a tier; 0: it runs on the event loop."),
}
_TIER_STATISTICS: Final = {
    "waiting": Field("rmq_tier_waiting", "gauge", "Requests that wait in a tier now, held ones excluded."),
    "held": Field("rmq_tier_held", "gauge", "Requests of a tier that are held for a message (long polling)."),
    "max_waiting": Field(
        "rmq_tier_waiting_max", "gauge", "Maximum of requests that waited in a tier at once."
    ),
    "accepted": Field("rmq_tier_accepted_total", "counter", "Requests accepted by a tier."),
    "failed": Field("rmq_tier_failed_total", "counter", "Requests whose processor failed."),
    "wait_seconds_total": Field(
        "rmq_tier_wait_seconds_total", "counter", "Time that requests waited in a tier."
    ),
}
_CONNECTION_STATISTICS: Final = {
    "opened": Field("rmq_connections_opened_total", "counter", "Connections opened."),
    "refused": Field(
        "rmq_connections_refused_total",
        "counter",
        "Connections closed at once, because too many were open, in all or of one host.",
    ),
    "closed": Field("rmq_connections_closed_total", "counter", "Connections closed."),
    "protocol_errors": Field(
        "rmq_connections_protocol_errors_total",
        "counter",
        "Connections closed because the peer broke the protocol.",
    ),
    "idle_closed": Field(
        "rmq_connections_idle_closed_total", "counter", "Connections closed because they were idle."
    ),
    "unread_closed": Field(
        "rmq_connections_unread_closed_total",
        "counter",
        "Connections closed because their peers did not read, and too many bytes waited for such peers.",
    ),
    "reads_paused": Field(
        "rmq_connections_reads_paused_total",
        "counter",
        "Times that reading from a peer paused because the peer did not read.",
    ),
    "bytes_read": Field("rmq_connections_read_bytes_total", "counter", "Bytes received."),
    "bytes_written": Field("rmq_connections_written_bytes_total", "counter", "Bytes sent."),
}
_TLS_STATISTICS: Final = {
    "handshakes": Field("rmq_tls_handshakes_total", "counter", "TLS handshakes that were completed."),
    "failed_handshakes": Field(
        "rmq_tls_handshakes_failed_total", "counter", "TLS handshakes that failed or took too long."
    ),
    "plain_refused": Field(
        "rmq_tls_plain_refused_total",
        "counter",
        "Connections closed because they sent plain text while tls.server.mode was enforcing.",
    ),
}


class RemotingCollector:
    """The processor table and the listeners of one daemon; `servers` maps a listener's name to it.

    The requests of a listener with a dispatcher of its own are added to those of the others.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        servers: Mapping[str, RemotingServer],
        further_latencies: FurtherLatencies | None = None,
    ) -> None:
        """`further_latencies` are of other ports of the process: a metric must be exposed in one piece."""
        self._further_latencies = further_latencies
        self._dispatcher = dispatcher
        self._servers = servers
        # Without duplicates, in a fixed order.
        self._dispatchers = list(
            dict.fromkeys([dispatcher, *(server.dispatcher for server in servers.values())])
        )

    def collect(self) -> Iterable[Family]:
        """Yield the metrics of tiers, requests and connections."""
        yield from self._of_tiers()
        yield from self._of_requests()
        yield from self._of_listeners()

    def _of_tiers(self) -> Iterator[Family]:
        tiers = {tier.name: tier for tier in self._dispatcher.tiers()}
        statistics = {name: tier.statistics for name, tier in tiers.items()}
        yield from fields_of("tier", tiers, _TIER_FIELDS)
        yield from fields_of("tier", statistics, _TIER_STATISTICS)
        yield Family(
            "rmq_tier_rejected_total",
            "counter",
            "Requests refused because their tier was full, or because they had waited too long.",
            [
                ((name, reason), count)
                for name, tier in statistics.items()
                for reason, count in (("full", tier.rejected_full), ("late", tier.rejected_late))
            ],
            ("tier", "reason"),
        )

    def _of_requests(self) -> Iterator[Family]:
        counts: dict[tuple[str, str], int] = {}
        for dispatcher in self._dispatchers:
            for row in dispatcher.registrations():
                for code, count in row.answered.items():
                    labels = (row.name.lower(), _response_name(code))
                    counts[labels] = counts.get(labels, 0) + count
        yield Family(
            "rmq_requests_total",
            "counter",
            "Requests by the response they got.",
            counts.items(),
            ("request_code", "response_code"),
        )
        further = {} if self._further_latencies is None else self._further_latencies()
        yield rpc_latency({**self._latencies(), **further})
        yield counter(
            "rmq_requests_unsupported_total",
            "Requests whose code nobody takes.",
            sum(dispatcher.unsupported_requests for dispatcher in self._dispatchers),
        )
        yield counter(
            "rmq_access_refused_total",
            "Requests refused by access control: by signature, rights, or address.",
            sum(dispatcher.guard_refusals for dispatcher in self._dispatchers),
        )

    def _latencies(self) -> dict[tuple[str, ...], Histogram]:
        histograms: dict[tuple[str, ...], Histogram] = {}
        for dispatcher in self._dispatchers:
            for row in dispatcher.registrations():
                for code, answered in row.answered.items():
                    count = answered
                    names = row.name.lower(), _response_name(code)
                    rest = "success" if code >= 0 else "oneway", "remoting"
                    held = row.held.get(code)
                    if held is not None:
                        count -= sum(held.counts)
                        _add(_of(histograms, (*names, "true", *rest)), held)
                    if count > 0:
                        _add_latency(_of(histograms, (*names, "false", *rest)), row, code, count)
        return histograms

    def _of_listeners(self) -> Iterator[Family]:
        servers = self._servers
        open_now = [((name,), server.open_connections) for name, server in servers.items()]
        yield Family("rmq_connections_open", "gauge", "Connections open now.", open_now, ("listener",))
        statistics = {name: server.statistics for name, server in servers.items()}
        yield from fields_of("listener", statistics, _CONNECTION_STATISTICS)
        handshakes = {name: server.tls_statistics for name, server in servers.items()}
        yield from fields_of("listener", handshakes, _TLS_STATISTICS)


def _of(histograms: dict[tuple[str, ...], Histogram], labels: tuple[str, ...]) -> Histogram:
    return histograms.setdefault(labels, Histogram(LATENCY_BOUNDS_MS))


def _add(histogram: Histogram, latency: Latency) -> None:
    histogram.counts = [before + more for before, more in zip(histogram.counts, latency.counts, strict=True)]
    histogram.total += latency.total_seconds * 1000


def _add_latency(histogram: Histogram, row: Registration, code: int, answered: int) -> None:
    """Add all responses with a code; the fast ones are counted as a whole."""
    slow = row.slow.get(code)
    if slow is not None:
        answered -= sum(slow.counts)
        _add(histogram, slow)
    histogram.counts[0] += answered


@functools.cache
def _response_name(code: int) -> str:
    if code < 0:
        return "none"
    try:
        return ResponseCode(code).name.lower()
    except ValueError:
        return str(code)
