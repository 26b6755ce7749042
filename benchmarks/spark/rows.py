"""The rows of the table: the work measured on each system, and the goals."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from itertools import count
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from benchmarks.spark.session import jvm_pid
from benchmarks.spark.sides import Side
from benchmarks.spark.topics import QUEUES, Filling
from benchmarks.spark.usage import Cpu, CpuMeter, peak_bytes, reset_peaks

_RATE: Final = "rows/s"
_MEBIBYTE: Final = 1024 * 1024
_GIBIBYTE: Final = 1024 * _MEBIBYTE
_SMALL, _LARGE = 128, 1024  # bytes of a body
_SMALL_MESSAGES: Final = 2_000_000
_LARGE_MESSAGES: Final = 500_000
_SINK_ROWS: Final = 1_000_000
_MICRO_ROWS: Final = 100  # for each queue
_MICRO_BATCHES: Final = 5
# Spark compiles and the JVM warms up in the first batches of a query.
_MICRO_UNCOUNTED: Final = 3
# Of a stream whose first micro-batch does not count.
_STREAM_BATCHES: Final = 4
_MICRO_TRIES: Final = 100

_COLD_TIMEOUT_SECONDS: Final = 600

_numbers = count()


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement of one system: the row's figure, and the CPU for a number of rows."""

    value: float
    rows: int
    cpu: Cpu

    @property
    def cpu_us(self) -> float:
        """The CPU of all processes in microseconds a row."""
        return self.cpu.total * 1e6 / self.rows


@dataclass(frozen=True, slots=True)
class Goal:
    """The goal of a row: ratios to Kafka, or values of this connector in the row's unit."""

    at_least: float | None = None
    at_most: float | None = None
    ours_at_least: float | None = None
    ours_at_most: float | None = None
    must: bool = False


class Stage:
    """The session and the sizes of a run."""

    def __init__(self, spark: SparkSession, home: Path, scale: float, jars: Sequence[Path]) -> None:
        """`jars`: of Spark's Kafka source."""
        self.spark = spark
        self.scale = scale
        self.jars = jars
        self._home = home
        self._jvm_pid = jvm_pid(spark)

    def scaled(self, amount: int) -> int:
        """Scale an amount; at least one row for each queue."""
        return max(QUEUES, int(amount * self.scale))

    def filling(self, body_bytes: int, *, headers: bool = False) -> Filling:
        """Return the topic with bodies of that size."""
        messages = _SMALL_MESSAGES if body_bytes == _SMALL else _LARGE_MESSAGES
        name = "Headers" if headers else "Bodies"
        return Filling(f"{name}-{body_bytes}", self.scaled(messages), body_bytes, headers)

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """Create an empty folder for a checkpoint."""
        with tempfile.TemporaryDirectory(dir=self._home) as path:
            yield Path(path)

    def metered(self, side: Side, rows: int, work: Callable[[], float | None]) -> Measurement:
        """Run the work and measure it. The value is its result, or rows per second."""
        meter = CpuMeter(self._jvm_pid, side.broker_pid)
        began = time.monotonic()
        value = work()
        seconds = time.monotonic() - began
        return Measurement(rows / seconds if value is None else value, rows, meter.used())

    def peak_of_workers(self, work: Callable[[], None]) -> float:
        """Return the largest peak of a Python worker's resident memory, in MiB."""
        reset_peaks(self._jvm_pid)
        work()
        return peak_bytes(self._jvm_pid) / _MEBIBYTE


Measure = Callable[[Stage, Side], Measurement]


@dataclass(frozen=True, slots=True)
class Row:
    """One row. `body_bytes`, `headers`: of the topic that it reads, if any. `beside_kafka`: also measured
    with Kafka. `lean_goal`: with `columns=lean`, for which the row is measured if it is set. `cpu_at_most`:
    goal for the CPU of all processes, in microseconds a row.
    """

    title: str
    unit: str
    goal: Goal
    measure: Measure
    body_bytes: int | None = None
    headers: bool = False
    beside_kafka: bool = True
    lean_goal: Goal | None = None
    cpu_at_most: float | None = None


def batch(body_bytes: int, *, headers: bool = False) -> Measure:
    """Measure a batch read of a topic to the noop sink."""

    def measure(stage: Stage, side: Side) -> Measurement:
        filling = stage.filling(body_bytes, headers=headers)
        rows = side.batch(filling)
        return stage.metered(side, filling.messages, lambda: to_noop(rows))

    return measure


