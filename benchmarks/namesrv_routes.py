"""Cost of a route look-up, and its latency while brokers register 10,000 topics each.

`python -m benchmarks.namesrv_routes` starts `rmq-namesrv`, lets 8 brokers register, measures, and prints a
table in about half a minute. Brokers register from a separate process, so that their work does not count in
the look-ups. With the name server, three processes share 2 cores, so the times are those of a loaded
machine. Goals: less than 50 µs of the server's CPU time per look-up, and a p99 of less than 5 ms during
registrations.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import statistics
import time
import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from typing import Final

import orjson
import uvloop

from rmq_remoting.client import RemotingClient
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.connection import Connection
from rmq_remoting.framing import encode_frame
from tests.support.own_servers import OwnNamesrv

_TIMEOUT_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.001


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table; times in seconds."""

    name: str
    look_ups: int
    seconds: float
    times: Sequence[float]
    server_cpu_seconds: float
    registrations: int | None = None

    def line(self) -> str:
        """Return the row."""
        ordered = sorted(self.times)
        p50, p99 = (ordered[int(len(ordered) * part)] for part in (0.5, 0.99))
        cells = [
            f"{self.look_ups / self.seconds:,.0f}",
            f"{p50 * 1e6:,.0f}",
            f"{p99 * 1e6:,.0f}",
            f"{ordered[-1] * 1e6:,.0f}",
            f"{self.server_cpu_seconds / self.look_ups * 1e6:.1f}" if self.registrations is None else "-",
            "-" if self.registrations is None else f"{self.registrations / self.seconds:.1f}",
        ]
        return f"{self.name:<52}" + "".join(f"{cell:>14}" for cell in cells)


_HEAD: Final = f"{'':<52}" + "".join(
    f"{title:>14}"
    for title in ("look-ups/s", "p50 µs", "p99 µs", "longest µs", "server CPU µs", "registr./s")
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--topics", type=int, default=10_000, help="topics of each broker")
    parser.add_argument("--brokers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each measurement")
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_measure(options.topics, options.brokers, options.seconds))


async def _measure(topics: int, brokers: int, seconds: float) -> None:
    print(f"{brokers} brokers with {topics:,} topics each\n\n{_HEAD}")
    async with OwnNamesrv() as namesrv:
        client = RemotingClient()
        registrars = Registrars(namesrv.address, topics, brokers)
        try:
            first = await registrars.once()
            names = [f"topic-{number}" for number in range(topics)]
            connection = await client.connect(namesrv.address)

            async def row(name: str, looking_up: Callable[[], Awaitable[list[float]]]) -> None:
                before, began = namesrv.usage(), time.monotonic()
                times = await looking_up()
                passed = time.monotonic() - began
                cpu = namesrv.usage().cpu_seconds - before.cpu_seconds
                print(Row(name, len(times), passed, times, cpu).line(), flush=True)

            await row("one after the other", lambda: one_by_one(connection, names, seconds))
            await row(
                "the same in binary headers",
                lambda: one_by_one(connection, names, seconds, serialization=Serialization.BINARY),
            )
            await row("32 at a time on one connection", lambda: at_once(connection, names, seconds, 32))
            for name, mode, period in (
                ("all register every second: the same bytes", "same", 1.0),
                ("all register every second: another version", "version", 1.0),
                ("all register every second: all topics changed", "topics", 1.0),
                ("all register without a pause: all topics changed", "topics", 0.0),
            ):
                done = registrars.begin(mode, seconds + 0.5, period)
                began = time.monotonic()
                times = await one_by_one(connection, names, seconds, pause_seconds=_PAUSE_SECONDS)
                passed = time.monotonic() - began
                count, registration_times = await done
                print(Row(name, len(times), passed, times, 0.0, int(count * passed / (seconds + 0.5))).line())
                print(f"{'':<4}a registration takes {statistics.median(registration_times) * 1000:.0f} ms")
            usage = namesrv.usage()
            print(
                f"\nfirst registrations, all brokers at once: {first * 1000:.0f} ms\n"
                f"memory of the name server: {usage.rss_bytes / 2**20:.0f} MiB"
            )
        finally:
            await registrars.end()
            await client.stop()


async def one_by_one(
    connection: Connection,
    topics: Sequence[str],
    seconds: float,
    *,
    serialization: Serialization = Serialization.JSON,
    pause_seconds: float = 0.0,
) -> list[float]:
    """Look up topics one after the other; return their durations."""
    choice = random.Random(1)
    times: list[float] = []
    clock = time.perf_counter
    end = clock() + seconds
    while clock() < end:
        times.append(await _look_up(connection, choice.choice(topics), serialization))
        if pause_seconds:
            await asyncio.sleep(pause_seconds)
    return times


async def at_once(connection: Connection, topics: Sequence[str], seconds: float, number: int) -> list[float]:
    """Look up topics with a constant number of requests in flight."""
    parts = await asyncio.gather(*(one_by_one(connection, topics, seconds) for _ in range(number)))
    return [each for part in parts for each in part]


