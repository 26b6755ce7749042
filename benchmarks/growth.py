"""How the cost of a send grows with connections, queues and the size of a message: a chart each.

python -m benchmarks.growth                      all three, takes about an hour, writes docs/images
python -m benchmarks.growth --only connections   one of them
python -m benchmarks.growth --write DIR          charts and table elsewhere

Both brokers run at the same time and take turns under the same load. Sends over connections come from a
Python program (benchmarks.many_connections), the others from Apache's Java client with 64 threads. All have
binary headers.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import matplotlib as mpl
import uvloop
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from benchmarks.load import LoadClient
from benchmarks.many_connections import many_connections
from benchmarks.ours import our_servers
from benchmarks.peer import apache_peer
from benchmarks.report import APACHE, OWN, commit, processor, python_build, write_between
from tests.support import toolchain
from tests.support.processes import Usage

_MARKS: Final = ("<!-- growth: written by `make bench-growth` -->", "<!-- end of growth -->")
_COLORS: Final = {"ours": "#1a6fc2", "peer": "#c2571a"}
_NAMES: Final = {"ours": OWN, "peer": APACHE}
_CONNECTIONS: Final = (1, 10, 100, 1_000, 10_000)
_QUEUES: Final = (1, 10, 100, 1_000, 10_000, 20_000)
_SIZES: Final = (16, 128, 1_024, 8_192, 65_536, 262_144, 1_048_576)
_IN_FLIGHT: Final = 64
_QUEUES_PER_TOPIC: Final = 10


@dataclass(slots=True)
class Side:
    """One broker while it runs."""

    name: str
    client: LoadClient
    port: int
    usage: Callable[[], Usage]


@dataclass(slots=True)
class Point:
    """The rounds of one load: sends per second and CPU time of the broker per send in µs, by side."""

    amount: int
    rates: dict[str, list[float]] = field(default_factory=lambda: {"ours": [], "peer": []})
    micros: dict[str, list[float]] = field(default_factory=lambda: {"ours": [], "peer": []})


Measure = Callable[[Side, int, int], Awaitable[tuple[float, float]]]
"""Loads a side with an amount for some seconds; returns sends per second, and CPU time per send in µs."""


async def _by_connections(side: Side, connections: int, seconds: int) -> tuple[float, float]:
    async with many_connections(side.port, connections, _IN_FLIGHT) as opened:
        await opened.send(1)
        before, began = side.usage().cpu_seconds, time.monotonic()
        rate = await opened.send(seconds)
        cpu_seconds = side.usage().cpu_seconds - before
        return rate, cpu_seconds * 1e6 / (rate * (time.monotonic() - began))


async def _by_queues(side: Side, queues: int, seconds: int) -> tuple[float, float]:
    topics = max(1, queues // _QUEUES_PER_TOPIC)
    result = await side.client.sync(
        f"Queues-{queues}",
        topics=topics,
        queues=min(queues, _QUEUES_PER_TOPIC),
        threads=_IN_FLIGHT,
        seconds=seconds,
        server=side.usage,
    )
    return result.messages_per_second, result.server_cpu_micros_per_message or 0.0


async def _by_size(side: Side, size: int, seconds: int) -> tuple[float, float]:
    result = await side.client.sync(
        "Sizes", size=size, threads=_IN_FLIGHT, seconds=seconds, server=side.usage
    )
    return result.messages_per_second, result.server_cpu_micros_per_message or 0.0


@dataclass(frozen=True, slots=True)
class Sweep:
    """One chart."""

    name: str
    axis: str
    amounts: Sequence[int]
    measure: Measure


_SWEEPS: Final = {
    sweep.name: sweep
    for sweep in (
        Sweep("connections", "connections, at most 64 sends in flight", _CONNECTIONS, _by_connections),
        Sweep("queues", "queues that get messages, 64 threads", _QUEUES, _by_queues),
        Sweep("sizes", "bytes of a message's body, 64 threads", _SIZES, _by_size),
    )
}


async def _run(sweep: Sweep, rounds: int, seconds: int) -> list[Point]:
    """Measure all amounts on one pair of brokers, after one uncounted round of the smallest amount."""
    points = [Point(amount) for amount in sweep.amounts]
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rmq-growth-")))
        ours = await stack.enter_async_context(our_servers())
        apaches = await stack.enter_async_context(apache_peer(header="ROCKETMQ"))
        sides = [
            Side("ours", _client(ours.namesrv_address, home / "ours"), ours.port, ours.usage),
            Side("peer", _client(apaches.namesrv_address, home / "peer"), apaches.broker.port, apaches.usage),
        ]
        for side in sides:
            await sweep.measure(side, sweep.amounts[0], seconds)
        for number in range(rounds):
            for point in points:
                for side in sides if number % 2 == 0 else reversed(sides):
                    rate, micros = await sweep.measure(side, point.amount, seconds)
                    point.rates[side.name].append(rate)
                    point.micros[side.name].append(micros)
                    print(
                        f"{sweep.name} {point.amount:,}, round {number + 1}, {side.name}: "
                        f"{rate:,.0f} sends/s, {micros:.1f} µs",
                        flush=True,
                    )
    return points


def _client(namesrv_address: str, home: Path) -> LoadClient:
    return LoadClient(toolchain.bench_client(), namesrv_address, home)


def _draw(sweep: Sweep, points: Sequence[Point], path: Path) -> None:
    """Draw rate and CPU time side by side: medians, with bars from the smallest to the largest round."""
    mpl.rcParams["svg.hashsalt"] = "rmq"  # equal figures give equal files
    mpl.rcParams["svg.fonttype"] = "none"
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for axes, values, title in (
        (left, [point.rates for point in points], "sends per second"),
        (right, [point.micros for point in points], "broker's CPU time per send, µs"),
    ):
        for side in ("ours", "peer"):
            rounds = [each[side] for each in values]
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
    figure.savefig(path, metadata={"Date": None})


def _table(results: Sequence[tuple[Sweep, Sequence[Point]]]) -> str:
    lines = [
        f"| | | {OWN}, sends/s | {APACHE}, sends/s | {OWN}, CPU per send | {APACHE}, CPU per send |",
        "|---|---|---|---|---|---|",
    ]
    for sweep, points in results:
        for point in points:
            cells = [f"{statistics.median(point.rates[side]):,.0f}" for side in ("ours", "peer")]
            cells += [f"{statistics.median(point.micros[side]):,.1f} µs" for side in ("ours", "peer")]
            lines.append(f"| {sweep.name} | {point.amount:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _conditions(rounds: int, seconds: int) -> str:
    return (
        f"Measured on {datetime.now(UTC):%Y-%m-%d} at commit {commit()} ({processor()}), {python_build()}, "
        f"brokers and client on one machine, medians of {rounds} alternating rounds of {seconds} s; the bars "
        "reach from the smallest to the largest one."
    )


def main() -> None:
    """Measure, draw, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", action="append", choices=_SWEEPS, help="a chart; may be repeated")
    parser.add_argument("--rounds", type=int, default=3, help="pairs of measurements (3)")
    parser.add_argument("--seconds", type=int, default=4, help="counted seconds of one measurement (4)")
    parser.add_argument(
        "--write", type=Path, default=Path("docs"), help="folder of performance.md and images (docs)"
    )
    chosen = parser.parse_args()
    results = []
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for name in chosen.only or _SWEEPS:
            sweep = _SWEEPS[name]
            points = runner.run(_run(sweep, chosen.rounds, chosen.seconds))
            _draw(sweep, points, chosen.write / "images" / f"growth-{name}.svg")
            results.append((sweep, points))
    charts = "\n".join(
        f"![{sweep.axis}: sends per second and CPU time per send](images/growth-{sweep.name}.svg)"
        for sweep, _ in results
    )
    content = f"{_conditions(chosen.rounds, chosen.seconds)}\n\n{charts}\n\n{_table(results)}"
    write_between(chosen.write / "performance.md", _MARKS, content)
    print(content)


if __name__ == "__main__":
    main()
