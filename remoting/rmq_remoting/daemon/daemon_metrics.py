"""The metrics of a daemon's process, served over HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from .metrics import (
    GarbageCollectionProbe,
    LoopLagProbe,
    MetricsRegistry,
    ProcessCollector,
    TaskCollector,
)
from .metrics_server import MetricsServer

if TYPE_CHECKING:
    from .common_settings import MetricsSettings
    from .exposition import Collector
    from .ready import Listening
    from .tasks import TaskSupervisor


class DaemonMetrics:
    """A daemon's collectors and those of every daemon, served over HTTP if the settings enable it."""

    def __init__(
        self,
        settings: MetricsSettings,
        bind_address: str,
        labels: Mapping[str, str],
        supervisor: TaskSupervisor,
        collectors: Iterable[Collector],
    ) -> None:
        """`labels` come before those of the settings. The port is on `bind_address` by default."""
        self._settings = settings
        self._bind_address = bind_address
        self._probes = (LoopLagProbe(), GarbageCollectionProbe())
        self.registry = MetricsRegistry({**labels, **settings.metrics_extra_labels})
        for collector in (*collectors, *self._probes, ProcessCollector(), TaskCollector(supervisor)):
            self.registry.register(collector)
        self._server = MetricsServer(self.registry)

    @property
    def address(self) -> Listening | None:
        """Where the metrics are served; None if they are not."""
        return self._server.address

    async def start(self) -> None:
        """Start the probes and the HTTP server. Raises StartError."""
        for probe in self._probes:
            probe.start()
        if self._settings.metrics_enabled:
            await self._server.start(
                self._settings.metrics_host or self._bind_address,
                self._settings.metrics_port,
                is_default=self._settings.metrics_port_is_default,
            )

    async def stop(self) -> None:
        """Stop them."""
        for probe in self._probes:
            probe.stop()
        await self._server.stop()
