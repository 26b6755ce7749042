"""`rmq-store verify` of a directory whose files are in memory."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarks.comparison import Figure, repeat
from benchmarks.store_bench import GIBIBYTE, StoreBench, fill
from tests.support.processes import run_command

_LOG_BYTES = GIBIBYTE
_RECORD_BYTES = 1024
_TIMEOUT_SECONDS = 600.0


async def verify_speed(bench: StoreBench) -> Sequence[Figure]:
    """`rmq-store verify` of a log of 1 GiB with messages of 1 KiB, with its queues and index."""
    log_bytes = bench.scaled(_LOG_BYTES)
    bench.needs_disk(3 * log_bytes)
    root = bench.folder("verify") / "store"
    await fill(root, {}, messages=log_bytes // _RECORD_BYTES, record_bytes=_RECORD_BYTES)
    what = f"`rmq-store verify`, log of {log_bytes / GIBIBYTE:.1f} GiB with messages of 1 KiB"
    figure = Figure(f"{what}: log per second, start included", "MB/s", ours_at_least=500.0)

    async def side() -> Sequence[float]:
        command = ["-m", "rmq_broker.store_tool.main", "verify", str(root)]
        finished = await run_command([sys.executable, *command], timeout_s=_TIMEOUT_SECONDS)
        if finished.exit_code != 0:
            raise RuntimeError(str(finished))
        return (log_bytes / 1e6 / finished.seconds,)

    await side()  # warm-up
    await repeat([figure], side, bench.rounds)
    return [figure]
