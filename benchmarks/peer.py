"""Apache's own name server and broker as the peer of comparisons.

`python -m benchmarks.peer sync --seconds 10` runs one load against them and prints the result.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.load import LoadClient, LoadResult
from rmq_remoting.codes import RequestCode
from rmq_remoting.command import Serialization
from tests.support import toolchain
from tests.support.apache import ApacheBroker, ApacheNamesrv
from tests.support.broker_requests import request
from tests.support.processes import Usage
from tests.support.raw_client import raw_client
from tests.support.toolchain import JavaProgram

# As runbroker.sh and runserver.sh of Apache RocketMQ 5.3.3, but for the heap (8 GiB there: too much beside a
# client on one machine) and AlwaysPreTouch (it makes the start long and the whole heap resident at once: that
# would only speak against Apache).
_G1 = (
    "-XX:+UseG1GC",
    "-XX:G1HeapRegionSize=16m",
    "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30",
    "-XX:SoftRefLRUPolicyMSPerMB=0",
    "-XX:-OmitStackTraceInFastThrow",
    "-XX:-UseLargePages",
)
BROKER_JVM = ("-Xms4g", "-Xmx4g", "-XX:MaxDirectMemorySize=15g", *_G1)
_SERIALIZATIONS: Final = {"JSON": Serialization.JSON, "ROCKETMQ": Serialization.BINARY}
NAMESRV_JVM = ("-Xms1g", "-Xmx1g", *_G1)


@dataclass(frozen=True, slots=True)
class ApachePeer:
    """The running servers, and how long the broker took from its start to its registration."""

    namesrv: ApacheNamesrv
    broker: ApacheBroker
    broker_start_seconds: float

    @property
    def namesrv_address(self) -> str:
        """Address of the name server, HOST:PORT."""
        return self.namesrv.address

    @property
    def port(self) -> int:
        """Port of the broker."""
        return self.broker.port

    def usage(self) -> Usage:
        """Return CPU time and memory of the broker so far."""
        return self.broker.usage()


@asynccontextmanager
async def apache_peer(
    program: JavaProgram | None = None, settings: dict[str, str] | None = None, header: str = "JSON"
) -> AsyncIterator[ApachePeer]:
    """Run Apache's servers as its own scripts do, with temporary folders.

    `header` is the serialization of their responses, JSON or ROCKETMQ. Apache's servers do not answer in the
    serialization of the request: with the default, JSON, a client that sends binary headers decodes JSON.
    Raises RuntimeError if they answer in another one.
    """
    program = program or toolchain.apache_servers()
    async with ApacheNamesrv(program, jvm_options=NAMESRV_JVM, serialize_type=header) as namesrv:
        broker = ApacheBroker(
            program, namesrv.address, settings=settings, serialize_type=header, jvm_options=BROKER_JVM
        )
        try:
            start_seconds = await broker.start()
            for port in (namesrv.port, broker.port):
                await _require_answers_in(header, port)
            yield ApachePeer(namesrv, broker, start_seconds)
        finally:
            broker.close()


async def _require_answers_in(header: str, port: int) -> None:
    async with raw_client(port) as client:
        answer = await client.ask(request(RequestCode.GET_BROKER_CLUSTER_INFO))
    if answer.serialization is not _SERIALIZATIONS[header]:
        raise RuntimeError(
            f"Apache's server at port {port} answers in {answer.serialization.name}, not {header}"
        )


async def measure(load: str, seconds: int, warmup_s: int, count: int, header: str) -> LoadResult:
    """One load against Apache's servers, started for it."""
    async with apache_peer(header=header) as peer:
        with tempfile.TemporaryDirectory() as home:
            client = LoadClient(toolchain.bench_client(), peer.namesrv.address, Path(home), header=header)
            if load in {"fill", "drain"}:
                result = await client.fill("Bench", count, server=peer.broker.usage)
                return (
                    result if load == "fill" else await client.drain("Bench", count, server=peer.broker.usage)
                )
            timed = {
                "sync": client.sync,
                "oneThread": client.one_thread,
                "async": client.asynchronous,
                "batch": client.batch,
            }[load]
            return await timed("Bench", seconds=seconds, warmup_s=warmup_s, server=peer.broker.usage)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("load", choices=["sync", "oneThread", "async", "batch", "fill", "drain"])
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=20, help="seconds that are not counted")
    parser.add_argument("--count", type=int, default=2_000_000, help="messages of fill and drain")
    parser.add_argument("--header", choices=["JSON", "ROCKETMQ"], default="ROCKETMQ")
    chosen = parser.parse_args()
    result = asyncio.run(measure(chosen.load, chosen.seconds, chosen.warmup, chosen.count, chosen.header))
    print(json.dumps(result.values, indent=2))
    if result.server_cpu_micros_per_message is not None:
        print(f"broker CPU per message: {result.server_cpu_micros_per_message:.1f} µs")


if __name__ == "__main__":
    main()
