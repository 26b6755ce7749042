"""Batch reads: the start and the end of each queue are fixed when Spark plans the read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from .driver.cluster import Cluster
from .driver.offset_resolution import resolve, selected_queues
from .driver.planning import plan, ranges_between
from .errors import OptionError, listed
from .offsets import QueueOffsets
from .options import Anchor, AtOffsets, Mode, ReadOptions
from .tasks.task_reading import TaskPartition, TaskSettings, read_task

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

    from .driver.pushed_filters import PushedFilters


class BatchReader(DataSourceReader):
    """Spark's reader for a batch. `partitions` runs on the driver; `read` runs on executors, in a pickled
    copy.
    """

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        """`schema`: the Arrow schema that Spark expects."""
        self._options = options
        self._tasks = TaskSettings.of(options, schema)

    def partitions(self) -> list[InputPartition]:
        """Return one partition per task. Raises OptionError, TopicMissing, SourceUnavailable, ClientError."""
        options = self._options
        with Cluster(
            self._tasks.connection.namesrv, options.client_settings, options.wait_timeouts
        ) as cluster:
            start, end = self._apply_filters(cluster, *self._bounds(cluster))
        return [TaskPartition(task) for task in plan(ranges_between(start, end), options.plan_limits)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the messages of one task. Raises DataLoss, SourceUnavailable, RecordDamaged, ClientError."""
        if isinstance(partition, TaskPartition):  # a read without partitions gets one of Spark's own type
            yield from read_task(partition.task, self._tasks)

    def _apply_filters(
        self, cluster: Cluster, start: QueueOffsets, end: QueueOffsets
    ) -> tuple[QueueOffsets, QueueOffsets]:
        return start, end

    def _bounds(self, cluster: Cluster) -> tuple[QueueOffsets, QueueOffsets]:
        options = self._options
        queues = selected_queues(cluster, options)
        start = resolve(cluster, queues, options.starting(Mode.BATCH), Anchor.EARLIEST, options.group)
        end = resolve(cluster, queues, options.ending, Anchor.LATEST, options.group, "ending")
        if isinstance(options.ending, AtOffsets):
            _reject_end_after_newest(end, cluster.newest(queues))
        if not isinstance(options.starting(Mode.BATCH), AtOffsets):
            # The brokers are asked for starts and ends one after the other. Messages may expire in between,
            # and the group's committed offset may be lower than the oldest message. Both would put the start
            # of a queue behind its end.
            end = end.merged({queue: start[queue] for queue in start.ahead_of(end)})
        return start, end


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


def _reject_end_after_newest(end: QueueOffsets, newest: QueueOffsets) -> None:
    beyond = end.ahead_of(newest)
    if beyond:
        wrong = listed(f"{queue} to {end[queue]}, which ends at {newest[queue]}" for queue in beyond)
        raise OptionError("endingOffsets", end.to_json(), "at or before the end of each queue", wrong)
