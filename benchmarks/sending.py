"""Loads of the first table: all kinds of sends, and the drain of a backlog."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks.bench import Bench, Load
from benchmarks.comparison import Figure, alternate, count_failed
from benchmarks.load import WARM_UP_SECONDS

TOPIC: Final = "Bench"
_DRAIN_TOPIC: Final = "Drain"
_DRAIN_COUNT = 2_000_000
_MICROS = "µs"
_RATE = "messages/s"


async def sync_128(bench: Bench) -> Sequence[Figure]:
    """Synchronous sends, 64 threads, 128 B, and the broker's CPU time per send."""
    figures = [
        Figure(f"synchronous sends, 64 threads, 128 B, {bench.headers}", _RATE, at_least=1.2, must=True),
        Figure(f"broker CPU per synchronous send, {bench.headers}", _MICROS, at_most=0.5, must=True),
    ]
    return await bench.compare(
        figures,
        lambda side: bench.client(side).sync(
            TOPIC, seconds=bench.seconds, warmup_s=WARM_UP_SECONDS, server=bench.usage(side)
        ),
        lambda result: (result.messages_per_second, result.server_cpu_micros_per_message or 0.0),
    )


async def sync_1k(bench: Bench) -> Sequence[Figure]:
    """Synchronous sends, 64 threads, 1 KiB."""
    return await bench.compare(
        [Figure(f"synchronous sends, 64 threads, 1 KiB, {bench.headers}", _RATE, at_least=1.2, must=True)],
        lambda side: bench.client(side).sync(
            TOPIC, size=1024, seconds=bench.seconds, warmup_s=WARM_UP_SECONDS
        ),
        lambda result: (result.messages_per_second,),
    )


async def one_thread(bench: Bench) -> Sequence[Figure]:
    """One thread, 128 B: latency."""
    return await bench.compare(
        [
            Figure(f"one thread, 128 B: median latency, {bench.headers}", _MICROS, at_most=0.75),
            Figure(f"one thread, 128 B: p99 latency, {bench.headers}", _MICROS, at_most=0.8),
        ],
        lambda side: bench.client(side).one_thread(TOPIC, seconds=bench.seconds, warmup_s=WARM_UP_SECONDS),
        lambda result: (result.median_micros, result.p99_micros),
    )


async def async_2000(bench: Bench) -> Sequence[Figure]:
    """Asynchronous sends, 2,000 in flight."""
    return await bench.compare(
        [Figure(f"asynchronous sends, 2,000 in flight, {bench.headers}", _RATE, at_least=1.2, must=True)],
        lambda side: bench.client(side).asynchronous(TOPIC, seconds=bench.seconds, warmup_s=WARM_UP_SECONDS),
        lambda result: (result.messages_per_second,),
    )


async def batch_32(bench: Bench) -> Sequence[Figure]:
    """Batches of 32 x 128 B, 8 threads."""
    return await bench.compare(
        [Figure(f"batches of 32 x 128 B, 8 threads, {bench.headers}", _RATE, at_least=1.3)],
        lambda side: bench.client(side).batch(TOPIC, seconds=bench.seconds, warmup_s=WARM_UP_SECONDS),
        lambda result: (result.messages_per_second,),
    )


async def transactions(bench: Bench) -> Sequence[Figure]:
    """Messages in transactions, 32 threads, 128 B, committed at once."""
    return await bench.compare(
        [Figure(f"transactions, 32 threads, committed at once, {bench.headers}", _RATE, at_least=1.2)],
        lambda side: bench.client(side).transactions(TOPIC, seconds=bench.seconds, warmup_s=WARM_UP_SECONDS),
        lambda result: (result.messages_per_second,),
    )


async def drain(bench: Bench) -> Sequence[Figure]:
    """Drain of a backlog of 2 million messages of 128 B, 20 consumer threads."""
    for side in ("ours", "peer"):
        await bench.client(side).fill(_DRAIN_TOPIC, _DRAIN_COUNT)
    return await bench.compare(
        [Figure(f"drain of 2 million messages, 20 threads, {bench.headers}", _RATE, at_least=1.3)],
        lambda side: bench.client(side).drain(_DRAIN_TOPIC, _DRAIN_COUNT),
        lambda result: (result.messages_per_second,),
    )


async def tls_sends(bench: Bench) -> Sequence[Figure]:
    """Our broker: synchronous sends over TLS, 64 threads, 128 B, compared with the same in plain text."""
    figures = [
        Figure(f"our broker: synchronous sends over TLS (peer: plain text), {bench.headers}", _RATE),
        Figure(f"its CPU per send over TLS (peer: plain text), {bench.headers}", _MICROS),
    ]

    async def sends(name: str, *, tls: bool) -> Sequence[float]:
        result = await bench.client("ours", tls=tls).sync(
            TOPIC, seconds=bench.seconds, warmup_s=WARM_UP_SECONDS, server=bench.usage("ours")
        )
        count_failed(figures, name, result)
        return result.messages_per_second, result.server_cpu_micros_per_message or 0.0

    await alternate(
        figures,
        lambda: sends("ours", tls=True),
        lambda: sends("peer", tls=False),
        bench.rounds,
        warm_up=True,
    )
    return figures


LOADS: dict[str, Load] = {
    "sync-128": sync_128,
    "sync-1k": sync_1k,
    "one-thread": one_thread,
    "async": async_2000,
    "batch": batch_32,
    "transactions": transactions,
    "drain": drain,
    "tls": tls_sends,
}
