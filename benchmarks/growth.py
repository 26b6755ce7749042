"""How the cost of a send grows with connections, queues and the size of a message: a chart each.

python -m benchmarks.growth                      all three, takes about an hour, writes docs/images
python -m benchmarks.growth --only connections   one of them
python -m benchmarks.growth --write DIR          charts and table elsewhere

Both brokers run at the same time and take turns under the same load. Sends over connections come from a
Python program (benchmarks.many_connections), the others from Apache's Java client with 64 threads. All have
binary headers. Each chart is one sitting, and is written when it is complete.

Apache's broker keeps a file of each queue open. Where the hard limit of open files does not allow 20,000
queues (ulimit -Hn), the largest amount is the one that it allows.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import matplotlib as mpl
import uvloop
from matplotlib.figure import Figure as Chart
from matplotlib.ticker import EngFormatter

from benchmarks.bench import Bench
from benchmarks.comparison import FEWEST_PAIRS, Figure, alternate
from benchmarks.load import LoadResult
from benchmarks.many_connections import many_connections
from benchmarks.ours import our_servers
from benchmarks.peer import apache_peer
from benchmarks.report import APACHE, OWN, Report, paragraph, write_between

_COLORS: Final = {"ours": "#1a6fc2", "peer": "#c2571a"}
_NAMES: Final = {"ours": OWN, "peer": APACHE}
_CONNECTIONS: Final = (1, 10, 100, 1_000, 10_000)
_QUEUES: Final = (1, 10, 100, 1_000, 10_000, 20_000)
_SIZES: Final = (16, 128, 1_024, 8_192, 65_536, 262_144, 1_048_576)
_IN_FLIGHT: Final = 64
_QUEUES_PER_TOPIC: Final = 10
_WARM_UP_SECONDS: Final = 20
# Open files of Apache's broker beside those of queues, at most: libraries, the log, connections.
_OTHER_FILES: Final = 5_000

Measure = Callable[[Bench, str, int], Awaitable[Sequence[float]]]
"""Loads one side with an amount; returns sends per second, and the broker's CPU time per send in µs."""


async def _by_connections(bench: Bench, side: str, connections: int) -> Sequence[float]:
    usage = bench.usage(side)
    async with many_connections(bench.servers(side).port, connections, _IN_FLIGHT) as opened:
        await opened.send(1)
        before, began = usage().cpu_seconds, time.monotonic()
        rate = await opened.send(bench.seconds)
        cpu_seconds = usage().cpu_seconds - before
        return rate, cpu_seconds * 1e6 / (rate * (time.monotonic() - began))


