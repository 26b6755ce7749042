"""The table of a comparison, as it stands in docs/performance.md."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.comparison import Figure

BEGIN = "<!-- table: written by `make bench` -->"
END = "<!-- end of the table -->"


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was measured, and how."""

    figures: Sequence[Figure]
    rounds: int
    seconds: int
    warm_up_seconds: int
    took_seconds: float

    def table(self) -> str:
        """The table in Markdown."""
        lines = [
            "| work | ours (median) | Apache 5.3.3 (median) | ratio (quartiles) | to reach | reached |",
            "|---|---|---|---|---|---|",
        ]
        lines += [_line(figure) for figure in self.figures]
        return "\n".join(lines)

    def conditions(self) -> str:
        """How and on what it was measured."""
        return (
            f"Measured on {datetime.now(UTC):%Y-%m-%d}: {os.cpu_count()} cores ({_processor()}), Python "
            f"{platform.python_version()}, brokers and client on one machine, {self.rounds} alternating "
            f"rounds of {self.seconds} s after {self.warm_up_seconds} s of warming up each broker; it took "
            f"{self.took_seconds / 60:.0f} minutes."
        )


def write_report(report: Report, path: Path) -> None:
    """Put the table between its marks, leaving the rest of the file alone."""
    text = path.read_text() if path.exists() else f"# Performance\n\n{BEGIN}\n{END}\n"
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n\n{report.conditions()}\n\n{report.table()}\n\n{END}{after}")


def _line(figure: Figure) -> str:
    lower, median, upper = figure.quartiles()
    reached = {True: "yes", False: "**no**", None: ""}[figure.is_reached]
    ours, theirs = statistics.median(figure.ours), statistics.median(figure.theirs)
    return (
        f"| {figure.name} | {_number(ours)} {figure.unit} | {_number(theirs)} {figure.unit} "
        f"| {median:.2f} ({lower:.2f}–{upper:.2f}) | {figure.goal} | {reached} |"
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
