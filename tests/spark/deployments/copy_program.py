"""A user's program that runs on every kind of deployment: copies a topic in a batch and as a stream.

Usage: `python -m tests.spark.deployments.copy_program --help`. The key of a copy identifies the original
message. The tag of a copy is the working folder of the task that copied it: each executor has
its own.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

import pyspark_rocketmq
from pyspark_rocketmq.spark_versions import HAS_ARROW_STREAM_WRITER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_WAIT_SECONDS = 300
_SOURCE_COLUMNS = "brokerName string, queueId int, queueOffset long, body binary"
_TASKS = 4


def main() -> None:
    """Copy the topic and exit; errors of Spark are raised."""
    arguments = _arguments()
    spark = _session(arguments)
    try:
        _copy_batch(spark, arguments)
        if arguments.register:
            spark.dataSource.register(pyspark_rocketmq.RocketMQDataSource)
        _copy_stream(spark, arguments)
    finally:
        spark.stop()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name-servers", required=True)
    parser.add_argument("--source", required=True, help="topic to read")
    parser.add_argument("--batch-sink", required=True, help="topic for the copy by a batch")
    parser.add_argument("--stream-sink", required=True, help="topic for the copy by a stream")
    parser.add_argument("--checkpoint", required=True, type=Path)
    parser.add_argument(
        "--register", action="store_true", help="register the source before the stream starts"
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--master", help="Spark master: a cluster's URL, or local[2]")
    where.add_argument("--remote", help="address of a Spark Connect server")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="Spark setting")
    return parser.parse_args()


def _session(arguments: argparse.Namespace) -> SparkSession:
    builder = SparkSession.builder
    builder = builder.remote(arguments.remote) if arguments.remote else builder.master(arguments.master)
    for setting in arguments.conf:
        key, _, value = setting.partition("=")
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _copy_batch(spark: SparkSession, arguments: argparse.Namespace) -> None:
    reader = spark.read.format("rocketmq").schema(_SOURCE_COLUMNS).options(**_source(arguments))
    _write(_copies(reader.load()), _sink(arguments, arguments.batch_sink))


def _copy_stream(spark: SparkSession, arguments: argparse.Namespace) -> None:
    reader = spark.readStream.format("rocketmq").schema(_SOURCE_COLUMNS)
    rows = reader.option("startingOffsets", "earliest").options(**_source(arguments)).load()
    writer, sink = _copies(rows).writeStream, _sink(arguments, arguments.stream_sink)
    if HAS_ARROW_STREAM_WRITER:
        writer = writer.format("rocketmq").options(**sink)
    else:
        writer = writer.foreachBatch(lambda batch, _: _write(batch, sink))
    query = writer.trigger(availableNow=True).option("checkpointLocation", str(arguments.checkpoint)).start()
    if not query.awaitTermination(_WAIT_SECONDS):
        raise TimeoutError(f"the stream has not ended after {_WAIT_SECONDS} s: {query.lastProgress}")


def _write(rows: DataFrame, sink: dict[str, str]) -> None:
    rows.write.format("rocketmq").mode("append").options(**sink).save()


def _source(arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "rocketmq.namesrv.addr": arguments.name_servers,
        "subscribe": arguments.source,
        "minPartitions": _TASKS,
    }


def _sink(arguments: argparse.Namespace, topic: str) -> dict[str, str]:
    return {"rocketmq.namesrv.addr": arguments.name_servers, "topic": topic}


def _copies(rows: DataFrame) -> DataFrame:
    copies = rows.selectExpr("body", "concat_ws('/', brokerName, queueId, queueOffset) AS keys")
    return copies.withColumn("tags", _folder_of_task())


def _folder_of_task() -> Column:
    # A function with Arrow would need pandas, which the connector does not require.
    folder = udf(lambda: str(Path.cwd()), "string", useArrow=False)
    return folder.asNondeterministic()()


if __name__ == "__main__":
    main()
