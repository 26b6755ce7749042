"""Draw rate and lag of a run over time: `python -m examples.pipeline.chart WORK` writes WORK/chart.png."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from examples.pipeline.check import Work
from examples.pipeline.records import Record, read_all

_SENT: Final = "#c2571a"
_READ: Final = "#1a6fc2"
_GRAY: Final = "#555555"
_SAMPLES: Final = 1200


@dataclass(frozen=True, slots=True)
class Progress:
    """A growing count and the times at which it was recorded (seconds since the start)."""

    seconds: list[float]
    counts: list[int]

    @classmethod
    def of(cls, records: Sequence[Record], count: str, begin: float) -> Progress:
        """The counts of records, from 0 at the start."""
        later = [record for record in records if record["time"] > begin]
        return cls([0.0, *(one["time"] - begin for one in later)], [0, *(one[count] for one in later)])

    def rates(self, at_least_seconds: float) -> tuple[list[float], list[float]]:
        """Return edges of intervals, and counts per second in each. Records in quick succession share an
        interval.
        """
        edges, marks = [self.seconds[0]], [self.counts[0]]
        for second, count in zip(self.seconds, self.counts, strict=True):
            if second - edges[-1] >= at_least_seconds:
                edges.append(second)
                marks.append(count)
        if edges[-1] < self.seconds[-1]:  # the last interval takes the remainder
            begun = max(1, len(edges) - 1)
            edges[begun:], marks[begun:] = [self.seconds[-1]], [self.counts[-1]]
        steps = zip(pairwise(edges), pairwise(marks), strict=True)
        return edges, [(after - before) / (end - begin) for (begin, end), (before, after) in steps]

    def between(self, second: float) -> float:
        """Return the count at a time, interpolated between two records."""
        for (begin, end), (before, after) in zip(pairwise(self.seconds), pairwise(self.counts), strict=True):
            if begin <= second < end:
                return before + (after - before) * (second - begin) / (end - begin)
        return float(self.counts[-1])

    def at(self, second: float) -> int:
        """Return the count at a time as recorded last."""
        passed = [count for when, count in zip(self.seconds, self.counts, strict=True) if when <= second]
        return passed[-1]


def lag(sent: Progress, read: Progress) -> tuple[list[float], list[float]]:
    """Return times, and the number of messages sent but not in a finished batch."""
    end = max(sent.seconds[-1], read.seconds[-1])
    even = [end * number / _SAMPLES for number in range(_SAMPLES + 1)]
    times = sorted({*even, *read.seconds})
    return times, [max(0.0, sent.between(second) - read.at(second)) for second in times]


def draw(work: Work) -> None:
    """Write the chart. Raises ValueError if the run has no records."""
    replayed, batches = read_all(work.replay_progress), read_all(work.job_progress)
    if not replayed or not batches:
        raise ValueError(f"{work.folder} has no records of a run")
    begin = replayed[0]["time"]
    sent, read = Progress.of(replayed, "sent", begin), Progress.of(batches, "read", begin)
    mpl.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure = Figure(figsize=(11, 6.5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    _draw_rates(above, sent, read)
    _draw_lag(below, sent, read)
    figure.suptitle(
        f"{sent.counts[-1]:,} lines sent in {sent.seconds[-1]:.0f} s, "
        f"read in {len(batches)} batches by {read.seconds[-1]:.0f} s"
    )
    figure.savefig(work.chart, dpi=110)


def _draw_rates(axes: Axes, sent: Progress, read: Progress) -> None:
    edges, rates = sent.rates(1.0)
    axes.stairs(rates, edges, color=_SENT, linewidth=1.6, label="sent")
    edges, rates = read.rates(1.0)
    axes.stairs(rates, edges, color=_READ, linewidth=1.6, label="read, by batch")
    axes.set_ylabel("lines per second")
    axes.set_title("rate", loc="left", fontsize=10)
    _finish(axes)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False)


def _draw_lag(axes: Axes, sent: Progress, read: Progress) -> None:
    times, behind = lag(sent, read)
    axes.fill_between(times, behind, color=_READ, alpha=0.25, linewidth=0)
    axes.plot(times, behind, color=_READ, linewidth=1.2)
    axes.set_ylabel("lag, lines")
    axes.set_title("lag: sent, and not yet in a batch that has ended", loc="left", fontsize=10)
    axes.set_xlabel("seconds")
    _finish(axes)


def _finish(axes: Axes) -> None:
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(axis="y", color=_GRAY, alpha=0.2)
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path, help="folder of a run")
    draw(Work(parser.parse_args().work))


if __name__ == "__main__":
    main()
