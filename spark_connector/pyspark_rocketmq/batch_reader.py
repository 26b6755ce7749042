"""Batch reads: the start and the end of each queue are fixed when Spark plans the read.

Each Python worker imports this module, and so does the driver. The parts of either are therefore imported
where they are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from .tasks.partitions import TaskPartition, TaskSettings

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

    from .driver.cluster import Cluster
    from .driver.pushed_filters import PushedFilters
    from .offsets import QueueOffsets
    from .options import ReadOptions


class BatchReader(DataSourceReader):
    """Spark's reader for a batch. `partitions` runs on the driver; `read` runs on executors, in a pickled
    copy.
    """

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        """`schema`: the Arrow schema that Spark expects."""
        from .driver.task_settings import task_settings  # noqa: PLC0415

        self._options = options
        self._tasks = task_settings(options, schema)

    def __getstate__(self) -> dict[str, TaskSettings]:
        """Return what executors need: the settings of tasks."""
        return {"_tasks": self._tasks}

    def partitions(self) -> list[InputPartition]:
        """Return one partition per task. Raises OptionError, TopicMissing, SourceUnavailable, ClientError."""
        from .driver.cluster import Cluster  # noqa: PLC0415
        from .driver.planning import plan, ranges_between  # noqa: PLC0415

        options = self._options
        with Cluster(
            self._tasks.connection.namesrv, options.client_settings, options.wait_timeouts
        ) as cluster:
            start, end = self._apply_filters(cluster, *self._bounds(cluster))
        return [TaskPartition(task) for task in plan(ranges_between(start, end), options.plan_limits)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the messages of one task. Raises DataLoss, SourceUnavailable, RecordDamaged, ClientError."""
        from .tasks.task_reading import read_task  # noqa: PLC0415

        if isinstance(partition, TaskPartition):  # a read without partitions gets one of Spark's own type
            yield from read_task(partition.task, self._tasks)

    def _apply_filters(
        self, cluster: Cluster, start: QueueOffsets, end: QueueOffsets
    ) -> tuple[QueueOffsets, QueueOffsets]:
        return start, end

    def _bounds(self, cluster: Cluster) -> tuple[QueueOffsets, QueueOffsets]:
        from .driver.offset_resolution import batch_bounds  # noqa: PLC0415

        return batch_bounds(cluster, self._options)


class FilteringBatchReader(BatchReader):
    """Batch reader that uses the filters of the query. Spark accepts it only with filter push-down enabled.

    A filter on store time assumes that store times only grow within a queue. Brokers assume the same when
    they look up an offset by time; it holds unless a broker's clock was set back.
    """

    _pushed_filters: PushedFilters | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Use the filters to read fewer messages. Spark still applies every filter itself."""
        from .driver.pushed_filters import PushedFilters  # noqa: PLC0415  # PySpark 4.0 has no filters

        self._pushed_filters = pushed = PushedFilters.from_spark(filters)
        if pushed.tags is not None and self._options.sub_expression is None:
            fetch = replace(self._tasks.fetch, expression=pushed.tags)
            self._tasks = replace(self._tasks, fetch=fetch)
        return filters

    def _apply_filters(
        self, cluster: Cluster, start: QueueOffsets, end: QueueOffsets
    ) -> tuple[QueueOffsets, QueueOffsets]:
        return (
            (start, end) if self._pushed_filters is None else self._pushed_filters.apply(cluster, start, end)
        )
