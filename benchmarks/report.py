"""The tables of comparisons, as they stand in docs/performance.md."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from benchmarks.comparison import FEWEST_PAIRS, Figure
from rmq_remoting.build_form import BUILD_FORM

OWN: Final = "this broker"
APACHE: Final = "Apache 5.3.3"
_LINE_CHARACTERS: Final = 119
_ROOT: Final = Path(__file__).resolve().parents[1]

# The begin and end marks of each table in the file.
BROKER_MARKS = ("<!-- table: written by `make bench` -->", "<!-- end of the table -->")
CONSUMING_MARKS = (
    "<!-- table of consuming: written by `make bench` -->",
    "<!-- end of consuming's table -->",
)
SDK_MARKS = ("<!-- table of the SDK: written by `make bench` -->", "<!-- end of the SDK's table -->")
STORE_MARKS = ("<!-- table of the store: written by `make bench` -->", "<!-- end of the store's table -->")


@dataclass(frozen=True, slots=True)
class Report:
    """The measurements of one table, and their conditions. `own` and `peer` are the names of the brokers."""

    figures: Sequence[Figure]
    marks: tuple[str, str]
    rounds: int
    seconds: int
    warm_up_seconds: int
    took_seconds: float
    own: str = OWN
    peer: str = APACHE

    def table(self) -> str:
        """Return the table in Markdown."""
        return comparison_table(self.figures, self.own, self.peer)

    def conditions(self) -> str:
        """Return a paragraph on machine, Python build, commit and procedure."""
        return (
            f"Measured on {datetime.now(UTC):%Y-%m-%d} at commit {commit()}: {os.cpu_count()} cores "
            f"({processor()}), {python_build()}, brokers and client on one machine, {self.rounds} "
            f"alternating pairs of {self.seconds} s. Each broker was warmed up for {self.warm_up_seconds} s, "
            "and before each row by one uncounted round of the same load. "
            f"The table took {self.took_seconds / 60:.0f} minutes. "
            "A row reaches its goal if the worse quartile does."
        )


def write_report(report: Report, path: Path) -> None:
    """Write the table between its marks; the rest of the file stays."""
    write_between(path, report.marks, f"{paragraph(report.conditions())}\n\n{report.table()}")


def paragraph(text: str) -> str:
    """Return the text in lines of a page's width."""
    # A line break in a link would break the link.
    return textwrap.fill(text, _LINE_CHARACTERS, break_on_hyphens=False)


def write_between(path: Path, marks: tuple[str, str], content: str) -> None:
    """Write a text between two marks of a file, or at its end if it has none; the rest stays."""
    begin, end = marks
    text = path.read_text() if path.exists() else "# Performance\n"
    if begin not in text:
        text = f"{text.rstrip()}\n\n{begin}\n{end}\n"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    path.write_text(f"{before}{begin}\n\n{content}\n\n{end}{after}")


def comparison_table(figures: Sequence[Figure], own: str, peer: str) -> str:
    """Return a table in Markdown, a row per figure; `own` and `peer` name the two sides in its heading."""
    lines = [
        f"| work | {own} (median) | {peer} (median) | ratio (quartiles) | pairs | goal | reached |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_table_line(figure) for figure in figures]
    return "\n".join(lines)


def _table_line(figure: Figure) -> str:
    """Return one row: work, ours, peer, ratio, pairs, goal, whether the goal is reached."""
    lower, median, upper = figure.quartiles()
    reached = {True: "yes", False: "**no**", None: ""}[figure.is_reached]
    if reached and figure.pairs < FEWEST_PAIRS:
        reached += f" (fewer than {FEWEST_PAIRS} pairs)"
    ours, peer, ratio = f"{_number(statistics.median(figure.ours))} {figure.unit}", "", ""
    if figure.peer:
        peer = f"{_number(statistics.median(figure.peer))} {figure.unit}"
        ratio = f"{median:.2f} ({lower:.2f}–{upper:.2f})"
    else:
        ours += f" ({_number(lower)}–{_number(upper)})"
    if figure.failed["ours"]:
        ours += f", failed sends: {figure.failed['ours']}"
    if figure.failed["peer"]:
        peer += f", failed sends: {figure.failed['peer']}"
    return f"| {figure.name} | {ours} | {peer} | {ratio} | {figure.pairs} | {figure.goal} | {reached} |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def spread(values: Sequence[float], digits: int) -> str:
    """Return the median with the range in brackets, for a table."""
    median, least, most = statistics.median(values), min(values), max(values)
    return f"{median:,.{digits}f} ({least:,.{digits}f} to {most:,.{digits}f})"


def processor() -> str:
    """Return the name of this machine's processor."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def python_build() -> str:
    """Return version and optimizations of this Python (PGO, LTO), and the form of our code."""
    options = sysconfig.get_config_var("CONFIG_ARGS") or ""
    optimizations = optimizations_of(options, sys.base_prefix)
    return f"Python {platform.python_version()} ({optimizations}), our code {BUILD_FORM}"


def optimizations_of(options: str, prefix: str) -> str:
    """Return the optimizations (PGO, LTO) of a Python, by its options of `configure` and its installation.

    Debian enables both for its Python without an option of `configure`.
    """
    found = [
        name
        for name, option in (("PGO", "--enable-optimizations"), ("LTO", "--with-lto"))
        if option in options
    ]
    if not found and prefix == "/usr":
        return "built by the distribution"
    return " and ".join(found) or "built without PGO and LTO"


def commit(root: Path = _ROOT) -> str:
    """Return the commit of a checkout; `+` marks uncommitted changes."""
    hashed = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True, check=False
    )
    if hashed.returncode:
        return "unknown"
    changed = subprocess.run(
        ["git", "status", "--porcelain", "-uno"], cwd=root, capture_output=True, text=True, check=True
    )
    return hashed.stdout.strip() + ("+" if changed.stdout.strip() else "")
