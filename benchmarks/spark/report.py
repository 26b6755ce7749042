"""The tables of the comparison with Spark's Kafka source in docs/performance_spark.md."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyspark

from benchmarks.comparison import Figure
from benchmarks.report import (
    commit,
    comparison_table,
    paragraph,
    processor,
    python_build,
    write_between,
)
from benchmarks.spark.rows import Measurement
from benchmarks.spark.sides import CONNECTOR, KAFKA
from benchmarks.spark.usage import Cpu

_MARKS: Final = ("<!-- tables: written by `make bench-spark` -->", "<!-- end of the tables -->")
_MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Expense:
    """Resource usage of one system for a row of the table, by round. `peer`: that of Kafka, if any."""

    title: str
    system: str
    measurements: Sequence[Measurement]
    peer: Sequence[Measurement] = ()

    def line(self) -> str:
        """Return medians of CPU seconds per million rows, and of the ratios to Kafka."""
        parts = [
            [each.cpu.jvm, each.cpu.python, each.cpu.broker, each.cpu.total, each.rows]
            for each in self.measurements
        ]
        values = [
            statistics.median(part[column] * _MILLION / part[-1] for part in parts) for column in range(4)
        ]
        numbers = [f"{value:.2f}" for value in values]
        numbers += [self._ratio(lambda cpu: cpu.executors), self._ratio(lambda cpu: cpu.total)]
        return f"| {self.title} | {self.system} | " + " | ".join(numbers) + " |"

    def _ratio(self, part: Callable[[Cpu], float]) -> str:
        """Return the median ratio of CPU to Kafka's, pair by pair; empty without Kafka."""
        pairs = list(zip(self.measurements, self.peer, strict=bool(self.peer)))
        ratios = [part(one.cpu) / part(other.cpu) for one, other in pairs if part(other.cpu)]
        return f"{statistics.median(ratios):.2f}" if ratios else ""


@dataclass(frozen=True, slots=True)
class SparkReport:
    """All results and the conditions of the measurement. `notes`: further remarks for the reader."""

    figures: Sequence[Figure]
    expenses: Sequence[Expense]
    rounds: int
    scale: float
    kafka_version: str
    took_seconds: float
    notes: Sequence[str]

    def tables(self) -> str:
        """Return both tables in Markdown."""
        lines = [
            comparison_table(self.figures, CONNECTOR, KAFKA),
            "",
            "CPU seconds for a million rows (medians). Python processes are Spark's workers. The last two "
            "columns are ratios to",
            "Kafka's CPU in the same round; executors are Spark's JVM and its Python processes:",
            "",
            "| work | system | Spark's JVM | Python processes | broker | all | executors, of Kafka's | "
            "all, of Kafka's |",
            "|---|---|---|---|---|---|---|---|",
            *(expense.line() for expense in self.expenses),
        ]
        return "\n".join(lines)

    def conditions(self) -> str:
        """Return the conditions of the measurement."""
        scale = "" if self.scale == 1 else f" Sizes were {self.scale:g} of those that the lines name."
        text = (
            f"Measured on {datetime.now(UTC):%Y-%m-%d} at commit {commit()}: {os.cpu_count()} cores "
            f"({processor()}), {python_build()}, PySpark {pyspark.__version__} with two threads, Kafka "
            f"{self.kafka_version}; brokers and Spark on one machine, {self.rounds} rounds in which the "
            f"sides take turns; it took {self.took_seconds / 60:.0f} minutes.{scale}"
        )
        return "\n\n".join(map(paragraph, [text, *self.notes]))

    def write(self, path: Path) -> None:
        """Write the tables between their marks; the rest of the file is unchanged."""
        write_between(path, _MARKS, f"{self.conditions()}\n\n{self.tables()}")
