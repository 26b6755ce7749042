"""Pauses of the broker's loop at a roll-over of the log, under load."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.comparison import Figure, count_failed, repeat
from benchmarks.store_bench import GIBIBYTE, MEBIBYTE, StoreBench, load_client
from tests.support.own_servers import OwnBroker, OwnNamesrv

# Small enough for several roll-overs per second; large enough that creating a file takes as long as with 1
# GiB.
_FILE_BYTES = 64 * MEBIBYTE
_SMALLEST_FILE_BYTES = 8 * MEBIBYTE
# What even a slow machine stores in a second. A round is so long that the log rolls over.
_LEAST_BYTES_PER_SECOND = 4 * MEBIBYTE
_TOPIC = "Rolling"


async def rollover(bench: StoreBench) -> Sequence[Figure]:
    """The loop's longest pause at a roll-over of the log, 64 threads, 1 KiB."""
    file_bytes = max(_SMALLEST_FILE_BYTES, bench.scaled(_FILE_BYTES))
    bench.needs_disk(8 * GIBIBYTE)
    seconds = max(bench.seconds, 2 * file_bytes // _LEAST_BYTES_PER_SECOND)
    what = f"log files of {file_bytes // MEBIBYTE} MiB, 64 threads, 1 KiB"
    figures = [
        Figure(f"{what}: the loop's longest pause at a roll-over", "ms", ours_at_most=5.0),
        Figure(f"{what}: its longest pause elsewhere", "ms"),
        Figure(f"{what}: roll-overs", "in a round"),
    ]

    async def ours() -> Sequence[float]:
        folder = bench.folder("rollover")
        async with (
            OwnNamesrv() as namesrv,
            _ProbedBroker(
                namesrv.address,
                home=folder,
                settings={"mappedFileSizeCommitLog": str(file_bytes)},
            ) as broker,
        ):
            client = load_client(folder / "client", namesrv.address)
            sends = await client.sync(_TOPIC, size=1024, seconds=seconds, warmup_s=2)
            count_failed(figures, "ours", sends)
            await broker.stop(timeout_s=60)
            pauses = json.loads(broker.result_path.read_text())
        at_roll = pauses["at_roll_over"]
        if not at_roll:
            raise RuntimeError(f"the log did not roll over within {seconds} s: give more --seconds")
        return max(at_roll) * 1000, pauses["longest_elsewhere"] * 1000, len(at_roll)

    await repeat(figures, ours, bench.rounds)
    return figures


class _ProbedBroker(OwnBroker):
    """Our broker with `benchmarks.loop_probe` around it."""

    @property
    def result_path(self) -> Path:
        """File with the pauses, written at the stop."""
        return self.home / "pauses.json"

    def _command(self) -> Sequence[str]:
        options = super()._command()[1:]
        return [sys.executable, "-m", "benchmarks.loop_probe", str(self.result_path), *options]
