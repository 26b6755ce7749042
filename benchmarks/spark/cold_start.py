"""One cold start: a Spark application whose first query reads a few rows. Run by the row `cold-start`.

Prints a line of JSON: the seconds from the definition of the stream to the end of its first micro-batch, its
rows, and the CPU seconds of that time.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.spark.session import jvm_pid, spark_session
from benchmarks.spark.usage import CpuMeter


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--source", required=True, help="format of the source: rocketmq or kafka")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--option", action="append", default=[], help="NAME=VALUE of the source")
    parser.add_argument("--jar", action="append", type=Path, default=[], help="for spark.jars")
    parser.add_argument("--broker-pid", type=int, required=True, help="process whose CPU counts as well")
    parser.add_argument("--home", type=Path, required=True, help="folder for Spark's files")
    chosen = parser.parse_args()
    options = dict(pair.split("=", 1) for pair in chosen.option)
    options |= {"subscribe": chosen.topic, "startingOffsets": "earliest"}
    with spark_session(chosen.home, chosen.jar) as spark:
        meter = CpuMeter(jvm_pid(spark), chosen.broker_pid)
        began = time.monotonic()
        rows = spark.readStream.format(chosen.source).options(**options).load()
        writer = rows.writeStream.format("noop").option("checkpointLocation", str(chosen.home / "checkpoint"))
        query = writer.trigger(processingTime="0 seconds").start()
        query.processAllAvailable()
        seconds = time.monotonic() - began
        cpu = meter.used()
        read = _rows(query.recentProgress)
        query.stop()
    print(json.dumps({"seconds": seconds, "rows": read, "cpu": asdict(cpu)}))


def _rows(progress: Iterable[Any]) -> int:
    return sum(int(each["numInputRows"]) for each in progress)


if __name__ == "__main__":
    main()
