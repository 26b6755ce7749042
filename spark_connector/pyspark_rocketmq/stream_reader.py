"""Streaming reads: adapts `StreamOffsets` on the driver and tasks on executors to Spark's stream reader.

Each Python worker imports this module, and so does the driver. The parts of either are therefore imported
where they are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from .errors import OptionError
from .spark_versions import (
    HAS_TRIGGER_LIMITS,
    VERSION,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from .stream_losses import LOST, losses_to_nested
from .stream_position import StreamPosition
from .tasks.partitions import TaskPartition, TaskSettings

if TYPE_CHECKING:
    from .driver.cluster import Cluster
    from .driver.stream_offsets import StreamOffsets
    from .options import ReadOptions

_NO_MOST: Final = 2**62
# Spark sets this local property for every task of a streaming query (Apache Spark 4, StreamExecution).
_QUERY_ID: Final = "sql.streaming.queryId"


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark's reader for a stream. Spark stores its offsets as JSON: {topic: {broker: {queue: offset}}}
    (`stream_position.py`).

    Spark creates one reader for the driver, which lives as long as the query, and another one whose pickled
    copies read on the executors. Connections are therefore opened on first use.
    """

    def __init__(self, options: ReadOptions, schema: pa.Schema, offsets: StreamOffsets | None = None) -> None:
        """`schema`: the Arrow schema that Spark expects. `offsets`: None for those of the options' cluster.

        Raises OptionError for limits per trigger that this version of PySpark does not support.
        """
        if not HAS_TRIGGER_LIMITS:
            _refuse_limits(options)
        from .driver.task_settings import task_settings  # noqa: PLC0415
        from .running_marks import RunningMark  # noqa: PLC0415

        self._options = options
        self._tasks = replace(task_settings(options, schema), group_by_query=options.group_id is None)
        self._cluster: Cluster | None = None
        self._offsets = offsets
        self._mark = RunningMark()

    def __getstate__(self) -> dict[str, TaskSettings]:
        """Return what executors need: the settings of tasks, and neither options nor connections."""
        return {"_tasks": self._tasks}

    # --- on the driver ---

    def initialOffset(self) -> dict[str, Any]:  # names prescribed by Spark
        """Return the offsets where a query without a checkpoint begins."""
        return self._live().initial().to_nested()

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Return the end of the next batch.

        PySpark 4.0 and 4.1 pass neither `start` nor `limit`; with these versions, limits per trigger do not
        apply.
        """
        live = self._live()
        if start is None:
            return live.newest_or_last().to_nested()
        self._mark.update(start)
        begin = StreamPosition.from_nested(start)
        all_available = isinstance(limit, ReadAllAvailable)
        return live.latest(begin, all_available=all_available).to_nested()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that Spark passes to `latestOffset`, unless the trigger overrides it (`once`: no
        limit).
        """
        return ReadMaxRows(self._options.max_offsets_per_trigger or _NO_MOST)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the newest offsets as of the last trigger, and the losses of this run of the query.

        Spark shows them in the query's progress, as `latestOffset`.
        """
        if self._offsets is None:
            return None
        report: dict[str, Any] = dict(self._offsets.newest.to_nested())
        losses = self._offsets.losses.losses()
        return {LOST: losses_to_nested(losses), **report} if losses else report

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query: it reads the messages stored by now, and no later ones."""
        self._live().drain()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return one partition per task for the batch between two offsets."""
        from .driver.planning import plan, ranges_between  # noqa: PLC0415

        self._mark.update(start)
        begin, limit = (StreamPosition.from_nested(nested).offsets for nested in (start, end))
        if not HAS_TRIGGER_LIMITS:
            begin = self._live().begin(begin, limit)
        ranges = ranges_between(begin, limit)
        # Only later versions give a loss that a task reports a place in the query's progress.
        reports = HAS_TRIGGER_LIMITS and not self._options.fail_on_data_loss
        report_to = self._live().planned(ranges) if reports else None
        return [TaskPartition(task, report_to) for task in plan(ranges, self._options.plan_limits)]

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the end of a batch to the consumer group (PySpark 4.0 and 4.1 only).

        Spark calls this method one batch late. PySpark 4.2 and later pass the start of a batch to
        `latestOffset`, which tells the same earlier.
        """
        if not HAS_TRIGGER_LIMITS:
            self._live().commit(StreamPosition.from_nested(end).offsets)

    def stop(self) -> None:
        """Close the connections when the query ends."""
        self._mark.close()
        cluster, self._cluster = self._cluster, None
        offsets, self._offsets = self._offsets, None
        if offsets is not None:
            offsets.close()
        if cluster is not None:
            cluster.close()

    def _live(self) -> StreamOffsets:
        if self._offsets is None:
            from .driver.cluster import Cluster  # noqa: PLC0415
            from .driver.stream_offsets import StreamOffsets  # noqa: PLC0415

            options = self._options
            cluster = Cluster(self._tasks.connection.namesrv, options.client_settings, options.wait_timeouts)
            cluster.open()
            self._cluster = cluster
            self._offsets = StreamOffsets(cluster, options)
        return self._offsets

    # --- on executors ---

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the messages of one task. Raises DataLoss, SourceUnavailable, RecordDamaged, ClientError."""
        from .tasks.task_reading import read_task  # noqa: PLC0415

        if isinstance(partition, TaskPartition):
            yield from read_task(partition.task, self._tasks.of_query(_query_id()), partition.report_to)


def _query_id() -> str | None:
    """Return the id of the task's query, which the checkpoint keeps; None outside of a stream."""
    from pyspark import TaskContext  # noqa: PLC0415

    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(_QUERY_ID)


def _refuse_limits(options: ReadOptions) -> None:
    limits = options.trigger_limits
    for name, value in (
        ("maxOffsetsPerTrigger", limits.max_offsets),
        ("minOffsetsPerTrigger", limits.min_offsets),
    ):
        if value is not None:
            reason = f"this is PySpark {VERSION}; Spark passes limits to Python sources from 4.2 on"
            raise OptionError(name, value, "left out", reason)
