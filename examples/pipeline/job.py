"""The Spark job: lines of an access log in, counts by minute and status and alerts out; until SIGTERM.

    python job.py --namesrv 127.0.0.1:9876 --output OUT --checkpoint CHECKPOINT [--master spark://HOST:7077]

It needs nothing but PySpark and the connector, and is the same on one machine and on a cluster. OUT and
CHECKPOINT have to be where driver and executors can write: on a cluster, a shared file system.
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
_LOOK_SECONDS: Final = 1


# --- what it computes ---


def parsed(messages: DataFrame) -> DataFrame:
    """time and status of each line; both null where it is none."""
    line = messages.select(f.col("body").cast("string").alias("line"))
    # Where nothing matches, these are empty texts; the forms with try_ make null of them.
    return line.select(
        f.try_to_timestamp(f.regexp_extract("line", _TIME, 1), f.lit(_TIME_FORMAT)).alias("time"),
        f.regexp_extract("line", _STATUS, 1).try_cast("int").alias("status"),
    ).selectExpr("IF(status IS NULL, NULL, time) AS time", "IF(time IS NULL, NULL, status) AS status")


def counted(lines: DataFrame, watermark: str) -> DataFrame:
    """minute, status, lines: given out once, when the watermark has passed the minute's end."""
    observed = lines.observe("lines", f.count_if(f.col("time").isNull()).alias("unreadable"))
    windows = (
        observed.where("time IS NOT NULL")
        .withWatermark("time", watermark)
        .groupBy(f.window("time", "1 minute"), "status")
        .agg(f.count(f.lit(1)).alias("lines"))
    )
    return windows.select(f.col("window.start").alias("minute"), "status", "lines")


def alerts(counts: DataFrame, percent: int, errors: int) -> DataFrame:
    """The minutes in which too much went wrong, as messages. All counts of a minute have to be there."""
    failed = f.when(f.col("status") >= 500, f.col("lines")).otherwise(0)
    minutes = counts.groupBy("minute").agg(f.sum("lines").alias("lines"), f.sum(failed).alias("errors"))
    bad = minutes.where((f.col("errors") >= errors) & (f.col("errors") * 100 >= f.col("lines") * percent))
    told = bad.select(f.date_format("minute", _MINUTE_FORMAT).alias("minute"), "lines", "errors")
    # Few rows, and in an order of their own: what a repeated batch sends is the same in every respect.
    ordered = told.coalesce(1).sortWithinPartitions("minute")
    return ordered.select(
        f.to_json(f.struct("minute", "lines", "errors")).alias("body"),
        f.lit("too-many-errors").alias("tags"),
        f.col("minute").alias("keys"),
    )


# --- where it writes to ---


def writer(options: argparse.Namespace) -> Callable[[DataFrame, int], None]:
    """What is done with each batch of counts. A batch that is repeated overwrites what it wrote before."""
    namesrv, topic, output = options.namesrv, options.alerts_topic, options.output
    percent, errors = options.alert_percent, options.alert_errors

    def write(batch: DataFrame, number: int) -> None:
        batch.persist()
        try:
            # All partitions have to be computed, also for an empty batch: that is what saves their state.
            if not batch.count():
                return
            batch.coalesce(1).write.mode("overwrite").parquet(f"{output}/batch={number}")
            # The watermark closes a minute for all statuses at once: none of its counts comes later.
            sink = alerts(batch, percent, errors).write.format("rocketmq").mode("append")
            sink.option("rocketmq.namesrv.addr", namesrv).option("topic", topic).save()
        finally:
            batch.unpersist()

    return write


def started(spark: SparkSession, options: argparse.Namespace) -> StreamingQuery:
    """The query, running."""
    source = (
        spark.readStream.format("rocketmq")
        .schema("body binary")  # what is not named is not decoded
        .option("rocketmq.namesrv.addr", options.namesrv)
        .option("subscribe", options.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.max_lines)
    )
    return (
        counted(parsed(source.load()), options.watermark)
        .writeStream.queryName("access log")
        .foreachBatch(writer(options))
        .option("checkpointLocation", options.checkpoint)
        .trigger(processingTime=options.trigger)
        .start()
    )


# --- how it tells of its progress ---


def new_records(query: StreamingQuery, after: int) -> Iterator[dict[str, Any]]:
    """What the batches after the one with that number did."""
    for progress in query.recentProgress:
        # A trigger that found nothing to do tells of a batch that has not been run.
        if progress["batchId"] > after and "addBatch" in progress["durationMs"]:
            yield _record(json.loads(progress.json))


def _record(progress: dict[str, Any]) -> dict[str, Any]:
    (source,) = progress["sources"]
    seconds = progress["durationMs"]["triggerExecution"] / 1000
    began = datetime.fromisoformat(progress["timestamp"]).timestamp()
    return {
        "time": began + seconds,
        "seconds": seconds,
        "batch": progress["batchId"],
        "rows": progress["numInputRows"],
        "read": _messages(source["endOffset"]),
        "stored": _messages(source["latestOffset"]),
        "watermark": progress["eventTime"].get("watermark"),
        "late": sum(each["numRowsDroppedByWatermark"] for each in progress["stateOperators"]),
        "unreadable": progress["observedMetrics"].get("lines", {}).get("unreadable", 0),
    }


def _messages(offsets: dict[str, dict[str, dict[str, int]]]) -> int:
    """Offsets of all queues, together: how many messages come before them."""
    return sum(
        offset for brokers in offsets.values() for each in brokers.values() for offset in each.values()
    )


def follow(query: StreamingQuery, path: Path | None, stop: threading.Event) -> None:
    """Write progress to a file until told to stop. Raises what ended the query."""
    last = -1
    while True:
        stopping = stop.is_set()
        for record in new_records(query, last):
            last = record["batch"]
            if path is not None:
                with path.open("a") as file:
                    file.write(json.dumps(record) + "\n")
        if stopping or query.awaitTermination(_LOOK_SECONDS):
            return


# --- the program ---


def session(options: argparse.Namespace) -> SparkSession:
    """Spark, here or on a cluster."""
    # Workers would take the python3 of the PATH, which need not have the connector.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("access log").master(options.master)
    builder = builder.config("spark.sql.session.timeZone", "UTC").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.shuffle.partitions", str(options.partitions))
    for setting in options.conf:
        name, _, value = setting.partition("=")
        builder = builder.config(name, value)
    return builder.getOrCreate()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--namesrv", required=True, help="the name server, host:port")
    parser.add_argument("--topic", default="access-log", help="to read; default: %(default)s")
    parser.add_argument("--alerts-topic", default="alerts", help="to write to; default: %(default)s")
    parser.add_argument("--output", required=True, help="folder for the counts, as Parquet")
    parser.add_argument("--checkpoint", required=True, help="folder for the checkpoint")
    parser.add_argument("--master", default="local[2]", help="default: %(default)s")
    parser.add_argument("--partitions", type=int, default=4, help="parts of the state; default: %(default)s")
    parser.add_argument(
        "--watermark", default="10 minutes", help="how late a line may be; default: %(default)s"
    )
    parser.add_argument("--trigger", default="1 second", help="between batches; default: %(default)s")
    parser.add_argument("--max-lines", type=int, default=250_000, help="of a batch; default: %(default)s")
    parser.add_argument(
        "--alert-percent", type=int, default=10, help="an alert: so many 5xx; default: %(default)s"
    )
    parser.add_argument("--alert-errors", type=int, default=5, help="and at least; default: %(default)s")
    parser.add_argument("--progress", type=Path, metavar="FILE", help="append to it what each batch did")
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a Spark setting")
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
