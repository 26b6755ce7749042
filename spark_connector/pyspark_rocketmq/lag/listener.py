"""Spark's listener for streaming queries, which keeps their lag in messages and in seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID

from pyspark.sql.streaming.listener import StreamingQueryListener

from ..options import ReadOptions
from .progress import read_progress, unix_seconds
from .run import RunLag

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from ..offsets import QueueKey
    from .reports import QueryLag

_REQUEST_INTERVAL_SECONDS: Final = 10.0
_MAX_QUEUES_REQUESTED: Final = 32


class LagListener(StreamingQueryListener):
    """The lag of the streaming queries of a Spark session.

    ::

        listener = LagListener()
        spark.streams.addListener(listener)
        listener.publish()                              # for Prometheus
        prometheus_client.start_http_server(5559)
        ...
        listener.lag("orders").messages

    The lag in messages is the content of the queues when the last trigger began, minus the messages read. The
    lag in seconds is the age of the oldest of these messages; it grows on while the query stands still. It is
    estimated from the newest offsets of earlier triggers, without a request (`arrival_times.py`). For a query
    that starts with a backlog, the estimate is a lower bound. With the options of the stream, the listener
    asks brokers for the store time of these messages: for the 32 queues with the largest lag at most, and
    every 10 seconds at most.

    Queries without a source of this connector are ignored. The listener may be used from any thread.
    """

    def __init__(
        self, source_options: Mapping[str, str] | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        """`source_options`: options of the streams' source, all of one cluster. None: no broker is asked.

        `clock`: seconds since 1970 UTC. Raises OptionError.
        """
        self._clock = clock
        self._lock = threading.Lock()
        self._runs: dict[str, RunLag] = {}
        self._published: list[Callable[[], None]] = []
        self._store_times = None
        if source_options is not None:
            from .store_times import StoreTimes  # noqa: PLC0415

            self._store_times = StoreTimes(ReadOptions.for_stream(dict(source_options)))

    def lag(self, query: str | UUID) -> QueryLag | None:
        """Return the lag of a running query by name or id; None before its first batch ends, and after its
        end.
        """
        wanted = str(query)
        return next((lag for lag in self.lags() if wanted in {lag.name, lag.query_id, lag.run_id}), None)

    def lags(self) -> list[QueryLag]:
        """Return the lag of all running queries."""
        now = self._clock()
        with self._lock:
            # The progress of a restarted query may arrive before the end of its previous run.
            newest = {run.query_id: run for run in self._runs.values()}
            return [run.report(now) for run in newest.values()]

    def publish(self, registry: CollectorRegistry | None = None, *, per_queue: bool = False) -> None:
        """Export the lags as metrics to a registry of prometheus_client; None: its default registry.

        `per_queue`: also for each queue. Raises ValueError if the registry has such metrics already: a
        registry takes one listener.
        """
        from prometheus_client import REGISTRY  # noqa: PLC0415

        from .metrics import LagCollector  # noqa: PLC0415

        target = REGISTRY if registry is None else registry
        collector = LagCollector(self.lags, per_queue=per_queue)
        target.register(collector)
        self._published.append(lambda: target.unregister(collector))

    def close(self) -> None:
        """Unregister the metrics and close the connections. Remove the listener from Spark first."""
        while self._published:
            self._published.pop()()
        store_times, self._store_times = self._store_times, None
        if store_times is not None:
            store_times.close()

    # --- names prescribed by Spark, which waits only for the first one ---

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Ignored: nothing is known yet, and Spark Connect does not send this event."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Record the end of a batch."""
        report = event.progress
        progress = read_progress(report)
        if progress is None:
            return
        run_id = str(report.runId)
        with self._lock:
            run = self._runs.get(run_id)
            if run is None:
                run = self._runs[run_id] = RunLag(str(report.id), run_id, report.name, progress)
            run.progressed(progress, self._clock())
        self._request(run)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Record a trigger that had nothing to do."""
        with self._lock:
            run = self._runs.get(str(event.runId))
            if run is not None:
                run.idled(unix_seconds(event.timestamp), self._clock())

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Forget a query that ended or failed."""
        with self._lock:
            self._runs.pop(str(event.runId), None)

    # --- requests to brokers ---

    def _request(self, run: RunLag) -> None:
        store_times, now = self._store_times, self._clock()
        if store_times is None:
            return
        with self._lock:
            if run.requested_at is not None and now - run.requested_at < _REQUEST_INTERVAL_SECONDS:
                return
            wanted = run.uncertain(_MAX_QUEUES_REQUESTED)

        def on_store_time(queue: QueueKey, offset: int, stored_at: float) -> None:
            with self._lock:
                run.set_store_time(queue, offset, stored_at)

        if wanted and store_times.request(wanted, on_store_time):
            run.requested_at = now
