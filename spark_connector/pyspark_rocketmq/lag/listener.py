"""What Spark tells of its streams, kept as lag: in messages and in seconds."""

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
    """How far the streams of a Spark session are behind.

    ::

        listener = LagListener()
        spark.streams.addListener(listener)
        listener.publish()                              # for Prometheus
        prometheus_client.start_http_server(5559)
        ...
        listener.lag("orders").messages

    The lag in messages is what the queues held when the last trigger began, less what is read. The lag in
    seconds is the time since the oldest of these messages came; it goes on growing while the query does not.
    It follows from how far the queues reached at which time, without a request (`arrivals.py`). Where a query
    starts with a backlog, that gives a lower bound: with the options of the stream, brokers are asked when
    the message was stored, of the 32 queues furthest behind at most, and every 10 seconds at most.

    Queries without a source of this connector are left alone. May be used from any thread.
    """

    def __init__(
        self, source_options: Mapping[str, str] | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        """`source_options`: of the streams' source, all of one cluster; without them nobody is asked.

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
        """Of a running query by its name or id; None before the end of its first batch, and after its end."""
        wanted = str(query)
        return next((lag for lag in self.lags() if wanted in {lag.name, lag.query_id, lag.run_id}), None)

    def lags(self) -> list[QueryLag]:
        """Of all running queries."""
        now = self._clock()
        with self._lock:
            # A query that is started again may be heard of before the end of its last run is.
            newest = {run.query_id: run for run in self._runs.values()}
            return [run.report(now) for run in newest.values()]

    def publish(self, registry: CollectorRegistry | None = None, *, per_queue: bool = False) -> None:
        """Make the lags metrics of a registry of prometheus_client; without one, of its own default.

        `per_queue`: also of each queue. Raises ValueError where the registry has such metrics already: a
        registry takes one listener.
        """
        from prometheus_client import REGISTRY  # noqa: PLC0415

        from .metrics import LagCollector  # noqa: PLC0415

        target = REGISTRY if registry is None else registry
        collector = LagCollector(self.lags, per_queue=per_queue)
        target.register(collector)
        self._published.append(lambda: target.unregister(collector))

    def close(self) -> None:
        """Take the metrics back and the connections, if there are any. Remove it from Spark before."""
        while self._published:
            self._published.pop()()
        store_times, self._store_times = self._store_times, None
        if store_times is not None:
            store_times.close()

    # --- Spark's names; Spark waits for none of these but the first ---

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is known yet. Spark Connect does not tell."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A batch has ended."""
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
        """A trigger had nothing to do."""
        with self._lock:
            run = self._runs.get(str(event.runId))
            if run is not None:
                run.idled(unix_seconds(event.timestamp), self._clock())

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The query has ended, in whatever way."""
        with self._lock:
            self._runs.pop(str(event.runId), None)

    # --- brokers ---

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
