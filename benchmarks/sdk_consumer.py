"""Drain of a topic with our SDK's push consumer, in a separate process.

python -m benchmarks.sdk_consumer                                   with its own servers, one message per call
python -m benchmarks.sdk_consumer --batch 32 [--orderly] [--threads]
python -m benchmarks.sdk_consumer --profile /tmp/consumer.prof      a profile for pstats
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import sys
import threading
import time
import uuid

import uvloop

from benchmarks.ours import load_output, our_servers
from rmq_client import (
    Admin,
    BatchPolicy,
    ConsumeResult,
    InFlightLimits,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)

_TOPIC = "Drained"
_QUEUES = 8
_BODY = b"x" * 128
_FILL_TASKS = 4000


async def fill(namesrv: str, count: int) -> None:
    """Fill the topic with messages of 128 bytes."""
    async with Admin(namesrv) as admin:
        await admin.create_topic(_TOPIC, queues=_QUEUES)
    left = count
    limits = InFlightLimits(max_messages=2 * _FILL_TASKS)
    async with Producer(namesrv, group="fill", batching=BatchPolicy(), limits=limits) as producer:

        async def send() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await producer.send(Message(_TOPIC, _BODY))

        await asyncio.gather(*(send() for _ in range(_FILL_TASKS)))


class _Drain:
    """Counts received messages; the clock starts with the first one."""

    def __init__(self, count: int) -> None:
        self.done = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._left = count
        self._began = 0.0
        self.seconds = 0.0

    async def listen(self, messages: list[MessageExt]) -> ConsumeResult:
        self._take(len(messages))
        return ConsumeResult.SUCCESS

    def listen_in_thread(self, messages: list[MessageExt]) -> ConsumeResult:
        with self._lock:
            self._take(len(messages))
        return ConsumeResult.SUCCESS

    def _take(self, count: int) -> None:
        if not self._began:
            self._began = time.monotonic()
        self._left -= count
        if self._left <= 0 and not self.seconds:
            self.seconds = time.monotonic() - self._began
            self._loop.call_soon_threadsafe(self.done.set)


async def drain(namesrv: str, count: int, *, batch: int, orderly: bool, threads: bool) -> float:
    """Return messages per second, and print the CPU time."""
    drained = _Drain(count)
    cpu_before = time.process_time()
    async with PushConsumer(
        namesrv,
        group=f"drain-{uuid.uuid4().hex[:8]}",
        topics=[_TOPIC],
        listener=drained.listen_in_thread if threads else drained.listen,
        consume_from="first",
        max_messages=batch,
        orderly=orderly,
    ):
        await drained.done.wait()
        print(f"{(time.process_time() - cpu_before) / count * 1e6:.1f} µs of CPU a message", end=", ")
    return count / drained.seconds


async def sdk_drain(namesrv: str, count: int, *, batch: int) -> float:
    """Return messages per second of a drain in a process of its own; the topic is filled."""
    words = ["--namesrv", namesrv, "--count", str(count), "--batch", str(batch), "--rounds", "1"]
    output = await load_output(None, "benchmarks.sdk_consumer", *words)
    return float(output[-2].replace(",", ""))


async def _run(chosen: argparse.Namespace) -> None:
    if chosen.namesrv is not None:
        await _drain_in_rounds(chosen.namesrv, chosen)
        return
    async with our_servers() as servers:
        await fill(servers.namesrv_address, chosen.count)
        await _drain_in_rounds(servers.namesrv_address, chosen)


async def _drain_in_rounds(namesrv: str, chosen: argparse.Namespace) -> None:
    for _ in range(chosen.rounds):
        rate = await drain(
            namesrv, chosen.count, batch=chosen.batch, orderly=chosen.orderly, threads=chosen.threads
        )
        print(f"{rate:,.0f} messages/s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--namesrv", help="servers with the filled topic, instead of its own")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=1, help="messages that a call gets")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--orderly", action="store_true")
    parser.add_argument("--threads", action="store_true", help="a function in threads, not a coroutine")
    parser.add_argument("--profile", help="write profiles of both threads here")
    chosen = parser.parse_args()
    profiles: list[cProfile.Profile] = []
    if chosen.profile:
        _profile_all_threads(profiles)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(chosen))
    for number, profile in enumerate(profiles):
        profile.dump_stats(f"{chosen.profile}.{number}")


def _profile_all_threads(profiles: list[cProfile.Profile]) -> None:
    """Profile the main thread and every thread that starts."""

    def begin(*_: object) -> None:
        profile = cProfile.Profile()
        profiles.append(profile)
        sys.setprofile(None)
        profile.enable()

    threading.setprofile(begin)
    begin()


if __name__ == "__main__":
    main()