def available_now(body_bytes: int) -> Measure:
    """Measure the same as a stream with `availableNow`, the start of the query included."""

    def measure(stage: Stage, side: Side) -> Measurement:
        filling = stage.filling(body_bytes)

        def work() -> None:
            _all_progress(stage, side, filling, {})

        return stage.metered(side, filling.messages, work)

    return measure


def later_batches(body_bytes: int) -> Measure:
    """Measure a stream's micro-batches from the second one on: rows per second of their triggers.

    The CPU is that of the whole query.
    """

    def measure(stage: Stage, side: Side) -> Measurement:
        filling = stage.filling(body_bytes)
        # Rounded up: a remainder would be a micro-batch of its own.
        limit = {"maxOffsetsPerTrigger": str(-(-filling.messages // _STREAM_BATCHES))}

        def work() -> float:
            counted = [each for each in _all_progress(stage, side, filling, limit) if _input_rows(each)][1:]
            milliseconds = sum(each["durationMs"]["triggerExecution"] for each in counted)
            return 1000 * sum(map(_input_rows, counted)) / float(milliseconds)

        return stage.metered(side, filling.messages, work)

    return measure


def _all_progress(stage: Stage, side: Side, filling: Filling, options: dict[str, str]) -> list[Any]:
    """Read a topic as a stream to the noop sink. Return the progress of its micro-batches.

    Raises RuntimeError if the stream has not read every message once.
    """
    rows = side.stream(filling.topic, options)
    with stage.folder() as checkpoint:
        query = _to_noop_stream(rows, checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        progress = list(query.recentProgress)
    read = sum(map(_input_rows, progress))
    if read != filling.messages:
        raise RuntimeError(f"{side.name}: the stream read {read} of {filling.messages} messages")
    return progress


def cold_start(stage: Stage, side: Side) -> Measurement:
    """Measure the seconds until a stream has read its first 800 rows, in an application of its own.

    The application's session has been created before; nothing was read with it.
    """
    topic = f"Cold-{next(_numbers)}"
    with side.feeder(topic, _SMALL) as feeder:
        feeder.feed(_MICRO_ROWS)
    words = ["--topic", topic, "--broker-pid", str(side.broker_pid), *side.cold_arguments]
    with stage.folder() as home:
        command = [sys.executable, "-m", "benchmarks.spark.cold_start", "--home", str(home), *words]
        finished = subprocess.run(
            [*command, *(f"--jar={jar}" for jar in stage.jars)],
            stdout=subprocess.PIPE,
            timeout=_COLD_TIMEOUT_SECONDS,
            check=True,
        )
    result = json.loads(finished.stdout.splitlines()[-1])
    if result["rows"] != _MICRO_ROWS * QUEUES:
        raise RuntimeError(f"{side.name}: the stream read {result['rows']} rows")
    return Measurement(result["seconds"], result["rows"], Cpu(**result["cpu"]))


def micro_batches(stage: Stage, side: Side) -> Measurement:
    """Measure the milliseconds of a trigger with 800 new rows in 8 queues: the median of many."""
    batch_rows = _MICRO_ROWS * QUEUES
    # A batch has the rows of exactly one feeding, even if a trigger comes in the middle of it.
    limits = dict.fromkeys(("minOffsetsPerTrigger", "maxOffsetsPerTrigger"), str(batch_rows))
    batches = _MICRO_UNCOUNTED + max(5, int(_MICRO_BATCHES * stage.scale))
    topic = f"Micro-{next(_numbers)}"

    def work() -> float:
        with stage.folder() as checkpoint, side.feeder(topic, _SMALL) as feeder:
            feeder.feed(_MICRO_ROWS)
            rows = side.stream(topic, limits)
            query = _to_noop_stream(rows, checkpoint).trigger(processingTime="0 seconds").start()
            try:
                for number in range(1, batches + 1):
                    _until_read(query, number * batch_rows)
                    if number < batches:
                        feeder.feed(_MICRO_ROWS)
                full = [each for each in query.recentProgress if _input_rows(each) == batch_rows]
            finally:
                query.stop()
        if len(full) != batches:
            raise RuntimeError(f"{side.name}: {len(full)} of {batches} batches had {batch_rows} rows")
        counted = full[_MICRO_UNCOUNTED:]
        return float(statistics.median(each["durationMs"]["triggerExecution"] for each in counted))

    return stage.metered(side, batches * batch_rows, work)


def sink(stage: Stage, side: Side) -> Measurement:
    """Measure writing rows of 128 B, generated by Spark, to a topic."""
    rows = stage.scaled(_SINK_ROWS)
    body = f"CAST(rpad(lpad(CAST(id AS string), 16, '0'), {_SMALL}, 'x') AS binary) AS body"
    generated = stage.spark.range(0, rows, 1, 2).selectExpr(body)
    return stage.metered(side, rows, lambda: side.write(generated, f"Sink-{next(_numbers)}"))


def memory(stage: Stage, side: Side) -> Measurement:
    """Measure the peak memory of a Python worker while a query reads 1 GiB of bodies."""
    filling = stage.filling(_LARGE)
    times = -(-int(_GIBIBYTE * stage.scale) // (filling.messages * _LARGE))
    rows = reduce(DataFrame.unionAll, [side.batch(filling)] * times)

    def work() -> float:
        return stage.peak_of_workers(lambda: to_noop(rows))

    return stage.metered(side, filling.messages * times, work)


ROWS: Final = {
    "batch-128": Row(
        "batch read of 2 M x 128 B",
        _RATE,
        Goal(1.2),
        batch(_SMALL),
        _SMALL,
        lean_goal=Goal(1.2),
        cpu_at_most=3.0,
    ),
    "batch-128-headers": Row(
        "the same with a tag and a property (Kafka: headers)",
        _RATE,
        Goal(),
        batch(_SMALL, headers=True),
        _SMALL,
        headers=True,
    ),
    "batch-1k": Row(
        "batch read of 500 k x 1 KiB",
        _RATE,
        Goal(1.5),
        batch(_LARGE),
        _LARGE,
        lean_goal=Goal(1.5),
        cpu_at_most=6.0,
    ),
    "stream-128": Row(
        "stream of 2 M x 128 B, `availableNow`",
        _RATE,
        Goal(1.0, must=True),
        available_now(_SMALL),
        _SMALL,
        lean_goal=Goal(1.0, must=True),
    ),
    "stream-1k": Row(
        "stream of 500 k x 1 KiB, `availableNow`",
        _RATE,
        Goal(1.2, must=True),
        available_now(_LARGE),
        _LARGE,
        lean_goal=Goal(1.2, must=True),
    ),
    "later-128": Row(
        "stream of 2 M x 128 B, second micro-batch onward",
        _RATE,
        Goal(1.1, must=True),
        later_batches(_SMALL),
        _SMALL,
        lean_goal=Goal(1.1, must=True),
    ),
    "later-1k": Row(
        "stream of 500 k x 1 KiB, second micro-batch onward",
        _RATE,
        Goal(1.4, must=True),
        later_batches(_LARGE),
        _LARGE,
        lean_goal=Goal(1.4, must=True),
    ),
    "micro-batch": Row("micro-batch of 800 rows in 8 queues", "ms", Goal(at_most=1.5), micro_batches),
    "cold-start": Row("cold start of a query, first 800 rows", "s", Goal(at_most=1.0), cold_start),
    "sink": Row("sink, rows of 128 B", _RATE, Goal(0.8), sink),
    "memory": Row(
        "peak memory of a Python worker while 1 GiB is read",
        "MiB",
        Goal(ours_at_most=300),
        memory,
        _LARGE,
        beside_kafka=False,
    ),
}


def to_noop(rows: DataFrame) -> None:
    """Let Spark read all rows and discard them."""
    rows.write.format("noop").mode("overwrite").save()


def _to_noop_stream(rows: DataFrame, checkpoint: Path) -> Any:
    return rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))


def _until_read(query: Any, rows: int) -> None:
    for _ in range(_MICRO_TRIES):
        query.processAllAvailable()
        read = sum(_input_rows(progress) for progress in query.recentProgress)
        if read >= rows:
            return
    raise RuntimeError(f"the stream read {read} of {rows} rows")


def _input_rows(progress: Any) -> int:
    return int(progress["numInputRows"])


def turns(sides: Sequence[Side], number: int) -> Sequence[Side]:
    """Return all systems; the first one changes from round to round."""
    begin = number % len(sides)
    return [*sides[begin:], *sides[:begin]]
