"""Load with our SDK, in a separate process.

python -m benchmarks.sdk 127.0.0.1:9876 Topic --seconds 10 [--batching] [--trace]
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable

import uvloop

from benchmarks.ours import load_output
from rmq_client import BatchPolicy, Message, Producer, Tracing

_BATCHING_TASKS = 2000


async def sdk_sends(
    namesrv: str,
    topic: str,
    *,
    seconds: int = 8,
    tasks: int = 64,
    batching: bool = False,
    trace: bool = False,
) -> float:
    """Return messages per second, sent synchronously by `tasks` tasks (2,000 with automatic batching)."""
    words = [namesrv, topic, "--seconds", str(seconds), "--tasks", str(tasks)]
    words += ["--batching"] * batching + ["--trace"] * trace
    return float((await load_output(None, "benchmarks.sdk", *words))[-1])


async def _load(
    namesrv: str, topic: str, seconds: int, tasks: int, batching: bool, tracing: Tracing | None
) -> float:
    policy = BatchPolicy() if batching else None
    async with Producer(namesrv, group="bench-sdk", batching=policy, trace=tracing) as producer:
        await producer.send(Message(topic, b"first"))
        sent = 0
        stop_at = float("inf")

        async def sender(is_over: Callable[[], float]) -> None:
            nonlocal sent
            body = b"x" * 128
            while is_over() < stop_at:
                await producer.send(Message(topic, body))
                sent += 1

        senders = [asyncio.ensure_future(sender(time.monotonic)) for _ in range(tasks)]
        await asyncio.sleep(1)
        before, began = sent, time.monotonic()
        await asyncio.sleep(seconds)
        counted, elapsed = sent - before, time.monotonic() - began
        stop_at = 0.0
        await asyncio.gather(*senders)
        return counted / elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("namesrv")
    parser.add_argument("topic")
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--batching", action="store_true", help="with automatic batching, from 2,000 tasks")
    parser.add_argument("--trace", action="store_true", help="with message traces")
    chosen = parser.parse_args()
    tracing = Tracing() if chosen.trace else None
    tasks = _BATCHING_TASKS if chosen.batching else chosen.tasks
    load = _load(chosen.namesrv, chosen.topic, chosen.seconds, tasks, chosen.batching, tracing)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(f"{runner.run(load):.1f}")


if __name__ == "__main__":
    main()
