"""gRPC: our broker's own port compared with Apache's proxy in LOCAL mode, under Apache's Java client for 5.x.

python -m benchmarks.proxy --write docs/performance.md
python -m benchmarks.proxy --rounds 2 --seconds 3 --warmup 10     a trial
python -m benchmarks.proxy --cluster                              our rmq-proxy in front of our broker

Each side has a JVM of its own for the client, which lives as long as the program.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from benchmarks.comparison import FEWEST_PAIRS, Figure, alternate
from benchmarks.load import CLIENT_JVM
from benchmarks.ours import our_servers
from benchmarks.peer import BROKER_JVM, NAMESRV_JVM
from benchmarks.report import Report, write_report
from rmq_client.admin import Admin
from tests.support import toolchain
from tests.support.apache import ApacheNamesrv
from tests.support.apache_proxy import ApacheLocalProxy
from tests.support.jvm import java_command
from tests.support.own_servers import OwnProxy
from tests.support.ports import LOOPBACK, free_port
from tests.support.processes import Usage
from tests.support.running import RunningProgram

MARKS: Final = (
    "<!-- table of the proxy: written by `python -m benchmarks.proxy` -->",
    "<!-- end of the proxy's table -->",
)
_OURS: Final = "this broker"
_PEER: Final = "Apache 5.3.3, LOCAL"
_TOPIC: Final = "Bench"
_QUEUES: Final = 8
_SENDERS: Final = 64
_RECEIVERS: Final = 20
_MIB: Final = 1024 * 1024
_LOAD_TIMEOUT_SECONDS: Final = 300.0
_SETTLE_SECONDS: Final = 3.0
_MOST_FAILED: Final = 0.001


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A running server: its gRPC address, its name server, its start, its memory when idle, and its usage."""

    address: str
    namesrv: str
    start_seconds: float
    idle_bytes: int
    usage: Callable[[], Usage]


class Client:
    """The Java program for one endpoint."""

    def __init__(self, endpoint: Endpoint, home: Path) -> None:
        home.mkdir(parents=True)
        program = toolchain.bench5_client()
        command = java_command(program, "bench5.Main", [endpoint.address], home=home, jvm_options=CLIENT_JVM)
        self.endpoint = endpoint
        self.cpu_micros = 0.0  # of the server, for each message of the last load
        self._program = RunningProgram(command, home / "stderr.log", dict(os.environ))

    async def run(self, *words: object) -> dict[str, Any]:
        """Run a load. Raises RuntimeError if it failed."""
        number = len(self._program.named("result")) + 1
        before = self.endpoint.usage().cpu_seconds
        self._program.write_line(" ".join(map(str, words)))
        result = (await self._program.wait_for("result", number, _LOAD_TIMEOUT_SECONDS))[-1]
        messages = int(result.get("messages", 0))
        if messages:
            self.cpu_micros = (self.endpoint.usage().cpu_seconds - before) * 1e6 / messages
        if result.get("errors", 0) > _MOST_FAILED * messages:
            raise RuntimeError(f"{words[0]}: {result}")
        return dict(result)

    def close(self) -> None:
        """End the program."""
        self._program.kill()


@asynccontextmanager
async def ours(cluster: bool) -> AsyncIterator[Endpoint]:
    """Our broker with its gRPC port; `cluster`: with a proxy in front of it."""
    port = free_port()
    settings = {} if cluster else {"grpcServerPort": str(port), "bindAddress": LOOPBACK}
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(our_servers(settings))
        if not cluster:
            await asyncio.sleep(_SETTLE_SECONDS)
            yield Endpoint(
                f"{LOOPBACK}:{port}",
                servers.namesrv_address,
                servers.broker_start_seconds,
                servers.usage().anonymous_bytes,
                servers.usage,
            )
            return
        proxy = OwnProxy(servers.namesrv_address)
        stack.callback(proxy.close)
        began = time.monotonic()
        await proxy.start()
        seconds = time.monotonic() - began
        await asyncio.sleep(_SETTLE_SECONDS)
        usage = proxy.usage
        yield Endpoint(proxy.address, servers.namesrv_address, seconds, usage().anonymous_bytes, usage)


@asynccontextmanager
async def apaches() -> AsyncIterator[Endpoint]:
    """Apache's proxy in LOCAL mode with its default numbers of threads, and a heap of 4 GiB."""
    servers, program = toolchain.apache_servers(), toolchain.apache_proxy()
    async with ApacheNamesrv(servers, jvm_options=NAMESRV_JVM) as namesrv:
        proxy = ApacheLocalProxy(program, namesrv.address, jvm_options=BROKER_JVM)
        try:
            seconds = await proxy.start()
            await asyncio.sleep(_SETTLE_SECONDS)
            usage = proxy.usage
            yield Endpoint(proxy.address, namesrv.address, seconds, usage().anonymous_bytes, usage)
        finally:
            proxy.close()


async def broker_alone() -> int:
    """Idle memory of our broker without gRPC, in bytes."""
    async with our_servers() as servers:
        await asyncio.sleep(_SETTLE_SECONDS)
        return servers.usage().anonymous_bytes


