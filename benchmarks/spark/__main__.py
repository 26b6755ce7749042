"""`make bench-spark`: the connector on this project's broker against Spark's Kafka source on Apache Kafka.

python -m benchmarks.spark                      run everything, write docs/performance_spark.md
python -m benchmarks.spark --only batch-128     one row, nothing written; may be repeated
python -m benchmarks.spark --scale 0.05         small topics, for a quick try
python -m benchmarks.spark --list               list the rows

Needs the PySpark version of Spark's Kafka source: `make bench-spark` creates an environment with it.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

import pyspark
from pyspark.sql import SparkSession

from benchmarks.comparison import Figure
from benchmarks.spark.kafka import (
    KAFKA_BROKER,
    KAFKA_SOURCE,
    KafkaServer,
    kafka_server,
    pom_property,
    source_jars,
)
from benchmarks.spark.report import Expense, SparkReport
from benchmarks.spark.rows import ROWS, Measurement, Row, Stage, turns
from benchmarks.spark.session import spark_session
from benchmarks.spark.sides import CONNECTOR, KAFKA, LEAN, Kafka, RocketMQ, Side
from tests.support.own_servers import OwnBroker, OwnNamesrv
from tests.support.toolchain import BuildFailed, ToolMissing

_TARGET: Final = Path("docs/performance_spark.md")
_LARGE_PULLS: Final = f"{CONNECTOR}, large pulls"
# docs/spark/how-to-read-batches.md advises the second one for brokers that Spark reads heavily.
_OUR_BROKERS: Final[Mapping[str, Mapping[str, str]]] = {
    CONNECTOR: {},
    _LARGE_PULLS: {
        "maxTransferCountOnMessageInMemory": "1024",
        "maxTransferBytesOnMessageInMemory": "4194304",
    },
}


@dataclass(slots=True)
class Results:
    """Results of one row, by system and round."""

    row: Row
    by_side: dict[str, list[Measurement]] = field(default_factory=dict)

    def figures(self) -> list[Figure]:
        """Return a line for each configuration of this connector, and one for its CPU if that has a goal."""
        row = self.row
        peer = self.by_side.get(KAFKA, [])
        found = []
        for side, measured in self.by_side.items():
            if side == KAFKA:
                continue
            title = row.title + side.removeprefix(CONNECTOR)
            goal = row.lean_goal if side == LEAN and row.lean_goal is not None else row.goal
            figure = Figure(title, row.unit, **asdict(goal))
            figure.ours, figure.peer = ([each.value for each in each_side] for each_side in (measured, peer))
            found.append(figure)
            if row.cpu_at_most is not None:
                figure = Figure(f"{title}: CPU of all processes", "µs a row", ours_at_most=row.cpu_at_most)
                figure.ours, figure.peer = ([each.cpu_us for each in side] for side in (measured, peer))
                found.append(figure)
        return found

    def expenses(self) -> list[Expense]:
        """Return the resource usage on each system."""
        peer = self.by_side.get(KAFKA, [])
        return [
            Expense(self.row.title, side, measured, [] if side == KAFKA else peer)
            for side, measured in self.by_side.items()
        ]


def measure(stage: Stage, row: Row, sides: Sequence[Side], rounds: int, warm_ups: int) -> Results:
    """Measure all systems in turns; the first `warm_ups` rounds do not count."""
    results = Results(row, {side.name: [] for side in sides})
    for number in range(-warm_ups, rounds):
        for side in turns(sides, number):
            measured = row.measure(stage, side)
            cpu = measured.cpu
            print(
                f"  {f'round {number + 1}' if number >= 0 else 'warm-up'}, {side.name}: "
                f"{measured.value:,.4g} {row.unit} (CPU seconds: JVM {cpu.jvm:.2f}, Python {cpu.python:.2f}, "
                f"broker {cpu.broker:.2f})",
                flush=True,
            )
            if number >= 0:
                results.by_side[side.name].append(measured)
    for figure in results.figures():
        print(f"  {figure.summary()}", flush=True)
    return results


def fill(stage: Stage, names: Sequence[str], sides: Sequence[Side]) -> None:
    """Fill the topics that the rows read, and verify the number of messages."""
    rows = [ROWS[name] for name in names]
    topics = {(row.body_bytes, row.headers) for row in rows if row.body_bytes is not None}
    for body_bytes, headers in sorted(topics):
        filling = stage.filling(body_bytes, headers=headers)
        for side in sides:
            print(f"filling {side.name}: {filling.messages:,} messages, {filling.topic}", flush=True)
            side.fill(filling)
            found = side.batch(filling).count()
            if found != filling.messages:
                raise RuntimeError(f"{side.name} has {found} of {filling.messages} messages")


async def run(chosen: Namespace) -> SparkReport:
    """Measure the chosen rows."""
    began = time.monotonic()
    names = chosen.only or list(ROWS)
    results = []
    jars = source_jars(chosen.kafka_source_jars)
    async with AsyncExitStack() as stack:
        brokers = {}
        for name in _chosen_brokers(chosen):
            namesrv = await stack.enter_async_context(OwnNamesrv())
            broker = OwnBroker(namesrv.address, settings=_OUR_BROKERS[name])
            brokers[name] = await stack.enter_async_context(broker)
        kafka = await stack.enter_async_context(kafka_server())
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rmq-bench-spark-")))
        settings = dict(pair.split("=", 1) for pair in chosen.spark_setting)
        spark = stack.enter_context(spark_session(home, jars, settings))
        stage = Stage(spark, home, chosen.scale, jars)
        sides = _sides(spark, brokers, kafka)
        # Both configurations of the columns read the same topics of one broker.
        fill(stage, names, [side for side in sides if side.name != LEAN])
        for name in names:
            row = ROWS[name]
            print(f"{name}: {row.title}", flush=True)
            taking_part = [side for side in sides if _takes_part(side.name, row)]
            results.append(measure(stage, row, taking_part, chosen.rounds, chosen.warmup))
    return SparkReport(
        [figure for each in results for figure in each.figures()],
        [expense for each in results for expense in each.expenses()],
        chosen.rounds,
        chosen.scale,
        pom_property(KAFKA_BROKER, "kafka.version"),
        time.monotonic() - began,
        _notes(chosen),
    )


def _chosen_brokers(chosen: Namespace) -> list[str]:
    return [CONNECTOR] if chosen.only_defaults else list(_OUR_BROKERS)


def _sides(spark: SparkSession, brokers: Mapping[str, OwnBroker], kafka: KafkaServer) -> list[Side]:
    """Return this project's brokers first, Kafka last."""
    ours = [
        RocketMQ(spark, name, broker.namesrv_address, broker.broker_name, broker.process.pid)
        for name, broker in brokers.items()
    ]
    lean = replace(ours[0], name=LEAN, options={"columns": "lean"})
    return [*ours, lean, Kafka(spark, kafka.address, kafka.process.pid)]


