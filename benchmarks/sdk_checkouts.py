"""The SDK and broker of this checkout beside those of another one: rates of sends and of a push consumer.

Each checkout runs its own load programs. `benchmarks.sdk` and `benchmarks.sdk_consumer` have kept the options
that are used here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.comparison import Figure, alternate
from benchmarks.ours import load_output, our_servers

_RATE: Final = "messages/s"
_TOPIC: Final = "Bench"
_DRAINED_COUNT: Final = 500_000
_SENDS: Final = {
    "SDK, 64 tasks": (),
    "SDK, 64 tasks, with traces": ("--trace",),
    "SDK, 2,000 tasks, automatic batching": ("--batching",),
}
_BATCHES: Final = {"push consumer, batches of 32": 32, "push consumer, one message per call": 1}


async def sdk_sends_beside(other: Path, *, rounds: int, seconds: int) -> Sequence[Figure]:
    """Measure sends of both checkouts' SDKs, each with its own broker.

    `other` is the folder of a checkout, or one below it that the checkout's wheel has been installed into.
    """
    figures = [Figure(name, _RATE) for name in _SENDS]
    async with our_servers() as ours, our_servers(checkout=other) as theirs:

        async def rates(address: str, checkout: Path | None) -> Sequence[float]:
            found = []
            for options in _SENDS.values():
                words = ("benchmarks.sdk", address, _TOPIC, "--seconds", str(seconds), *options)
                found.append(float((await load_output(checkout, *words))[-1]))
            return found

        await alternate(
            figures,
            lambda: rates(ours.namesrv_address, None),
            lambda: rates(theirs.namesrv_address, other),
            rounds,
        )
    return figures


async def sdk_push_beside(other: Path, *, rounds: int) -> Sequence[Figure]:
    """Measure the push consumers of both checkouts. Each round has new servers of its checkout."""
    figures = [Figure(name, _RATE) for name in _BATCHES]

    async def rates(checkout: Path | None) -> Sequence[float]:
        found = []
        for size in _BATCHES.values():
            amounts = ("--count", str(_DRAINED_COUNT), "--batch", str(size), "--rounds", "1")
            words = await load_output(checkout, "benchmarks.sdk_consumer", *amounts)
            found.append(float(words[-2].replace(",", "")))
        return found

    await alternate(figures, lambda: rates(None), lambda: rates(other), rounds)
    return figures
