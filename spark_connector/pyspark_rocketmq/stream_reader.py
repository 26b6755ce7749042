"""Streams: Spark's face of `StreamOffsets` on the driver, and of tasks on executors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from .driver.cluster import Cluster
from .driver.planning import plan, ranges_between
from .driver.stream_offsets import StreamOffsets
from .errors import OptionError
from .offsets import QueueOffsets
from .options import ReadOptions
from .spark_versions import (
    HAS_TRIGGER_LIMITS,
    VERSION,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from .tasks.task_reading import TaskPartition, TaskSettings, read_task

_NO_MOST: Final = 2**62


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark's reader. Offsets travel as JSON: {topic: {broker: {queue: offset}}}.

    Spark makes one for the driver's side, which lives as long as the query, and one whose pickled copies read
    on the executors: connections are made where they are first needed.
    """

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        """`schema`: the Arrow schema that Spark expects. Raises OptionError where this PySpark is too old."""
        if not HAS_TRIGGER_LIMITS:
            _refuse_limits(options)
        self._options = options
        self._tasks = TaskSettings.of(options, schema)
        self._cluster: Cluster | None = None
        self._offsets: StreamOffsets | None = None

    # --- on the driver ---

    def initialOffset(self) -> dict[str, Any]:  # Spark's names
        """Where a query without a checkpoint begins."""
        return self._live().initial().to_nested()

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Where the next batch ends. PySpark 4.0 and 4.1 give no arguments, and so have no limits."""
        live = self._live()
        if start is None:
            return live.newest_or_last().to_nested()
        begin = QueueOffsets.from_nested(start)
        all_available = isinstance(limit, ReadAllAvailable)
        return live.latest(begin, all_available=all_available).to_nested()

    def getDefaultReadLimit(self) -> ReadLimit:
        """What Spark gives to `latestOffset` unless the trigger says otherwise (once: everything)."""
        return ReadMaxRows(self._options.max_offsets_per_trigger or _NO_MOST)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """How far the queues reach, as of the last trigger: shown in the query's progress."""
        return None if self._offsets is None else self._offsets.newest.to_nested()

    def prepareForTriggerAvailableNow(self) -> None:
        """What is there now is read, and nothing after it."""
        self._live().drain()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """One for each task of the batch between two offsets."""
        begin, limit = QueueOffsets.from_nested(start), QueueOffsets.from_nested(end)
        if not HAS_TRIGGER_LIMITS:
            begin = self._live().begin(begin, limit)
        ranges = ranges_between(begin, limit)
        return [TaskPartition(task) for task in plan(ranges, self._options.plan_limits)]

    def commit(self, end: dict[str, Any]) -> None:
        """Spark calls this a batch late: where it gives the start of a batch, that tells sooner."""
        if not HAS_TRIGGER_LIMITS:
            self._live().commit(QueueOffsets.from_nested(end))

    def stop(self) -> None:
        """The query has ended."""
        cluster, self._cluster, self._offsets = self._cluster, None, None
        if cluster is not None:
            cluster.close()

    def _live(self) -> StreamOffsets:
        if self._offsets is None:
            options = self._options
            cluster = Cluster(self._tasks.connection.namesrv, options.client_settings, options.wait_timeouts)
            cluster.open()
            self._cluster = cluster
            self._offsets = StreamOffsets(cluster, options)
        return self._offsets

    # --- on executors ---

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The task's messages. Raises DataLoss, SourceUnavailable, RecordDamaged, ClientError."""
        if isinstance(partition, TaskPartition):
            yield from read_task(partition.task, self._tasks)


def _refuse_limits(options: ReadOptions) -> None:
    limits = options.trigger_limits
    for name, value in (
        ("maxOffsetsPerTrigger", limits.max_offsets),
        ("minOffsetsPerTrigger", limits.min_offsets),
    ):
        if value is not None:
            reason = f"this is PySpark {VERSION}, and sources are told no limits before 4.2"
            raise OptionError(name, value, "left out", reason)
