"""`make bench`: this broker and Apache's 5.3.3 under the same Java program, and the table of it.

python -m benchmarks                     everything, about an hour and a half, writes docs/performance.md
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
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.comparison import Figure, alternate
from benchmarks.held_pulls import held_pulls
from benchmarks.index_query import index_query
from benchmarks.load import LoadClient, LoadResult
from benchmarks.many_queues import many_queues
from benchmarks.ours import OurServers, our_servers
from benchmarks.peer import ApachePeer, apache_peer
from benchmarks.rebuild import rebuild
from benchmarks.recovery import recovery
from benchmarks.report import BROKER_MARKS, STORE_MARKS, Report, write_report
from benchmarks.rollover import rollover
from benchmarks.sdk import sdk_sends
from benchmarks.store_bench import StoreBench, StoreLoad
from benchmarks.sync_flush import sync_flush
from tests.support import toolchain
from tests.support.processes import Usage

_TOPIC = "Bench"
_DRAIN_TOPIC = "Drain"
_DRAIN_COUNT = 2_000_000
_MICROS = "µs"
_RATE = "messages/s"


@dataclass(slots=True)
class Bench:
    """Both sides, running, with a client each."""

    ours: OurServers
    theirs: ApachePeer
    home: Path
    rounds: int
    seconds: int

    def client(self, side: str, header: str = "ROCKETMQ") -> LoadClient:
        """The load program against one side."""
        address = self.ours.namesrv_address if side == "ours" else self.theirs.namesrv.address
        return LoadClient(toolchain.bench_client(), address, self.home / f"{side}-{header}", header=header)

    def usage(self, side: str) -> Callable[[], Usage]:
        """Reads the usage of one side's broker."""
        return self.ours.usage if side == "ours" else self.theirs.broker.usage

    async def compare(
        self,
        figures: Sequence[Figure],
        measure: Callable[[str], Awaitable[LoadResult]],
        values: Callable[[LoadResult], Sequence[float]],
    ) -> Sequence[Figure]:
        """Alternate the sides; a round with errors is no measurement."""

        async def side(name: str) -> Sequence[float]:
            result = await measure(name)
            if result.errors:
                raise RuntimeError(f"{result.errors} sends failed on {name}: {result.values}")
            return values(result)

        await alternate(figures, lambda: side("ours"), lambda: side("theirs"), self.rounds)
        return figures


Load = Callable[[Bench], Awaitable[Sequence[Figure]]]


async def sync_128(bench: Bench) -> Sequence[Figure]:
    """Synchronous sends, 64 threads, 128 B, binary headers; and the broker's CPU for one."""
    figures = [
        Figure("synchronous sends, 64 threads, 128 B, binary headers", _RATE, at_least=1.2, must=True),
        Figure("broker CPU per synchronous send", _MICROS, at_most=0.65),
    ]
    return await bench.compare(
        figures,
        lambda side: bench.client(side).sync(_TOPIC, seconds=bench.seconds, server=bench.usage(side)),
        lambda result: (result.messages_per_second, result.server_cpu_micros_per_message or 0.0),
    )


async def sync_1k(bench: Bench) -> Sequence[Figure]:
    """The same with 1 KiB."""
    return await bench.compare(
        [Figure("the same with 1 KiB", _RATE, at_least=1.15)],
        lambda side: bench.client(side).sync(_TOPIC, size=1024, seconds=bench.seconds),
        lambda result: (result.messages_per_second,),
    )


async def sync_json(bench: Bench) -> Sequence[Figure]:
    """The same with JSON headers."""
    return await bench.compare(
        [Figure("the same with JSON headers", _RATE, at_least=1.15)],
        lambda side: bench.client(side, "JSON").sync(_TOPIC, seconds=bench.seconds),
        lambda result: (result.messages_per_second,),
    )


async def one_thread(bench: Bench) -> Sequence[Figure]:
    """One thread, 128 B: latency."""
    return await bench.compare(
        [
            Figure("one thread, 128 B: median latency", _MICROS, at_most=0.75, must=True),
            Figure("one thread, 128 B: p99 latency", _MICROS, at_most=0.8, must=True),
        ],
        lambda side: bench.client(side).one_thread(_TOPIC, seconds=bench.seconds),
        lambda result: (result.median_micros, result.p99_micros),
    )


async def async_2000(bench: Bench) -> Sequence[Figure]:
    """Asynchronous sends, 2,000 in flight."""
    return await bench.compare(
        [Figure("asynchronous sends, 2,000 in flight", _RATE, at_least=1.1)],
        lambda side: bench.client(side).asynchronous(_TOPIC, seconds=bench.seconds),
        lambda result: (result.messages_per_second,),
    )


