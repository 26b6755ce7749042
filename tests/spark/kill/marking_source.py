"""The connector's source, extended by marks that show which worker is reading now."""

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
from pyspark_rocketmq.tasks.partitions import TaskPartition
from tests.spark.kill.job_files import JobFiles, ReadMark

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Read = Callable[[InputPartition], Iterator[pa.RecordBatch]]


class MarkingSource(RocketMQDataSource):
    """`format("rocketmq-marking")`."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq-marking"

    def reader(self, schema: StructType) -> BatchReader:
        options = ReadOptions.for_batch(self.options)
        return _MarkingBatchReader(options, arrow_schema_of(schema, options.properties_mode))

    def streamReader(self, schema: StructType) -> StreamReader:
        options = ReadOptions.for_stream(self.options)
        return _MarkingStreamReader(options, arrow_schema_of(schema, options.properties_mode))


class _MarkingBatchReader(BatchReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _marked(partition, super().read)


class _MarkingStreamReader(StreamReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _marked(partition, super().read)


def _marked(partition: InputPartition, read: Read) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, TaskPartition)
    brokers = {wanted.key.broker for wanted in partition.task.ranges}
    with ReadMark.of(JobFiles.of_environment().marks_folder, os.getpid(), brokers).shown():
        yield from read(partition)
