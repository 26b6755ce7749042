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

# Where the tables stand in the file: begin and end of each.
BROKER_MARKS = ("<!-- table: written by `make bench` -->", "<!-- end of the table -->")
CONSUMING_MARKS = (
    "<!-- table of consuming: written by `make bench` -->",
    "<!-- end of consuming's table -->",
)
STORE_MARKS = ("<!-- table of the store: written by `make bench` -->", "<!-- end of the store's table -->")


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured for one table, and how."""

    figures: Sequence[Figure]
    marks: tuple[str, str]
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
        lines += [table_line(figure) for figure in self.figures]
        return "\n".join(lines)

    def conditions(self) -> str:
        """How and on what it was measured."""
        return (
            f"Measured on {datetime.now(UTC):%Y-%m-%d}: {os.cpu_count()} cores ({processor()}), Python "
            f"{platform.python_version()}, brokers and client on one machine, {self.rounds} alternating "
            f"rounds of {self.seconds} s after {self.warm_up_seconds} s of warming up each broker; it took "
            f"{self.took_seconds / 60:.0f} minutes."
        )


def write_report(report: Report, path: Path) -> None:
    """Put the table between its marks; the rest of the file stays."""
    write_between(path, report.marks, f"{report.conditions()}\n\n{report.table()}")


def write_between(path: Path, marks: tuple[str, str], content: str) -> None:
    """Put a text between two marks of a file (at the end, where there are none); the rest stays."""
    begin, end = marks
    text = path.read_text() if path.exists() else "# Performance\n"
    if begin not in text:
        text = f"{text.rstrip()}\n\n{begin}\n{end}\n"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    path.write_text(f"{before}{begin}\n\n{content}\n\n{end}{after}")


def table_line(figure: Figure) -> str:
    """One figure as a line of a table: work, ours, theirs, ratio, goal, whether it is reached."""
    lower, median, upper = figure.quartiles()
    reached = {True: "yes", False: "**no**", None: ""}[figure.is_reached]
    ours, theirs, ratio = f"{_number(statistics.median(figure.ours))} {figure.unit}", "", ""
    if figure.theirs:
        theirs = f"{_number(statistics.median(figure.theirs))} {figure.unit}"
        ratio = f"{median:.2f} ({lower:.2f}–{upper:.2f})"
    else:
        ours += f" ({_number(lower)}–{_number(upper)})"
    return f"| {figure.name} | {ours} | {theirs} | {ratio} | {figure.goal} | {reached} |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def processor() -> str:
    """The name of this machine's processor."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
