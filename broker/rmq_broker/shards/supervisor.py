"""The supervisor of the shards of one host: the process that `rmq-broker --shards N` runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq_remoting.daemon.atomic_file import make_folder
from rmq_remoting.daemon.config_file import ConfigFileError
from rmq_remoting.daemon.lifecycle import StartError
from rmq_remoting.daemon.metrics import (
    GarbageCollectionProbe,
    LoopLagProbe,
    MetricsRegistry,
    ProcessCollector,
    TaskCollector,
)
from rmq_remoting.daemon.metrics_server import MetricsServer
from rmq_remoting.daemon.ready import Ready

from ..store.api import StoreError
from ..store.directory_lock import DirectoryLock
from .child import ShardChild
from .common_tables import CommonTables
from .joined_metrics import JoinedMetrics
from .plan import STATE_FILE, ShardPlan
from .runner import ShardRunner
from .shard_link import ShardLink

if TYPE_CHECKING:
    from rmq_remoting.daemon.tasks import TaskSupervisor

    from ..settings.broker import BrokerSettings

# A shard ends itself this long after shutdownWaitTimeSeconds at the latest; the supervisor waits longer.
_EXTRA_STOP_SECONDS: Final = 8.0
STOP_SECONDS_BEYOND_SHARDS: Final = 12.0


class ShardSupervisor:
    """The shards, their common topics and groups, and one endpoint of metrics for all of them."""

    def __init__(
        self,
        settings: BrokerSettings,
        supervisor: TaskSupervisor,
        plans: Sequence[ShardPlan],
        arguments: Sequence[str],
    ) -> None:
        """`arguments` are those of the command line that all shards get."""
        self._settings = settings
        self._supervisor = supervisor
        self._root = settings.store_path_root_dir
        self._lock: DirectoryLock | None = None
        self._tables = CommonTables(self._root / STATE_FILE, [plan.broker_name for plan in plans])
        self._runners = [_runner(plan, self._tables, arguments) for plan in plans]
        self._probes = (LoopLagProbe(), GarbageCollectionProbe())
        self._metrics = self._metrics_server()

    async def start(self) -> Ready:
        """Start all shards; return the facts to announce. Raises StartError."""
        await asyncio.to_thread(self._open)
        await self._start_metrics()
        for runner in self._runners:
            self._supervisor.start(f"shard {runner.plan.number}", runner.run)
        started = [asyncio.ensure_future(runner.first_ready()) for runner in self._runners]
        try:
            shards = await asyncio.gather(*started)
        finally:
            for future in started:
                future.cancel()
            await asyncio.gather(*started, return_exceptions=True)
        return self._ready(shards)

    async def stop(self) -> None:
        """Let all shards shut down gracefully, and wait for them. Raises ShutdownError, OSError."""
        limit = self._settings.shutdown_wait_seconds + _EXTRA_STOP_SECONDS
        graceful = await asyncio.gather(*(runner.stop(limit) for runner in self._runners))
        for probe in self._probes:
            probe.stop()
        await self._metrics.stop()
        try:
            if self._lock is not None:
                await self._tables.close()
        finally:
            if self._lock is not None:
                self._lock.release()
        failed = [
            runner.plan.broker_name
            for runner, was_graceful in zip(self._runners, graceful, strict=True)
            if not was_graceful
        ]
        if failed:
            raise ShutdownError(f"not all shards shut down gracefully: {', '.join(failed)}")

    # --- internals ---

    def _open(self) -> None:
        """Lock the root folder, and read the common tables. Raises StartError; blocks."""
        try:
            make_folder(self._root)
            self._lock = DirectoryLock(self._root)
            self._tables.load()
        except OSError as error:
            raise StartError(f"the folder of the shards {self._root} cannot be used: {error}") from error
        except (ConfigFileError, StoreError) as error:
            raise StartError(str(error)) from error

    async def _start_metrics(self) -> None:
        settings = self._settings
        for probe in self._probes:
            probe.start()
        if settings.metrics_enabled:
            host = settings.metrics_host or settings.bind_address
            await self._metrics.start(
                host, settings.metrics_port, is_default=settings.metrics_port_is_default
            )

    def _metrics_server(self) -> MetricsServer:
        settings = self._settings
        labels = {"cluster": settings.broker_cluster_name, **settings.metrics_extra_labels}
        registry = MetricsRegistry({**labels, "node_type": "supervisor", "node_id": settings.broker_name})
        for collector in (*self._probes, ProcessCollector(), TaskCollector(self._supervisor)):
            registry.register(collector)
        joined = JoinedMetrics(self._runners, self._tables, {**labels, "node_type": "broker"})
        return MetricsServer(registry, joined.join)

    def _ready(self, shards: Sequence[Ready]) -> Ready:
        """Return facts as of one broker, with the address of the first shard, and those of the shards."""
        return Ready(
            name=self._settings.broker_name,
            address=shards[0].address,
            namesrv=shards[0].namesrv,
            route_held_by=[holder for shard in shards for holder in shard.route_held_by],
            metrics=self._metrics.address,
            shards=[shard.address for shard in shards],
        )


class ShutdownError(Exception):
    """Some shards did not shut down gracefully."""


def shard_arguments(config: Path | None, assignments: Mapping[str, str]) -> list[str]:
    """Return the command line of a shard: the file, and settings by key."""
    file = [] if config is None else ["-c", str(config)]
    return [*file, *(word for key, text in assignments.items() for word in ("--set", f"{key}={text}"))]


def _runner(plan: ShardPlan, tables: CommonTables, arguments: Sequence[str]) -> ShardRunner:
    link = ShardLink(plan.number, plan.broker_name, tables)
    own = [*arguments, *shard_arguments(None, plan.settings)]
    return ShardRunner(plan, link, partial(ShardChild, own, link), clock=time.monotonic)
