"""Loads of consuming: end to end, with filters, and by POP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from benchmarks.bench import Bench, Load
from benchmarks.comparison import Figure
from benchmarks.rebalance import rebalance

# Settings of both brokers for these loads. The mode applies to groups whose clients let the broker rebalance.
SETTINGS: Final[Mapping[str, str]] = {"enablePropertyFilter": "true", "defaultMessageRequestMode": "POP"}

_MICROS: Final = "µs"
_RATE: Final = "messages/s"
_KINDS: Final = 100
_TAGGED_COUNT: Final = 2_000_000
_SQL_COUNT: Final = 1_000_000
_POP_COUNT: Final = 500_000


async def end_to_end(bench: Bench) -> Sequence[Figure]:
    """From send to listener, 1 KiB at 5,000/s, Java's producer and push consumer."""
    return await _end_to_end(bench, 5000)


async def end_to_end_1000(bench: Bench) -> Sequence[Figure]:
    """From send to listener, 1 KiB at 1,000/s, which leaves the machine idle time."""
    return await _end_to_end(bench, 1000)


async def _end_to_end(bench: Bench, rate: int) -> Sequence[Figure]:
    what = f"from send to listener, 1 KiB at {rate:,}/s, {bench.headers}"
    figures = [
        Figure(f"{what}: median", _MICROS, at_most=0.5),
        Figure(f"{what}: p99", _MICROS, at_most=0.5),
        Figure(f"{what}: reached rate", _RATE),
        Figure(f"{what}: broker CPU per message", _MICROS),
    ]
    return await bench.compare(
        figures,
        lambda side: bench.client(side).latency(
            "EndToEnd", rate=rate, seconds=bench.seconds, server=bench.usage(side)
        ),
        lambda result: (
            result.median_micros,
            result.p99_micros,
            result.messages_per_second,
            result.server_cpu_micros_per_message or 0.0,
        ),
    )


async def tag_filter(bench: Bench) -> Sequence[Figure]:
    """Drain of the 1 % of 2 million messages that have a tag."""
    return await _filtered(
        bench,
        Figure(f"tag filter, 1 % of 2 million messages, {bench.headers}", _RATE, at_least=1.0, must=True),
        "Tagged",
        _TAGGED_COUNT,
        tags="kind7",
    )


async def sql_filter(bench: Bench) -> Sequence[Figure]:
    """Drain of the 1 % of 1 million messages that match an SQL92 expression."""
    return await _filtered(
        bench,
        Figure(f"SQL92 filter, 1 % of 1 million messages, {bench.headers}", _RATE, at_least=1.2),
        "Propertied",
        _SQL_COUNT,
        sql="kind = '7'",
    )


async def _filtered(
    bench: Bench, figure: Figure, topic: str, count: int, *, tags: str | None = None, sql: str | None = None
) -> Sequence[Figure]:
    for side in ("ours", "peer"):
        await bench.client(side).fill(topic, count, kinds=_KINDS)
    return await bench.compare(
        [figure],
        lambda side: bench.client(side).drain(topic, count // _KINDS, of=count, tags=tags, sql=sql),
        lambda result: (result.messages_per_second,),
    )


async def pop(bench: Bench) -> Sequence[Figure]:
    """Drain of 500,000 messages by POP, each acknowledged; with JSON headers."""
    for side in ("ours", "peer"):
        await bench.client(side).fill("Popped", _POP_COUNT)
    return await bench.compare(
        [Figure(f"POP push consumer, 500,000 messages with acks, {bench.headers}", _RATE, at_least=1.2)],
        lambda side: bench.client(side).drain("Popped", _POP_COUNT, pop=True),
        lambda result: (result.messages_per_second,),
    )


# Loads whose rows do not depend on the serialization of the Java client's headers.
ONCE: Final = frozenset({"rebalance"})
# Apache's broker takes POP only with JSON headers: its codes do not fit the two bytes of binary headers.
JSON_ONLY: Final = frozenset({"pop"})

LOADS: Final[Mapping[str, Load]] = {
    "end-to-end": end_to_end,
    "end-to-end-1000": end_to_end_1000,
    "tag-filter": tag_filter,
    "sql-filter": sql_filter,
    "pop": pop,
    "rebalance": rebalance,
}