async def _look_up(connection: Connection, topic: str, serialization: Serialization) -> float:
    request = RemotingCommand.request(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, serialization=serialization
    )
    began = time.perf_counter()
    response = await connection.send_request(request, _TIMEOUT_SECONDS)
    took = time.perf_counter() - began
    if response.code != ResponseCode.SUCCESS:
        raise RuntimeError(f"no route of {topic}: {response}")
    return took


class Registrars:
    """The brokers, in a separate process."""

    def __init__(self, address: str, topics: int, brokers: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, peer = context.Pipe()
        self._process = context.Process(target=_run_brokers, args=(peer, address, topics, brokers))
        self._process.start()

    async def once(self) -> float:
        """Let all brokers register once; return the duration."""
        _, times = await self.begin("topics", 0.0)
        return max(times)

    def begin(
        self, mode: str, seconds: float, period_seconds: float = 0.0
    ) -> Awaitable[tuple[int, list[float]]]:
        """Let all brokers register repeatedly for a while; return their number and durations."""
        self._pipe.send((mode, seconds, period_seconds))
        return asyncio.to_thread(self._pipe.recv)

    async def end(self) -> None:
        """End the process."""
        self._pipe.send(None)
        await asyncio.to_thread(self._process.join)


def _run_brokers(pipe: Pipe, address: str, topics: int, brokers: int) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_brokers(pipe, address, topics, brokers))


async def _brokers(pipe: Pipe, address: str, topics: int, brokers: int) -> None:
    all_brokers = [Broker(address, number, topics) for number in range(brokers)]
    for broker in all_brokers:
        await broker.connect()
    while (order := await asyncio.to_thread(pipe.recv)) is not None:
        times = await asyncio.gather(*(broker.register_for(*order) for broker in all_brokers))
        flat = [each for part in times for each in part]
        pipe.send((len(flat), flat))
    for broker in all_brokers:
        await broker.client.stop()


class Broker:
    """Registers its topics, with two prepared bodies in which every topic differs."""

    def __init__(self, address: str, number: int, topics: int) -> None:
        self.client = RemotingClient()
        self._address = address
        self._number = number
        self._fields = {
            "clusterName": "DefaultCluster",
            "brokerName": f"broker-{number}",
            "brokerId": "0",
            "brokerAddr": f"10.0.0.{number}:10911",
            "haServerAddr": f"10.0.0.{number}:10912",
            "enableActingMaster": "false",
            "compressed": "false",
        }
        self._bodies = [_body(topics, queues) for queues in (8, 16)]
        self._version = 1_000_000

    async def connect(self) -> None:
        """Connect."""
        await self.client.connect(self._address)

    async def register_for(self, mode: str, seconds: float, period_seconds: float) -> list[float]:
        """Register repeatedly, at least once; return the durations."""
        times: list[float] = []
        end = time.perf_counter() + seconds
        if period_seconds:
            await asyncio.sleep(self._number % 8 / 8 * period_seconds)
        while not times or time.perf_counter() < end:
            frame, opaque = self._frame(mode)
            connection = self.client.existing(self._address)
            assert connection is not None
            answer: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
            began = time.perf_counter()
            connection.send_frame(opaque, frame, _TIMEOUT_SECONDS, answer)
            response = await answer
            times.append(time.perf_counter() - began)
            if response.code != ResponseCode.SUCCESS:
                raise RuntimeError(f"registration refused: {response}")
            await asyncio.sleep(max(0.0, period_seconds - times[-1]))
        return times

    def _frame(self, mode: str) -> tuple[bytes, int]:
        if mode == "topics":
            self._bodies.reverse()
        if mode != "same":
            self._version += 1
        body = self._bodies[0].replace(b"1000000", str(self._version).encode(), 1)
        fields = {**self._fields, "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF)}
        request = RemotingCommand.request(RequestCode.REGISTER_BROKER, fields, body)
        return encode_frame(request), request.opaque


def _body(topics: int, queues: int) -> bytes:
    """Return the body in the form of Apache's broker."""
    table = {
        f"topic-{number}": {
            "attributes": {"+message.type": "NORMAL"} if number % 2 else {},
            "order": False,
            "perm": 6,
            "readQueueNums": queues,
            "topicFilterType": "SINGLE_TAG",
            "topicName": f"topic-{number}",
            "topicSysFlag": 0,
            "writeQueueNums": queues,
        }
        for number in range(topics)
    }
    version = {"counter": 1_000_000, "stateVersion": 0, "timestamp": 1_700_000_000_000}
    wrapper = {
        "dataVersion": version,
        "mappingDataVersion": {"$ref": "$.topicConfigSerializeWrapper.dataVersion"},
        "topicConfigTable": table,
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
    }
    return orjson.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper})


if __name__ == "__main__":
    main()
