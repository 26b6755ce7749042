"""The Spark job: counts lines of an access log by minute and status and sends alerts, until SIGTERM.

    python job.py --namesrv 127.0.0.1:9876 --output OUT --checkpoint CHECKPOINT [--master spark://HOST:7077]

It needs only PySpark and the connector, and is the same on one machine and on a cluster. Driver and executors
must be able to write to OUT and CHECKPOINT: on a cluster, these are on a shared file system.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

_TIME: Final = r"^\S+ \S+ \S+ \[([^\]]+)\] "
_STATUS: Final = r'\] "[^"]*" (\d{3}) (?:\d+|-)'
_TIME_FORMAT: Final = "dd/MMM/yyyy:HH:mm:ss Z"
_MINUTE_FORMAT: Final = "yyyy-MM-dd'T'HH:mm:ss'Z'"
_MESSAGE_ID: Final = "msgId"
_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_LOOK_SECONDS: Final = 0.3


# --- computation ---


def parsed(messages: DataFrame) -> DataFrame:
    """Parse time and status of each line; both are null for an unreadable line. Other columns stay."""
    others = [name for name in messages.columns if name != "body"]
    line = messages.select(f.col("body").cast("string").alias("line"), *others)
    # These are empty texts if nothing matches; the try_ functions convert them to null.
    return line.select(
        f.try_to_timestamp(f.regexp_extract("line", _TIME, 1), f.lit(_TIME_FORMAT)).alias("time"),
        f.regexp_extract("line", _STATUS, 1).try_cast("int").alias("status"),
        *others,
    ).selectExpr(
        "IF(status IS NULL, NULL, time) AS time", "IF(time IS NULL, NULL, status) AS status", *others
    )


def counted(lines: DataFrame, watermark: str) -> DataFrame:
    """Count lines by minute and status; each count is emitted once, when the watermark passes the minute's
    end.
    """
    observed = lines.observe("lines", f.count_if(f.col("time").isNull()).alias("unreadable"))
    timed = observed.where("time IS NOT NULL").withWatermark("time", watermark)
    if _MESSAGE_ID in lines.columns:
        # A retry of the producer's, after a broker was killed, has the id of the first attempt.
        timed = timed.dropDuplicatesWithinWatermark([_MESSAGE_ID])
    windows = timed.groupBy(f.window("time", "1 minute"), "status").agg(f.count(f.lit(1)).alias("lines"))
    return windows.select(f.col("window.start").alias("minute"), "status", "lines")


def alerts(counts: DataFrame, percent: int, errors: int) -> DataFrame:
    """Return alerts as messages. All counts of a minute must be in `counts`."""
    failed = f.when(f.col("status") >= 500, f.col("lines")).otherwise(0)
    minutes = counts.groupBy("minute").agg(f.sum("lines").alias("lines"), f.sum(failed).alias("errors"))
    bad = minutes.where((f.col("errors") >= errors) & (f.col("errors") * 100 >= f.col("lines") * percent))
    told = bad.select(f.date_format("minute", _MINUTE_FORMAT).alias("minute"), "lines", "errors")
    # Few rows, in a fixed order: a repeated batch sends exactly the same messages.
    ordered = told.coalesce(1).sortWithinPartitions("minute")
    return ordered.select(
        f.to_json(f.struct("minute", "lines", "errors")).alias("body"),
        f.lit("too-many-errors").alias("tags"),
        f.col("minute").alias("keys"),
    )


# --- output ---


def writer(options: argparse.Namespace) -> Callable[[DataFrame, int], None]:
    """Write each batch of counts. A repeated batch overwrites its earlier output."""
    namesrv, topic, output = options.namesrv, options.alerts_topic, options.output
    percent, errors = options.alert_percent, options.alert_errors

    def write(batch: DataFrame, number: int) -> None:
        batch.persist()
        try:
            # All partitions must be computed, even for an empty batch, because that saves their state.
            if not batch.count():
                return
            batch.coalesce(1).write.mode("overwrite").parquet(f"{output}/batch={number}")
            # The watermark closes a minute for all statuses at once, so its counts are complete.
            sink = alerts(batch, percent, errors).write.format("rocketmq").mode("append")
            # A repeated batch gives its alerts the same row ids, by which consumers drop duplicates.
            sink = sink.option("writeId", f"alerts:{number}")
            sink.option("rocketmq.namesrv.addr", namesrv).option("topic", topic).save()
        finally:
            batch.unpersist()

    return write


def started(spark: SparkSession, options: argparse.Namespace) -> StreamingQuery:
    """Start the query."""
    source = (
        spark.readStream.format("rocketmq")
        # Other columns are not decoded.
        .schema(f"body binary, {_MESSAGE_ID} string" if options.deduplicate else "body binary")
        .option("rocketmq.namesrv.addr", options.namesrv)
        .option("subscribe", options.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.max_lines)
        .option("brokerTimeout", options.broker_timeout)
    )
    return (
        counted(parsed(source.load()), options.watermark)
        .writeStream.queryName("access log")
        .foreachBatch(writer(options))
        .option("checkpointLocation", options.checkpoint)
        .trigger(processingTime=options.trigger)
        .start()
    )


# --- progress ---


def new_records(query: StreamingQuery, after: int) -> Iterator[dict[str, Any]]:
    """Return records of the batches after the one with that number."""
    for progress in query.recentProgress:
        # A trigger without new messages reports a batch that was not run.
        if progress["batchId"] > after and "addBatch" in progress["durationMs"]:
            yield _record(json.loads(progress.json))


def _record(progress: dict[str, Any]) -> dict[str, Any]:
    (source,) = progress["sources"]
    seconds = progress["durationMs"]["triggerExecution"] / 1000
    began = datetime.fromisoformat(progress["timestamp"]).timestamp()
    states = progress["stateOperators"]
    # Names that begin with # are no topics. Queues that have left the query are below #retired.
    topics = source["endOffset"]
    retired = _queues(topics.get("#retired", {}))
    ends = [*_queues({name: topic for name, topic in topics.items() if name[0] != "#"}), *retired]
    return {
        "time": began + seconds,
        "seconds": seconds,
        "batch": progress["batchId"],
        "rows": progress["numInputRows"],
        "read": sum(offset for *_, offset in ends),
        "ends": ends,
        "retired": len(retired),
        "watermark": progress["eventTime"].get("watermark"),
        "late": sum(each["numRowsDroppedByWatermark"] for each in states),
        "duplicates": sum(each.get("customMetrics", {}).get("numDroppedDuplicateRows", 0) for each in states),
        "unreadable": progress["observedMetrics"].get("lines", {}).get("unreadable", 0),
    }


def _queues(topics: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Return broker, number and offset of each queue. The offset is the number of messages before it."""
    return [
        (broker, int(number), offset)
        for brokers in topics.values()
        for broker, queues in brokers.items()
        for number, offset in queues.items()
    ]


