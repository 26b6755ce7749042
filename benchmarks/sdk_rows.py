"""Loads of the SDK's table: our SDK beside the Java client, with traces, in batches, and our push consumer.

All of them use our broker.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from benchmarks.bench import Bench, Load
from benchmarks.comparison import Figure, count_failed, repeat
from benchmarks.load import WARM_UP_SECONDS
from benchmarks.report import Report, commit, processor, python_build
from benchmarks.sdk import sdk_sends
from benchmarks.sdk_consumer import fill, sdk_drain

_TOPIC: Final = "Bench"
_RATE: Final = "messages/s"
_DRAINED_COUNT: Final = 500_000


async def sdk(bench: Bench) -> Sequence[Figure]:
    """Our SDK: 64 tasks, with traces, and with automatic batching, beside the Java client's 64 threads."""
    address = bench.ours.namesrv_address
    single = Figure("our SDK, 64 tasks (peer: Java client, 64 threads)", _RATE, at_least=1.2)
    batching = Figure(
        "our SDK, 2,000 tasks, automatic batching (peer: Java client, 64 threads)", _RATE, at_least=3.3
    )
    traced = Figure("our SDK, 64 tasks, with traces (peer: without)", _RATE, at_least=0.8)

    async def java() -> float:
        result = await bench.client("ours").sync(_TOPIC, seconds=bench.seconds, warmup_s=WARM_UP_SECONDS)
        count_failed([], "peer", result)
        return result.messages_per_second

    rates = await in_turns(
        {
            "java": java,
            "single": lambda: sdk_sends(address, _TOPIC, seconds=bench.seconds),
            "traced": lambda: sdk_sends(address, _TOPIC, seconds=bench.seconds, trace=True),
            "batching": lambda: sdk_sends(address, _TOPIC, seconds=bench.seconds, batching=True),
        },
        bench.rounds,
    )
    single.ours, single.peer = rates["single"], rates["java"]
    batching.ours, batching.peer = rates["batching"], rates["java"]
    traced.ours, traced.peer = rates["traced"], rates["single"]
    figures = [single, batching, traced]
    for figure in figures:
        print(f"  {figure.summary()}", flush=True)
    return figures


async def sdk_push(bench: Bench) -> Sequence[Figure]:
    """Our push consumer with a coroutine as listener: 500,000 messages of 128 B, 32 or one per call."""
    address = bench.ours.namesrv_address
    figures = [
        Figure("our push consumer, batches of 32", _RATE, ours_at_least=80_000),
        Figure("our push consumer, one message per call", _RATE, ours_at_least=30_000),
    ]
    await fill(address, _DRAINED_COUNT)

    async def side() -> Sequence[float]:
        return [await sdk_drain(address, _DRAINED_COUNT, batch=batch) for batch in (32, 1)]

    await repeat(figures, side, bench.rounds)
    return figures


LOADS: Final[Mapping[str, Load]] = {"sdk": sdk, "sdk-push": sdk_push}


async def in_turns(
    sides: Mapping[str, Callable[[], Awaitable[float]]], rounds: int, pause_seconds: float = 0.5
) -> dict[str, list[float]]:
    """Measure several sides `rounds` times in turns; every second round goes backwards."""
    values: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        names = list(sides)
        for name in names if number % 2 == 0 else reversed(names):
            value = await sides[name]()
            values[name].append(value)
            print(f"  round {number + 1}, {name}: {value:,.0f}", flush=True)
            await asyncio.sleep(pause_seconds)
    return values


@dataclass(frozen=True, slots=True)
class SdkReport(Report):
    """The measurements of the SDK's table."""

    def conditions(self) -> str:
        """Return a paragraph on machine, Python build, commit and procedure."""
        return (
            f"Measured on {datetime.now(UTC):%Y-%m-%d} at commit {commit()}: {os.cpu_count()} cores "
            f"({processor()}), {python_build()}, broker and clients on one machine, {self.rounds} rounds "
            f"with {self.seconds} s for each rate of sends, the sides in turns. The Java client warmed the "
            f"broker up for {self.warm_up_seconds} s. The table took {self.took_seconds / 60:.0f} minutes. "
            "A row reaches its goal if the worse quartile does."
        )
