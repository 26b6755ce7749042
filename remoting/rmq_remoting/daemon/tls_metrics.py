"""Metrics of a daemon's certificates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .exposition import Family
from .tls_reloads import TlsReloads


class TlsCollector:
    """The certificates of the daemon's ports: when they expire, and how often they were loaded again."""

    def __init__(self, ports: Mapping[str, TlsReloads[Any]]) -> None:
        """`ports`: the certificate of each port that has one of its own, by the name of its protocol."""
        self._ports = ports

    def collect(self) -> Iterator[Family]:
        """Yield the metrics."""
        ports = self._ports.items()
        yield Family(
            "rmq_tls_certificate_expiry_timestamp_seconds",
            "gauge",
            "When the certificate of the port expires, in seconds since 1970.",
            [((name,), port.expires_at) for name, port in ports if port.expires_at is not None],
            ("port",),
        )
        yield Family(
            "rmq_tls_reloads_total",
            "counter",
            "Times that changed certificates or keys were loaded.",
            [((name,), port.reloads) for name, port in ports],
            ("port",),
        )
        yield Family(
            "rmq_tls_reloads_failed_total",
            "counter",
            "Times that changed certificates or keys could not be loaded; the old ones stayed in use.",
            [((name,), port.failed_reloads) for name, port in ports],
            ("port",),
        )