class ProxyBench:
    """The loads, each for both sides in turns."""

    def __init__(self, clients: tuple[Client, Client], rounds: int, seconds: int, backlog: int) -> None:
        self._clients = clients
        self._rounds = rounds
        self._seconds = seconds
        self._backlog = backlog
        self._groups = count(1)

    async def warm_up(self, seconds: int) -> None:
        """Send and receive without counting."""
        for client in self._clients:
            await _create(client, _TOPIC)
            await client.run("send", _TOPIC, _SENDERS, seconds, 1)
            await self._drain(client)

    async def sends(self) -> list[Figure]:
        figures = [
            Figure(f"synchronous sends, {_SENDERS} threads, 128 B", "messages/s", at_least=0.6),
            Figure("server CPU per send", "µs"),
        ]

        async def measure(client: Client) -> Sequence[float]:
            result = await client.run("send", _TOPIC, _SENDERS, self._seconds, 1)
            return result["messagesPerSecond"], client.cpu_micros

        return await self._compare(figures, measure)

    async def one_thread(self) -> list[Figure]:
        figures = [
            Figure("one thread, 128 B: median latency", "µs", at_most=1.5),
            Figure("one thread, 128 B: p99 latency", "µs"),
        ]

        async def measure(client: Client) -> Sequence[float]:
            result = await client.run("send", _TOPIC, 1, self._seconds, 1)
            return result["medianMicros"], result["p99Micros"]

        return await self._compare(figures, measure)

    async def receives(self) -> list[Figure]:
        name = f"receive and acknowledge a backlog of {self._backlog:,}, {_RECEIVERS} threads"
        figures = [Figure(name, "messages/s", at_least=0.6), Figure("server CPU per message received", "µs")]

        async def measure(client: Client) -> Sequence[float]:
            result = await self._drain(client)
            return result["messagesPerSecond"], client.cpu_micros

        return await self._compare(figures, measure)

    async def _drain(self, client: Client) -> dict[str, Any]:
        """Fill a topic of its own, and drain it by a group of its own."""
        name = f"Drain{next(self._groups)}"
        await _create(client, name)
        await client.run("join", name, name)
        await client.run("fill", name, _SENDERS, self._backlog)
        return await client.run("drain", name, name, _RECEIVERS, self._backlog)

    async def _compare(
        self, figures: list[Figure], measure: Callable[[Client], Awaitable[Sequence[float]]]
    ) -> list[Figure]:
        print(figures[0].name, flush=True)
        one, other = self._clients
        await alternate(figures, lambda: measure(one), lambda: measure(other), self._rounds)
        return figures


async def _create(client: Client, topic: str) -> None:
    async with Admin(client.endpoint.namesrv) as admin:
        await admin.create_topic(topic, queues=_QUEUES, attributes={"+message.type": "NORMAL"})


def _resources(own: Endpoint, peer: Endpoint, alone_bytes: int | None) -> list[Figure]:
    start = Figure("from exec to ready", "s", ours_at_most=1)
    start.ours, start.peer = [own.start_seconds], [peer.start_seconds]
    idle = Figure("idle: memory without mapped files", "MiB")
    idle.ours, idle.peer = [own.idle_bytes / _MIB], [peer.idle_bytes / _MIB]
    if alone_bytes is None:
        return [start, idle]
    more = Figure("idle: more than our broker without gRPC", "MiB", ours_at_most=80)
    more.ours = [(own.idle_bytes - alone_bytes) / _MIB]
    return [start, idle, more]


async def run(chosen: argparse.Namespace) -> Report:
    """Measure everything."""
    began = time.monotonic()
    alone_bytes = None if chosen.cluster else await broker_alone()
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rmq-bench-")))
        own = await stack.enter_async_context(ours(chosen.cluster))
        peer = await stack.enter_async_context(apaches())
        clients = Client(own, home / "ours"), Client(peer, home / "peer")
        for client in clients:
            stack.callback(client.close)
        bench = ProxyBench(clients, chosen.rounds, chosen.seconds, chosen.backlog)
        await bench.warm_up(chosen.warmup)
        figures = [*await bench.sends(), *await bench.one_thread(), *await bench.receives()]
        figures += _resources(own, peer, alone_bytes)
    return Report(
        figures,
        MARKS,
        chosen.rounds,
        chosen.seconds,
        chosen.warmup,
        time.monotonic() - began,
        "rmq-proxy and this broker" if chosen.cluster else _OURS,
        _PEER,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=FEWEST_PAIRS, help="pairs of measurements (7)")
    parser.add_argument("--seconds", type=int, default=5, help="counted seconds of one measurement (5)")
    parser.add_argument("--warmup", type=int, default=30, help="uncounted seconds of each side (30)")
    parser.add_argument("--backlog", type=int, default=20_000, help="messages to receive (20,000)")
    parser.add_argument("--cluster", action="store_true", help="our proxy in front of our broker")
    parser.add_argument("--write", type=Path, default=None, help="file for the table")
    chosen = parser.parse_args()
    report = asyncio.run(run(chosen))
    print(f"{report.conditions()}\n\n{report.table()}", flush=True)
    if chosen.write is not None:
        write_report(report, chosen.write)


if __name__ == "__main__":
    main()
