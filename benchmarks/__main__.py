"""`make bench`: this broker and Apache's 5.3.3 under the same Java program, and the table of it.

python -m benchmarks                     everything, for hours, writes docs/performance.md
python -m benchmarks --only sync-128     one load, nothing written
python -m benchmarks --list              the loads

The loads of the store start brokers of their own; --scale 0.01 makes their logs, indexes and numbers of
queues small, to see that they work.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks import consuming, sending
from benchmarks.bench import Bench, Load
from benchmarks.comparison import Figure, alternate
from benchmarks.held_pulls import held_pulls
from benchmarks.index_query import index_query
from benchmarks.many_queues import many_queues
from benchmarks.ours import our_servers
from benchmarks.peer import apache_peer
from benchmarks.rebuild import rebuild
from benchmarks.recovery import recovery
from benchmarks.report import BROKER_MARKS, CONSUMING_MARKS, STORE_MARKS, Report, write_report
from benchmarks.rollover import rollover
from benchmarks.store_bench import StoreBench, StoreLoad
from benchmarks.sync_flush import sync_flush
from benchmarks.timers import timer_backlog, timers

# Each starts brokers of its own: on other settings, or on large directories.
STORE_LOADS: dict[str, StoreLoad] = {
    "sync-flush": sync_flush,
    "recovery": recovery,
    "rebuild": rebuild,
    "rollover": rollover,
    "index-query": index_query,
    "many-queues": many_queues,
    "held-pulls": held_pulls,
    "timers": timers,
    "timer-backlog": timer_backlog,
}


async def warm_up(bench: Bench, seconds: int) -> None:
    """The same load on both brokers, not counted: a JVM is half as fast in its first minute."""
    for side in ("ours", "theirs"):
        print(f"warming up {side} for {seconds} s", flush=True)
        await bench.client(side).sync(sending.TOPIC, seconds=seconds, warmup_s=1)


async def starts(count: int) -> Sequence[Figure]:
    """From exec to ready, and memory when idle, of brokers that are started for it."""
    ready = Figure("from exec to ready, empty store", "s")
    memory = Figure("broker idle: memory without mapped files", "MiB")
    namesrv = Figure("name server idle: memory without mapped files", "MiB")
    mebibyte = 1024 * 1024

    async def ours() -> Sequence[float]:
        async with our_servers() as servers:
            await asyncio.sleep(2)
            return (
                servers.broker_start_seconds,
                servers.usage().anonymous_bytes / mebibyte,
                servers.namesrv.usage().anonymous_bytes / mebibyte,
            )

    async def theirs() -> Sequence[float]:
        async with apache_peer() as peer:
            await asyncio.sleep(2)
            return (
                peer.broker_start_seconds,
                peer.broker.usage().anonymous_bytes / mebibyte,
                peer.namesrv.usage().anonymous_bytes / mebibyte,
            )

    figures = [ready, memory, namesrv]
    await alternate(figures, ours, theirs, count)
    return figures


async def run_sending(names: Sequence[str], rounds: int, seconds: int, warm_up_seconds: int) -> Report:
    """The chosen loads of the first table."""
    began = time.monotonic()
    figures = [*await starts(min(3, rounds))]
    figures += await run(sending.LOADS, names, {}, rounds, seconds, warm_up_seconds)
    return Report(figures, BROKER_MARKS, rounds, seconds, warm_up_seconds, time.monotonic() - began)


async def run_consuming(names: Sequence[str], rounds: int, seconds: int, warm_up_seconds: int) -> Report:
    """The chosen loads of the table of consuming."""
    began = time.monotonic()
    figures = await run(consuming.LOADS, names, consuming.SETTINGS, rounds, seconds, warm_up_seconds)
    return Report(figures, CONSUMING_MARKS, rounds, seconds, warm_up_seconds, time.monotonic() - began)


async def run(
    loads: Mapping[str, Load],
    names: Sequence[str],
    settings: Mapping[str, str],
    rounds: int,
    seconds: int,
    warm_up_seconds: int,
) -> list[Figure]:
    """Some loads, on one pair of brokers that are warm."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="rmq-bench-client-") as home:
        async with AsyncExitStack() as stack:
            ours = await stack.enter_async_context(our_servers(settings))
            theirs = await stack.enter_async_context(apache_peer(settings=dict(settings)))
            bench = Bench(ours, theirs, Path(home), rounds, seconds)
            await warm_up(bench, warm_up_seconds)
            for name in names:
                print(f"{name}: {loads[name].__doc__}", flush=True)
                figures += await loads[name](bench)
    return figures


async def run_store(
    names: Sequence[str], rounds: int, seconds: int, warm_up_seconds: int, scale: float
) -> Report:
    """The chosen loads of the table of the store."""
    began = time.monotonic()
    figures: list[Figure] = []
    for name in names:
        print(f"{name}: {STORE_LOADS[name].__doc__}", flush=True)
        # What one load leaves on the disk would be in the way of the next.
        with tempfile.TemporaryDirectory(prefix="rmq-bench-store-") as home:
            figures += await STORE_LOADS[name](
                StoreBench(Path(home), rounds, seconds, warm_up_seconds, scale)
            )
    return Report(figures, STORE_MARKS, rounds, seconds, warm_up_seconds, time.monotonic() - began)


async def run_all(chosen: Namespace) -> list[Report]:
    """What was chosen on the command line; everything where nothing was."""
    names = chosen.only or [*sending.LOADS, *consuming.LOADS, *STORE_LOADS]
    amounts = chosen.rounds, chosen.seconds, chosen.warmup
    reports = []
    if first := [name for name in names if name in sending.LOADS]:
        reports.append(await run_sending(first, *amounts))
    if second := [name for name in names if name in consuming.LOADS]:
        reports.append(await run_consuming(second, *amounts))
    if store := [name for name in names if name in STORE_LOADS]:
        reports.append(await run_store(store, *amounts, chosen.scale))
    return reports


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    every_load = {**sending.LOADS, **consuming.LOADS, **STORE_LOADS}
    parser.add_argument("--only", action="append", choices=every_load, help="a load; may be given again")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of measurements (5)")
    parser.add_argument("--seconds", type=int, default=8, help="counted seconds of one measurement (8)")
    parser.add_argument("--warmup", type=int, default=60, help="uncounted seconds of each broker (60)")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of the store's sizes (1: those of the goals)"
    )
    parser.add_argument("--write", type=Path, default=None, help="file for the tables")
    parser.add_argument("--list", action="store_true", help="print the loads and end")
    chosen = parser.parse_args()
    if chosen.list:
        print("\n".join(f"{name:14} {load.__doc__}" for name, load in every_load.items()))
        return
    reports = asyncio.run(run_all(chosen))
    for report in reports:
        print(report.table())
    is_all = not chosen.only and chosen.scale == 1
    target = chosen.write or (Path("docs/performance.md") if is_all else None)
    if target is not None:
        for report in reports:
            write_report(report, target)
        print(f"written to {target}")


if __name__ == "__main__":
    main()
