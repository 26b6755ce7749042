"""`make bench`: compare this broker and Apache's 5.3.3 under the same Java program, and write the tables.

python -m benchmarks                     everything, takes hours, writes docs/performance.md
python -m benchmarks --only sync-128     one load, nothing is written
python -m benchmarks --only sdk --only sdk-push --write docs/performance.md      the table of the SDK
python -m benchmarks --list              the loads
python -m benchmarks --against ../old    this checkout and another one, to find a change of speed

Rows of the Java client are measured with binary and with JSON headers; both brokers answer in the
serialization of the requests. The loads of the store start their own brokers; --scale 0.01 makes their
logs, indexes and numbers of queues small, for a quick test.
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

from benchmarks import consuming, sdk_rows, sending
from benchmarks.bench import HEADERS, Bench, Load, Servers
from benchmarks.comparison import FEWEST_PAIRS, Figure, alternate
from benchmarks.held_pulls import held_pulls
from benchmarks.index_query import index_query
from benchmarks.many_queues import many_queues
from benchmarks.ours import our_servers
from benchmarks.peer import apache_peer
from benchmarks.rebuild import rebuild
from benchmarks.recovery import recovery
from benchmarks.report import (
    APACHE,
    BROKER_MARKS,
    CONSUMING_MARKS,
    OWN,
    SDK_MARKS,
    STORE_MARKS,
    Report,
    commit,
    write_report,
)
from benchmarks.rollover import rollover
from benchmarks.sdk_checkouts import sdk_push_beside, sdk_sends_beside
from benchmarks.state_size import state_size
from benchmarks.store_bench import StoreBench, StoreLoad
from benchmarks.sync_flush import sync_flush
from benchmarks.timers import timer_backlog, timers
from benchmarks.verify_speed import verify_speed

# The goal of each row beside another checkout: ours / peer for rates, the inverse for times.
NOT_SLOWER = 0.97

# Loads that also compare this checkout with another one.
CHECKOUT_LOADS = {*sending.LOADS, *consuming.LOADS, *sdk_rows.LOADS} - consuming.ONCE

# Each of these starts its own brokers: with other settings, or on large directories.
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
    "verify": verify_speed,
    "state-size": state_size,
}


async def warm_up(bench: Bench, seconds: int) -> None:
    """Send to both brokers without counting: a JVM is half as fast in its first minute."""
    for side in ("ours", "peer"):
        print(f"warming up {side} for {seconds} s, {bench.headers}", flush=True)
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

    async def peer() -> Sequence[float]:
        async with apache_peer() as peer:
            await asyncio.sleep(2)
            return (
                peer.broker_start_seconds,
                peer.broker.usage().anonymous_bytes / mebibyte,
                peer.namesrv.usage().anonymous_bytes / mebibyte,
            )

    figures = [ready, memory, namesrv]
    await alternate(figures, ours, peer, count)
    return figures


async def run_sending(names: Sequence[str], chosen: Namespace) -> Report:
    """Run the chosen loads of the first table."""
    began = time.monotonic()
    figures = [] if chosen.against else [*await starts(min(3, chosen.rounds))]
    for header in chosen.header or HEADERS:
        figures += await run(sending.LOADS, names, {}, header, chosen)
    return _report(figures, BROKER_MARKS, chosen, began)


async def run_consuming(names: Sequence[str], chosen: Namespace) -> Report:
    """Run the chosen loads of the table of consuming."""
    began = time.monotonic()
    figures: list[Figure] = []
    for header in chosen.header or HEADERS:
        left_out = frozenset[str]() if header == "JSON" else consuming.ONCE | consuming.JSON_ONLY
        wanted = [name for name in names if name not in left_out]
        figures += await run(consuming.LOADS, wanted, consuming.SETTINGS, header, chosen)
    return _report(figures, CONSUMING_MARKS, chosen, began)


async def run_sdk(names: Sequence[str], chosen: Namespace) -> Report:
    """Run the chosen loads of the SDK's table, which need no broker but ours."""
    began = time.monotonic()
    figures: list[Figure] = []
    if chosen.against:
        if "sdk" in names:
            figures += await sdk_sends_beside(chosen.against, rounds=chosen.rounds, seconds=chosen.seconds)
        if "sdk-push" in names:
            figures += await sdk_push_beside(chosen.against, rounds=chosen.rounds)
        return _report(figures, SDK_MARKS, chosen, began)
    with tempfile.TemporaryDirectory(prefix="rmq-bench-client-") as home:
        async with our_servers() as ours:
            bench = Bench(ours, ours, Path(home), chosen.rounds, chosen.seconds, "JSON")
            try:
                print(f"warming up for {chosen.warmup} s", flush=True)
                await bench.client("ours").sync(sending.TOPIC, seconds=chosen.warmup, warmup_s=1)
                for name in names:
                    print(f"{name}: {sdk_rows.LOADS[name].__doc__}", flush=True)
                    figures += await sdk_rows.LOADS[name](bench)
            finally:
                bench.close()
    amounts = chosen.rounds, chosen.seconds, chosen.warmup
    return sdk_rows.SdkReport(figures, SDK_MARKS, *amounts, time.monotonic() - began, "our SDK", "peer")


