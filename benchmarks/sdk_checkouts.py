"""The SDK and broker of this checkout beside those of another one: rates of sends and of a push consumer.

Each checkout runs its own load programs. `benchmarks.sdk` and `benchmarks.sdk_consumer` have kept the options
that are used here.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.comparison import Figure, alternate
from benchmarks.ours import environment_of, our_servers

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
                found.append(float((await _output(checkout, *words))[-1]))
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
            words = await _output(checkout, "benchmarks.sdk_consumer", *amounts)
            found.append(float(words[-2].replace(",", "")))
        return found

    await alternate(figures, lambda: rates(None), lambda: rates(other), rounds)
    return figures


async def _output(checkout: Path | None, module: str, *options: str) -> Sequence[str]:
    """Run a load program of a checkout, and return the words that it prints. Raises RuntimeError."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *options,
        cwd=None if checkout is None else _folder_of_benchmarks(checkout),
        env=dict(os.environ) if checkout is None else environment_of(checkout),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"{module} of {checkout or 'this checkout'} ended with {process.returncode}")
    return output.decode().split()


def _folder_of_benchmarks(checkout: Path) -> Path:
    for folder in (checkout, *checkout.resolve().parents):
        if (folder / "benchmarks" / "sdk.py").is_file():
            return folder
    raise FileNotFoundError(f"no benchmarks/sdk.py in {checkout} or above it")
