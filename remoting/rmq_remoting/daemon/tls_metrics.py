"""Metrics of a daemon's certificate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .exposition import Family, counter
from .tls_reloads import TlsReloads


class TlsCollector:
    """The certificate of the daemon's port: when it expires, and how often it was loaded again."""

    def __init__(self, contexts: TlsReloads[Any]) -> None:
        self._contexts = contexts

    def collect(self) -> Iterator[Family]:
        """Yield the metrics."""
        contexts = self._contexts
        yield Family(
            "rmq_tls_certificate_expiry_timestamp_seconds",
            "gauge",
            "When the certificate of the daemon's port expires, in seconds since 1970.",
            () if contexts.expires_at is None else [((), contexts.expires_at)],
        )
        yield counter(
            "rmq_tls_reloads_total", "Times that changed certificates or keys were loaded.", contexts.reloads
        )
        yield counter(
            "rmq_tls_reloads_failed_total",
            "Times that changed certificates or keys could not be loaded; the old ones stayed in use.",
            contexts.failed_reloads,
        )
