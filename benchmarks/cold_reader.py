"""Effect on producers of a consumer that reads an old backlog from the disk.

`python -m benchmarks.cold_reader` fills a topic, restarts the broker, and measures synchronous sends to
another topic: alone, beside a consumer that reads the backlog from memory, and beside one that reads it
from the disk. Before the last one the log and its queues are dropped from the page cache, and `preadv` with
RWF_NOWAIT must confirm that. The consumer works like Apache's, with one pull per queue at a time, discards
the messages, and runs in a separate process. Together with the broker and the producers' JVM, three
processes share 2 cores: a consumer without a limit (`--rate 0`) takes its share of them, wherever its
messages come from. Goal: the p99 of producers beside the cold reader is at most 1.5 times the p99 without
it.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Final

import uvloop

from benchmarks.load import LoadClient, LoadResult
from rmq_remoting.client import RemotingClient
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.connection import Connection
from rmq_remoting.headers.pull import PullMessageResponseHeader
from rmq_remoting.sys_flags import PullSysFlag
from tests.support import toolchain
from tests.support.own_servers import OwnBroker, OwnNamesrv
from tests.support.processes import Usage

_BACKLOG_TOPIC: Final = "Backlog"
_TOPIC: Final = "Producers"
_QUEUES: Final = 8
_GOAL: Final = 1.5
_MEBIBYTE: Final = 1024 * 1024
_TIMEOUT_SECONDS: Final = 30.0
_SAMPLE_BYTES: Final = _MEBIBYTE
_PULL_ENTRIES: Final = 32
_READ_BEFORE_SECONDS: Final = 0.5
_RESTARTS: Final = 20
_SETTLE_SECONDS: Final = 3.0


@dataclass(slots=True)
class Case:
    """One variant: the data that the consumer reads, and the results of each round."""

    name: str
    reads: bool
    cold: bool
    p99_micros: list[float] = field(default_factory=list)
    median_micros: list[float] = field(default_factory=list)
    sends_per_second: list[float] = field(default_factory=list)
    read_mebibytes: list[float] = field(default_factory=list)
    disk_mebibytes: list[float] = field(default_factory=list)

    def add(self, sends: LoadResult, read_bytes: int, disk_bytes: int, seconds: float) -> None:
        """Add the result of a round."""
        self.p99_micros.append(sends.p99_micros)
        self.median_micros.append(sends.median_micros)
        self.sends_per_second.append(sends.messages_per_second)
        self.read_mebibytes.append(read_bytes / _MEBIBYTE / seconds)
        self.disk_mebibytes.append(disk_bytes / _MEBIBYTE / seconds)

    def line(self, alone: Case) -> str:
        """Return the row of the table: medians of the rounds."""
        p99 = statistics.median(self.p99_micros)
        cells = [
            f"{statistics.median(self.sends_per_second):,.0f}",
            f"{statistics.median(self.median_micros):,.0f}",
            f"{p99:,.0f}",
            f"{p99 / statistics.median(alone.p99_micros):.2f}",
            f"{statistics.median(self.read_mebibytes):,.0f}",
            f"{statistics.median(self.disk_mebibytes):,.0f}",
        ]
        return f"{self.name:<36}" + "".join(f"{cell:>13}" for cell in cells)


_HEAD: Final = f"{'':<36}" + "".join(
    f"{title:>13}" for title in ("sends/s", "p50 µs", "p99 µs", "p99 ratio", "read MiB/s", "disk MiB/s")
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=1024, help="size of the backlog")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a message's body")
    parser.add_argument("--threads", type=int, default=8, help="threads that send")
    parser.add_argument("--seconds", type=int, default=8, help="length of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=20.0, help="MiB/s that the consumer reads; 0: any")
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_measure(options))


async def _measure(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="rmq-cold-") as home:
        async with OwnNamesrv() as namesrv, OwnBroker(namesrv.address, home=Path(home) / "broker") as broker:
            client = LoadClient(toolchain.bench_client(), namesrv.address, Path(home) / "client")
            messages = options.megabytes * _MEBIBYTE // options.size
            print(f"filling {messages:,} messages of {options.size} B", flush=True)
            await client.fill(_BACKLOG_TOPIC, messages, size=options.size, timeout_s=1800)
            await _restart(broker, options.megabytes * _MEBIBYTE)
            cases = [
                Case("without a consumer", reads=False, cold=False),
                Case("beside one that reads from memory", reads=True, cold=False),
                Case("beside one that reads from the disk", reads=True, cold=True),
            ]
            await client.sync(_TOPIC, threads=options.threads, size=options.size, seconds=2, warmup_s=10)
            for number in range(options.rounds):
                for case in cases:
                    await _round(case, broker, client, options)
                    print(f"round {number + 1}: {case.name}: p99 {case.p99_micros[-1]:,.0f} µs", flush=True)
    print(f"\n{_HEAD}")
    for case in cases:
        print(case.line(cases[0]))
    ratio = statistics.median(cases[2].p99_micros) / statistics.median(cases[0].p99_micros)
    print(f"\np99 beside a cold reader: {ratio:.2f} x of without, goal <= {_GOAL} x")


async def _restart(broker: OwnBroker, backlog_bytes: int) -> None:
    """Wait until the broker has no file of the backlog mapped: it may still work on them."""
    for _ in range(_RESTARTS):
        await broker.stop()
        await broker.start(ready_timeout_s=60)
        await asyncio.sleep(_SETTLE_SECONDS)
        if _drop(broker.store_path, backlog_bytes):
            return
    raise RuntimeError("the log cannot be dropped from the page cache here, or the broker goes on reading it")


async def _round(case: Case, broker: OwnBroker, client: LoadClient, options: argparse.Namespace) -> None:
    if case.cold:
        if not _drop(broker.store_path, options.megabytes * _MEBIBYTE):
            raise RuntimeError("the backlog is in memory: no measurement")
    elif case.reads:
        _read_in(broker.store_path)
    with _consumer(broker.address, options.rate * _MEBIBYTE) as pipe:
        counted: list[tuple[float, int, int]] = []

        def counting() -> Usage:
            """Read the counters. Called at the begin and the end of a counted period."""
            if case.reads and not counted:
                pipe.send(True)
                time.sleep(_READ_BEFORE_SECONDS)
            if case.reads:
                pipe.send(None)
            read_bytes = pipe.recv() if case.reads else 0
            counted.append((time.monotonic(), read_bytes, _disk_bytes(broker.process.pid)))
            return broker.usage()

        sends = await client.sync(
            _TOPIC,
            threads=options.threads,
            size=options.size,
            seconds=options.seconds,
            warmup_s=3,
            server=counting,
        )
        if sends.errors:
            raise RuntimeError(f"{sends.errors} sends failed: {sends.values}")
    (began, read_before, disk_before), (ended, read_after, disk_after) = counted
    case.add(sends, read_after - read_before, disk_after - disk_before, ended - began)


# --- the page cache ---


def _files(store: Path) -> Iterator[Path]:
    for folder in ("commitlog", "consumequeue"):
        yield from sorted(path for path in (store / folder).rglob("*") if path.is_file())


def _drop(store: Path, backlog_bytes: int) -> bool:
    """Drop the backlog from the page cache; whether that succeeded."""
    for path in _files(store):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    warm, pages = _in_memory(store, backlog_bytes)
    print(f"dropped: {warm} of {pages} sampled pages are in memory still", flush=True)
    return warm <= pages // 50


def _read_in(store: Path) -> None:
    for path in _files(store):
        with path.open("rb", buffering=0) as file:
            while file.read(_MEBIBYTE):
                pass


def _in_memory(store: Path, log_bytes: int) -> tuple[int, int]:
    """Return the numbers of cached and of sampled pages at the start of the log, one sample per MiB."""
    warm = pages = 0
    for path in sorted((store / "commitlog").iterdir()):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            until = min(path.stat().st_size, log_bytes - int(path.name))
            for position in range(0, until, _SAMPLE_BYTES):
                pages += 1
                try:
                    warm += os.preadv(descriptor, [bytearray(1)], position, os.RWF_NOWAIT)
                except BlockingIOError:
                    continue
        finally:
            os.close(descriptor)
    return warm, pages


def _disk_bytes(pid: int) -> int:
    """Return the bytes that a process has read from disks."""
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["read_bytes"])


# --- the consumer, in a process of its own ---


@contextmanager
def _consumer(address: str, bytes_per_second: float) -> Iterator[Pipe]:
    """Run the consumer: True starts it; None makes it report the bytes read so far."""
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_consume, args=(address, bytes_per_second, there), daemon=True)
    process.start()
    try:
        here.recv()
        yield here
    finally:
        process.kill()
        process.join()


def _consume(address: str, bytes_per_second: float, pipe: Pipe) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_Consumer(bytes_per_second).run(address, pipe))


class _Consumer:
    """Pulls all queues of the backlog, and starts over at the end."""

    def __init__(self, bytes_per_second: float) -> None:
        self._bytes_per_second = bytes_per_second
        self._began = 0.0
        self._bytes_read = 0

    async def run(self, address: str, pipe: Pipe) -> None:
        client = RemotingClient()
        connection = await client.connect(address)
        pipe.send(None)
        await asyncio.to_thread(pipe.recv)
        self._began = time.monotonic()
        pulling = [asyncio.create_task(self._pull_all(connection, queue)) for queue in range(_QUEUES)]
        while True:
            asked = asyncio.create_task(asyncio.to_thread(pipe.recv))
            done, _ = await asyncio.wait([asked, *pulling], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {asked}:
                task.result()
            pipe.send(self._bytes_read)

    async def _pull_all(self, connection: Connection, queue: int) -> None:
        offset = 0
        while True:
            request = RemotingCommand.request(RequestCode.PULL_MESSAGE, _pull_fields(queue, offset))
            request.serialization = Serialization.BINARY
            answer = await connection.send_request(request, _TIMEOUT_SECONDS)
            if answer.code == ResponseCode.SUCCESS:
                offset = PullMessageResponseHeader.decode(answer.ext_fields).next_begin_offset
                self._bytes_read += len(answer.body)
            elif answer.code == ResponseCode.PULL_NOT_FOUND:
                offset = 0
            else:
                raise RuntimeError(f"pull refused: {answer}")
            if self._bytes_per_second:
                due = self._began + self._bytes_read / self._bytes_per_second
                await asyncio.sleep(max(0.0, due - time.monotonic()))


def _pull_fields(queue: int, offset: int) -> dict[str, str]:
    return {
        "consumerGroup": "cold-reader",
        "topic": _BACKLOG_TOPIC,
        "queueId": str(queue),
        "queueOffset": str(offset),
        "maxMsgNums": str(_PULL_ENTRIES),
        "sysFlag": str(int(PullSysFlag.SUBSCRIPTION)),
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
    }


if __name__ == "__main__":
    main()