async def _by_queues(bench: Bench, side: str, queues: int) -> Sequence[float]:
    result = await bench.client(side).sync(
        f"Queues-{queues}",
        topics=max(1, queues // _QUEUES_PER_TOPIC),
        queues=min(queues, _QUEUES_PER_TOPIC),
        threads=_IN_FLIGHT,
        seconds=bench.seconds,
        server=bench.usage(side),
    )
    return _rate_and_micros(result)


async def _by_size(bench: Bench, side: str, size: int) -> Sequence[float]:
    result = await bench.client(side).sync(
        "Sizes", size=size, threads=_IN_FLIGHT, seconds=bench.seconds, server=bench.usage(side)
    )
    return _rate_and_micros(result)


def _rate_and_micros(result: LoadResult) -> Sequence[float]:
    return result.messages_per_second, result.server_cpu_micros_per_message or 0.0


@dataclass(frozen=True, slots=True)
class Sweep:
    """One chart. `alone`: each amount has a pair of brokers of its own.

    Apache's broker maps files of each queue, and Linux limits the mappings of a process (vm.max_map_count,
    65,530).
    """

    name: str
    axis: str
    amounts: Sequence[int]
    measure: Measure
    alone: bool = False

    @property
    def marks(self) -> tuple[str, str]:
        """The lines around the chart in performance.md."""
        return (
            f"<!-- growth with {self.name}: written by `make bench-growth` -->",
            f"<!-- end of {self.name} -->",
        )


def _possible(amounts: Sequence[int]) -> Sequence[int]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return [min(amount, hard - _OTHER_FILES) for amount in amounts]


_SWEEPS: Final = {
    sweep.name: sweep
    for sweep in (
        Sweep("connections", "connections, at most 64 sends in flight", _CONNECTIONS, _by_connections),
        Sweep("queues", "queues that get messages, 64 threads", _possible(_QUEUES), _by_queues, alone=True),
        Sweep("sizes", "bytes of a message's body, 64 threads", _SIZES, _by_size),
    )
}


@dataclass(frozen=True, slots=True)
class Point:
    """One amount of a chart, and its two rows."""

    amount: int
    rate: Figure
    micros: Figure


async def _run(sweep: Sweep, rounds: int, seconds: int) -> list[Point]:
    """Measure all amounts."""
    if not sweep.alone:
        return await _run_on_one_pair(sweep, sweep.amounts, rounds, seconds)
    return [
        point
        for amount in sweep.amounts
        for point in await _run_on_one_pair(sweep, [amount], rounds, seconds)
    ]


async def _run_on_one_pair(sweep: Sweep, amounts: Sequence[int], rounds: int, seconds: int) -> list[Point]:
    """Measure amounts on one pair of brokers."""
    points = []
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rmq-growth-")))
        ours = await stack.enter_async_context(our_servers())
        apaches = await stack.enter_async_context(apache_peer(header="ROCKETMQ"))
        bench = Bench(ours, apaches, home, rounds, seconds, "ROCKETMQ")
        stack.callback(bench.close)
        for side in ("ours", "peer"):
            await bench.client(side).sync("WarmUp", seconds=_WARM_UP_SECONDS, warmup_s=1)
        for amount in amounts:
            name = f"{amount:,} {sweep.name}"
            rate, micros = Figure(f"{name}: sends", "messages/s"), Figure(f"{name}: CPU per send", "µs")
            ours_once, peer_once = (partial(sweep.measure, bench, side, amount) for side in ("ours", "peer"))
            await alternate([rate, micros], ours_once, peer_once, rounds, warm_up=True)
            points.append(Point(amount, rate, micros))
    return points


def _draw(sweep: Sweep, points: Sequence[Point], path: Path) -> None:
    """Draw rate and CPU time side by side: medians, with bars from the smallest to the largest round."""
    mpl.rcParams["svg.hashsalt"] = "rmq"  # equal figures give equal files
    mpl.rcParams["svg.fonttype"] = "none"
    chart = Chart(figsize=(10, 3.6), layout="constrained")
    left, right = chart.subplots(1, 2)
    for axes, figures, title in (
        (left, [point.rate for point in points], "sends per second"),
        (right, [point.micros for point in points], "broker's CPU time per send, µs"),
    ):
        for side in ("ours", "peer"):
            rounds = [getattr(figure, side) for figure in figures]
            medians = [statistics.median(each) for each in rounds]
            bars = [
                [median - min(each) for median, each in zip(medians, rounds, strict=True)],
                [max(each) - median for median, each in zip(medians, rounds, strict=True)],
            ]
            amounts = [point.amount for point in points]
            axes.errorbar(
                amounts, medians, bars, color=_COLORS[side], label=_NAMES[side], marker="o", capsize=3
            )
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_xlabel(sweep.axis)
        axes.set_title(title, fontsize=10)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))
        axes.grid(visible=True, alpha=0.3)
    left.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    chart.savefig(path, metadata={"Date": None})


def main() -> None:
    """Measure, draw, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", action="append", choices=_SWEEPS, help="a chart; may be repeated")
    parser.add_argument("--rounds", type=int, default=FEWEST_PAIRS, help="pairs of measurements (7)")
    parser.add_argument("--seconds", type=int, default=4, help="counted seconds of one measurement (4)")
    parser.add_argument(
        "--write", type=Path, default=Path("docs"), help="folder of performance.md and images (docs)"
    )
    chosen = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for name in chosen.only or _SWEEPS:
            sweep, began = _SWEEPS[name], time.monotonic()
            points = runner.run(_run(sweep, chosen.rounds, chosen.seconds))
            _write(sweep, points, chosen.write, chosen.rounds, chosen.seconds, time.monotonic() - began)


def _write(
    sweep: Sweep, points: Sequence[Point], folder: Path, rounds: int, seconds: int, took_seconds: float
) -> None:
    """Write chart and table of one sitting."""
    _draw(sweep, points, folder / "images" / f"growth-{sweep.name}.svg")
    figures = [figure for point in points for figure in (point.rate, point.micros)]
    report = Report(figures, sweep.marks, rounds, seconds, _WARM_UP_SECONDS, took_seconds)
    chart = f"![{sweep.axis}: sends per second and CPU time](images/growth-{sweep.name}.svg)"
    content = "\n\n".join((paragraph(report.conditions()), chart, report.table()))
    write_between(folder / "performance.md", sweep.marks, content)
    print(content)


if __name__ == "__main__":
    main()