async def batch_32(bench: Bench) -> Sequence[Figure]:
    """Batches of 32 x 128 B, 8 threads."""
    return await bench.compare(
        [Figure("batches of 32 x 128 B, 8 threads", _RATE, at_least=1.2, must=True)],
        lambda side: bench.client(side).batch(_TOPIC, seconds=bench.seconds),
        lambda result: (result.messages_per_second,),
    )


async def drain(bench: Bench) -> Sequence[Figure]:
    """Draining a backlog of 2 million messages of 128 B, 20 consumer threads."""
    for side in ("ours", "theirs"):
        await bench.client(side).fill(_DRAIN_TOPIC, _DRAIN_COUNT)
    return await bench.compare(
        [Figure("draining a backlog of 2 million, 20 consumer threads", _RATE, at_least=1.0, must=True)],
        lambda side: bench.client(side).drain(_DRAIN_TOPIC, _DRAIN_COUNT),
        lambda result: (result.messages_per_second,),
    )


async def sdk(bench: Bench) -> Sequence[Figure]:
    """Our SDK, 64 tasks in one process, beside the Java client with 64 threads, both against our broker."""
    address = bench.ours.namesrv_address
    figures = [Figure("our SDK: 64 tasks beside the Java client's 64 threads", _RATE, at_least=0.8)]

    async def python_client() -> Sequence[float]:
        return (await sdk_sends(address, _TOPIC, seconds=bench.seconds),)

    async def java_client() -> Sequence[float]:
        return ((await bench.client("ours").sync(_TOPIC, seconds=bench.seconds)).messages_per_second,)

    await alternate(figures, python_client, java_client, bench.rounds)
    return figures


async def sdk_batching(bench: Bench) -> Sequence[Figure]:
    """Our SDK with automatic batching; the goal is a rate of its own, shown as a ratio to it."""
    figures = [Figure("our SDK with automatic batching, to 100,000 messages/s", _RATE, at_least=1.0)]
    address = bench.ours.namesrv_address
    for _ in range(bench.rounds):
        figures[0].ours.append(await sdk_sends(address, _TOPIC, seconds=bench.seconds, batching=True))
        figures[0].theirs.append(100_000.0)
    return figures


LOADS: dict[str, Load] = {
    "sync-128": sync_128,
    "sync-1k": sync_1k,
    "sync-json": sync_json,
    "one-thread": one_thread,
    "async": async_2000,
    "batch": batch_32,
    "drain": drain,
    "sdk": sdk,
    "sdk-batching": sdk_batching,
}

# Each starts brokers of its own: on other settings, or on large directories.
STORE_LOADS: dict[str, StoreLoad] = {
    "sync-flush": sync_flush,
    "recovery": recovery,
    "rebuild": rebuild,
    "rollover": rollover,
    "index-query": index_query,
    "many-queues": many_queues,
    "held-pulls": held_pulls,
}


async def warm_up(bench: Bench, seconds: int) -> None:
    """The same load on both brokers, not counted: a JVM is half as fast in its first minute."""
    for side in ("ours", "theirs"):
        print(f"warming up {side} for {seconds} s", flush=True)
        await bench.client(side).sync(_TOPIC, seconds=seconds, warmup_s=1)


async def starts(count: int) -> tuple[Sequence[Figure], list[float]]:
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
    return figures, ready.ours


async def run(names: Sequence[str], rounds: int, seconds: int, warm_up_seconds: int) -> Report:
    """The chosen loads of the first table."""
    began = time.monotonic()
    figures: list[Figure] = []
    started, _ = await starts(min(3, rounds))
    figures += started
    with tempfile.TemporaryDirectory(prefix="rmq-bench-client-") as home:
        async with AsyncExitStack() as stack:
            ours = await stack.enter_async_context(our_servers())
            theirs = await stack.enter_async_context(apache_peer())
            bench = Bench(ours, theirs, Path(home), rounds, seconds)
            await warm_up(bench, warm_up_seconds)
            for name in names:
                print(f"{name}: {LOADS[name].__doc__}", flush=True)
                figures += await LOADS[name](bench)
    return Report(figures, BROKER_MARKS, rounds, seconds, warm_up_seconds, time.monotonic() - began)


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
    names = chosen.only or [*LOADS, *STORE_LOADS]
    amounts = chosen.rounds, chosen.seconds, chosen.warmup
    reports = []
    if first := [name for name in names if name in LOADS]:
        reports.append(await run(first, *amounts))
    if store := [name for name in names if name in STORE_LOADS]:
        reports.append(await run_store(store, *amounts, chosen.scale))
    return reports


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    every_load = {**LOADS, **STORE_LOADS}
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