def follow(query: StreamingQuery, path: Path | None, stop: threading.Event) -> None:
    """Append progress records to a file until stopped. Raises the error of a failed query."""
    last = -1
    while True:
        stopping = stop.is_set()
        for record in new_records(query, last):
            last = record["batch"]
            if path is not None:
                with path.open("a") as file:
                    file.write(json.dumps(record) + "\n")
        if not query.isActive:
            query.awaitTermination()
        if stopping or not query.isActive:
            return
        stop.wait(_LOOK_SECONDS)


# --- program ---


def session(options: argparse.Namespace) -> SparkSession:
    """Create the session, local or on a cluster."""
    # By default, workers use the python3 of the PATH, which may lack the connector.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("access log").master(options.master)
    builder = builder.config("spark.sql.session.timeZone", "UTC").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.shuffle.partitions", str(options.partitions))
    if options.deduplicate:
        # Millions of ids in the state: outside of the JVM's heap.
        builder = builder.config("spark.sql.streaming.stateStore.providerClass", _ROCKSDB)
    for setting in options.conf:
        name, _, value = setting.partition("=")
        builder = builder.config(name, value)
    return builder.getOrCreate()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--namesrv", required=True, help="name server, host:port")
    parser.add_argument("--topic", default="access-log", help="topic to read; default: %(default)s")
    parser.add_argument("--alerts-topic", default="alerts", help="topic to write to; default: %(default)s")
    parser.add_argument("--output", required=True, help="folder for the counts, as Parquet")
    parser.add_argument("--checkpoint", required=True, help="folder for the checkpoint")
    parser.add_argument("--master", default="local[2]", help="default: %(default)s")
    parser.add_argument(
        "--partitions", type=int, default=4, help="partitions of the state; default: %(default)s"
    )
    parser.add_argument(
        "--watermark", default="10 minutes", help="maximum delay of a line; default: %(default)s"
    )
    parser.add_argument(
        "--deduplicate", action="store_true", help="count messages with the same id once; takes RocksDB"
    )
    parser.add_argument(
        "--broker-timeout", default="2m", help="option brokerTimeout of the source; default: %(default)s"
    )
    parser.add_argument("--trigger", default="1 second", help="interval of batches; default: %(default)s")
    parser.add_argument(
        "--max-lines", type=int, default=250_000, help="lines per batch; default: %(default)s"
    )
    parser.add_argument(
        "--alert-percent", type=int, default=10, help="share of 5xx for an alert; default: %(default)s"
    )
    parser.add_argument("--alert-errors", type=int, default=5, help="and minimum count; default: %(default)s")
    parser.add_argument(
        "--progress", type=Path, metavar="FILE", help="append a record per batch to this file"
    )
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="Spark setting")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with session(options) as spark:
        query = started(spark, options)
        print("ready", flush=True)
        follow(query, options.progress, stop)
        query.stop()


if __name__ == "__main__":
    main()
