"""The loads of the first table: sends of every kind, and the drain of a backlog."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks.bench import Bench, Load
from benchmarks.comparison import Figure, alternate
from benchmarks.sdk import sdk_sends

TOPIC: Final = "Bench"
_DRAIN_TOPIC: Final = "Drain"
_DRAIN_COUNT = 2_000_000
_MICROS = "µs"
_RATE = "messages/s"


async def sync_128(bench: Bench) -> Sequence[Figure]:
    """Synchronous sends, 64 threads, 128 B, binary headers; and the broker's CPU for one."""
    figures = [
        Figure("synchronous sends, 64 threads, 128 B, binary headers", _RATE, at_least=1.2, must=True),
        Figure("broker CPU per synchronous send", _MICROS, at_most=0.65),
    ]
    return await bench.compare(
        figures,
        lambda side: bench.client(side).sync(TOPIC, seconds=bench.seconds, server=bench.usage(side)),
        lambda result: (result.messages_per_second, result.server_cpu_micros_per_message or 0.0),
    )


async def sync_1k(bench: Bench) -> Sequence[Figure]:
    """The same with 1 KiB."""
    return await bench.compare(
        [Figure("the same with 1 KiB", _RATE, at_least=1.15)],
        lambda side: bench.client(side).sync(TOPIC, size=1024, seconds=bench.seconds),
        lambda result: (result.messages_per_second,),
    )


async def sync_json(bench: Bench) -> Sequence[Figure]:
    """The same with JSON headers."""
    return await bench.compare(
        [Figure("the same with JSON headers", _RATE, at_least=1.15)],
        lambda side: bench.client(side, "JSON").sync(TOPIC, seconds=bench.seconds),
        lambda result: (result.messages_per_second,),
    )


async def one_thread(bench: Bench) -> Sequence[Figure]:
    """One thread, 128 B: latency."""
    return await bench.compare(
        [
            Figure("one thread, 128 B: median latency", _MICROS, at_most=0.75, must=True),
            Figure("one thread, 128 B: p99 latency", _MICROS, at_most=0.8, must=True),
        ],
        lambda side: bench.client(side).one_thread(TOPIC, seconds=bench.seconds),
        lambda result: (result.median_micros, result.p99_micros),
    )


async def async_2000(bench: Bench) -> Sequence[Figure]:
    """Asynchronous sends, 2,000 in flight."""
    return await bench.compare(
        [Figure("asynchronous sends, 2,000 in flight", _RATE, at_least=1.1)],
        lambda side: bench.client(side).asynchronous(TOPIC, seconds=bench.seconds),
        lambda result: (result.messages_per_second,),
    )


async def batch_32(bench: Bench) -> Sequence[Figure]:
    """Batches of 32 x 128 B, 8 threads."""
    return await bench.compare(
        [Figure("batches of 32 x 128 B, 8 threads", _RATE, at_least=1.2, must=True)],
        lambda side: bench.client(side).batch(TOPIC, seconds=bench.seconds),
        lambda result: (result.messages_per_second,),
    )


async def transactions(bench: Bench) -> Sequence[Figure]:
    """Messages in transactions, 32 threads, 128 B, committed at once."""
    return await bench.compare(
        [Figure("messages in transactions, 32 threads, committed at once", _RATE, at_least=1.0)],
        lambda side: bench.client(side).transactions(TOPIC, seconds=bench.seconds),
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
        return (await sdk_sends(address, TOPIC, seconds=bench.seconds),)

    async def java_client() -> Sequence[float]:
        return ((await bench.client("ours").sync(TOPIC, seconds=bench.seconds)).messages_per_second,)

    await alternate(figures, python_client, java_client, bench.rounds)
    return figures


async def sdk_batching(bench: Bench) -> Sequence[Figure]:
    """Our SDK with automatic batching; the goal is a rate of its own, shown as a ratio to it."""
    figures = [Figure("our SDK with automatic batching, to 100,000 messages/s", _RATE, at_least=1.0)]
    address = bench.ours.namesrv_address
    for _ in range(bench.rounds):
        figures[0].ours.append(await sdk_sends(address, TOPIC, seconds=bench.seconds, batching=True))
        figures[0].theirs.append(100_000.0)
    return figures


async def sdk_trace(bench: Bench) -> Sequence[Figure]:
    """Our SDK, 64 tasks, with message traces (as ours) and without (as theirs), both against our broker."""
    figures = [Figure("our SDK, 64 tasks: with message traces beside without", _RATE, at_least=0.7)]
    address = bench.ours.namesrv_address

    async def traced() -> Sequence[float]:
        return (await sdk_sends(address, TOPIC, seconds=bench.seconds, trace=True),)

    async def untraced() -> Sequence[float]:
        return (await sdk_sends(address, TOPIC, seconds=bench.seconds),)

    await alternate(figures, traced, untraced, bench.rounds)
    return figures


LOADS: dict[str, Load] = {
    "sync-128": sync_128,
    "sync-1k": sync_1k,
    "sync-json": sync_json,
    "one-thread": one_thread,
    "async": async_2000,
    "batch": batch_32,
    "transactions": transactions,
    "drain": drain,
    "sdk": sdk,
    "sdk-batching": sdk_batching,
    "sdk-trace": sdk_trace,
}