async def run(
    loads: Mapping[str, Load],
    names: Sequence[str],
    settings: Mapping[str, str],
    header: str,
    chosen: Namespace,
) -> list[Figure]:
    """Run some loads on one pair of warm brokers that both answer in `header`."""
    figures: list[Figure] = []
    if not names:
        return figures
    with tempfile.TemporaryDirectory(prefix="rmq-bench-client-") as home:
        async with AsyncExitStack() as stack:
            ours = await stack.enter_async_context(our_servers(settings))
            peer: Servers
            if chosen.against:
                peer = await stack.enter_async_context(our_servers(settings, chosen.against))
            else:
                peer = await stack.enter_async_context(apache_peer(settings=dict(settings), header=header))
            bench = Bench(ours, peer, Path(home), chosen.rounds, chosen.seconds, header)
            stack.callback(bench.close)
            await warm_up(bench, chosen.warmup)
            for name in names:
                print(f"{name}, {bench.headers}: {loads[name].__doc__}", flush=True)
                figures += await loads[name](bench)
    return figures


def _report(figures: Sequence[Figure], marks: tuple[str, str], chosen: Namespace, began: float) -> Report:
    """Put a table together; beside another checkout, each row has the goal not to be slower."""
    own, peer = OWN, APACHE
    if chosen.against:
        own, peer = f"commit {commit()}", f"commit {commit(chosen.against)}"
        for figure in figures:
            is_rate = figure.unit == "messages/s"
            figure.must, figure.ours_at_least, figure.ours_at_most = False, None, None
            figure.at_least = NOT_SLOWER if is_rate else None
            figure.at_most = None if is_rate else round(1 / NOT_SLOWER, 2)
    took = time.monotonic() - began
    return Report(figures, marks, chosen.rounds, chosen.seconds, chosen.warmup, took, own, peer)


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


async def run_all(chosen: Namespace, target: Path | None) -> None:
    """Run the loads chosen on the command line, all by default. Each table is written once it is complete."""
    names = chosen.only or [*sending.LOADS, *sdk_rows.LOADS, *consuming.LOADS, *STORE_LOADS]
    if chosen.against:
        names = [name for name in names if name in CHECKOUT_LOADS]
    if first := [name for name in names if name in sending.LOADS]:
        publish(await run_sending(first, chosen), target)
    if of_sdk := [name for name in names if name in sdk_rows.LOADS]:
        publish(await run_sdk(of_sdk, chosen), target)
    if second := [name for name in names if name in consuming.LOADS]:
        publish(await run_consuming(second, chosen), target)
    if store := [name for name in names if name in STORE_LOADS]:
        amounts = chosen.rounds, chosen.seconds, chosen.warmup
        publish(await run_store(store, *amounts, chosen.scale), target)


def publish(report: Report, target: Path | None) -> None:
    """Print a table, and write it into `target`, if there is one."""
    print(f"{report.conditions()}\n\n{report.table()}\n", flush=True)
    if target is not None:
        write_report(report, target)
        print(f"written to {target}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    every_load = {**sending.LOADS, **sdk_rows.LOADS, **consuming.LOADS, **STORE_LOADS}
    parser.add_argument("--only", action="append", choices=every_load, help="a load; may be repeated")
    parser.add_argument("--header", action="append", choices=HEADERS, help="only rows with these headers")
    parser.add_argument("--rounds", type=int, default=FEWEST_PAIRS, help="pairs of measurements (7)")
    parser.add_argument("--seconds", type=int, default=8, help="counted seconds of one measurement (8)")
    parser.add_argument("--warmup", type=int, default=60, help="uncounted seconds of each broker (60)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the store's sizes (1)")
    parser.add_argument(
        "--against", type=Path, help="compare with broker and SDK of another checkout, not with Apache's"
    )
    parser.add_argument("--write", type=Path, default=None, help="file for the tables")
    parser.add_argument("--list", action="store_true", help="print the loads and exit")
    chosen = parser.parse_args()
    if chosen.list:
        print("\n".join(f"{name:14} {load.__doc__}" for name, load in every_load.items()))
        return
    is_all = not (chosen.only or chosen.header or chosen.against) and chosen.scale == 1
    asyncio.run(run_all(chosen, chosen.write or (Path("docs/performance.md") if is_all else None)))


if __name__ == "__main__":
    main()
