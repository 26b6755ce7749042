"""The program that is killed: writes a topic to Parquet, one overwritable folder per batch.

`python -m tests.spark.kill.job stream NAME_SERVERS TOPIC FOLDER` runs until the folder has a file `stop`, and
resumes from the folder's checkpoint. With `batch` instead of `stream` it reads the stored messages and exits.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.spark.kill.job_files import HOME_VARIABLE, JobFiles
from tests.spark.kill.marking_source import MarkingSource

_COLUMNS = "brokerName string, queueId int, queueOffset long, body binary"
_HOLD_POLL_SECONDS = 0.05
_STOP_POLL_SECONDS = 1
# Reads are slowed down by many small pulls, so that kills hit them in the middle.
_SLOW_READS = {"pullBatchSize": "4", "pullsInFlight": "2", "batchMessages": "250", "packBelowRecords": "0"}
_MAX_OFFSETS_PER_TRIGGER = 3000


def main() -> int:
    kind, name_servers, topic, home = sys.argv[1:]
    files = JobFiles(Path(home).resolve())
    files.make()
    os.environ[HOME_VARIABLE] = str(files.home)
    # By default, Spark starts its workers with the python3 of the PATH.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    spark = _session(files)
    options = {"rocketmq.namesrv.addr": name_servers, "subscribe": topic, **_SLOW_READS}
    try:
        if kind == "stream":
            _stream(spark, files, options)
        else:
            _read(spark, options).write.mode("overwrite").parquet(str(files.output))
    finally:
        spark.stop()
    return 0


def _session(files: JobFiles) -> SparkSession:
    spark = (
        # A task may fail 1000 times, because its workers are killed.
        SparkSession.builder.master("local[2,1000]")
        .appName("to be killed")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(files.home / "local"))
        .config("spark.sql.warehouse.dir", str(files.home / "warehouse"))
        .config("spark.driver.extraJavaOptions", f"-Djava.io.tmpdir={files.home} -XX:TieredStopAtLevel=1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("WARN")
    spark.dataSource.register(MarkingSource)
    return spark


def _read(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.read.format(MarkingSource.name()).schema(_COLUMNS).options(**options).load()


def _stream(spark: SparkSession, files: JobFiles, options: dict[str, str]) -> None:
    source = spark.readStream.format(MarkingSource.name()).schema(_COLUMNS).options(**options)
    source = source.options(startingOffsets="earliest", maxOffsetsPerTrigger=_MAX_OFFSETS_PER_TRIGGER)
    pause = threading.Event()

    def write(batch: DataFrame, number: int) -> None:
        files.note("begin", number)
        batch.write.mode("overwrite").parquet(str(files.output / f"batch={number}"))
        files.note("written", number)
        while files.hold.exists():
            pause.wait(_HOLD_POLL_SECONDS)

    writer = source.load().writeStream.foreachBatch(write)
    query = writer.option("checkpointLocation", str(files.checkpoint.path)).start()
    while not files.stop.exists():
        query.awaitTermination(_STOP_POLL_SECONDS)  # raises the error of a failed query
    query.stop()


if __name__ == "__main__":
    sys.exit(main())
