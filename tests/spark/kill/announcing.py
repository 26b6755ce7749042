"""The connector as it is, but for marks that say which worker is reading now."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pyspark_rocketmq.batch_reader import BatchReader
from pyspark_rocketmq.columns import arrow_schema_of
from pyspark_rocketmq.options import ReadOptions
from pyspark_rocketmq.source import RocketMQDataSource
from pyspark_rocketmq.stream_reader import StreamReader
from pyspark_rocketmq.tasks.task_reading import TaskPartition
from tests.spark.kill.job_files import JobFiles, Mark

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Read = Callable[[InputPartition], Iterator[pa.RecordBatch]]


class AnnouncingSource(RocketMQDataSource):
    """`format("rocketmq-announcing")`."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq-announcing"

    def reader(self, schema: StructType) -> BatchReader:
        options = ReadOptions.for_batch(self.options)
        return _AnnouncingBatchReader(options, arrow_schema_of(schema, options.properties_mode))

    def streamReader(self, schema: StructType) -> StreamReader:
        options = ReadOptions.for_stream(self.options)
        return _AnnouncingStreamReader(options, arrow_schema_of(schema, options.properties_mode))


class _AnnouncingBatchReader(BatchReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _announced(partition, super().read)


class _AnnouncingStreamReader(StreamReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _announced(partition, super().read)


def _announced(partition: InputPartition, read: Read) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, TaskPartition)
    brokers = {wanted.key.broker for wanted in partition.task.ranges}
    with Mark.of(JobFiles.of_environment().marks_folder, os.getpid(), brokers).shown():
        yield from read(partition)