def _takes_part(side: str, row: Row) -> bool:
    """Return whether a side is measured for a row: brokers with other settings only if it reads a topic."""
    if side == KAFKA:
        return row.beside_kafka
    if side == LEAN:
        return row.lean_goal is not None
    return side == CONNECTOR or (row.body_bytes is not None and row.beside_kafka)


def _notes(chosen: Namespace) -> list[str]:
    notes = []
    if chosen.spark_setting:
        settings = ", ".join(f"`{pair}`" for pair in chosen.spark_setting)
        notes.append(f"For both systems, Spark has the settings {settings}.")
    if not chosen.only_defaults:
        settings = ", ".join(f"`{key}={value}`" for key, value in _OUR_BROKERS[_LARGE_PULLS].items())
        notes.append(f"Large pulls: the broker has {settings}; the others have default settings.")
    if chosen.kafka_source_jars is not None:
        notes.append(
            "The jars of Spark's Kafka source were not Maven's: "
            + ", ".join(jar.name for jar in source_jars(chosen.kafka_source_jars))
        )
    return notes


def _check_pyspark(parser: argparse.ArgumentParser) -> None:
    wanted = pom_property(KAFKA_SOURCE, "spark.version")
    if pyspark.__version__ != wanted:
        parser.error(
            f"this Python has PySpark {pyspark.__version__}, Spark's Kafka source is of {wanted}: use "
            "`make bench-spark`, or the Python in benchmarks/spark/.venv that it makes"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", action="append", choices=ROWS, help="a row; may be repeated")
    parser.add_argument("--rounds", type=int, default=7, help="rounds, in which the systems take turns (7)")
    parser.add_argument("--warmup", type=int, default=1, help="preceding rounds that do not count (1)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the topics' sizes (1)")
    parser.add_argument("--only-defaults", action="store_true", help="leave out the broker with large pulls")
    parser.add_argument(
        "--spark-setting", action="append", default=[], help="NAME=VALUE for the session; may be repeated"
    )
    parser.add_argument(
        "--kafka-source-jars", type=Path, help="folder with the jars of Spark's Kafka source (default: Maven)"
    )
    parser.add_argument("--write", type=Path, default=None, help="file for the tables")
    parser.add_argument("--list", action="store_true", help="print the rows and exit")
    chosen = parser.parse_args()
    if chosen.list:
        print("\n".join(f"{name:16} {row.title}" for name, row in ROWS.items()))
        return
    _check_pyspark(parser)
    try:
        report = asyncio.run(run(chosen))
    except (ToolMissing, BuildFailed) as missing:
        parser.exit(1, f"{missing}\n")
    print(report.conditions(), report.tables(), sep="\n\n")
    target = chosen.write or (None if chosen.only or chosen.scale != 1 else _TARGET)
    if target is not None:
        report.write(target)
        print(f"written to {target}")


if __name__ == "__main__":
    main()
