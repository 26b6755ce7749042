"""Replication: a SYNC_MASTER beside Apache's, the cost of a replica for an ASYNC_MASTER, and its lag.

python -m benchmarks.replication                writes the table into docs/replication.md
python -m benchmarks.replication --write FILE   elsewhere

All brokers of a group, and the clients, share one machine. Each group has a name server of its own. Apache's
SYNC_MASTER has `inSyncReplicas=2`, since it waits for nobody with its default.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import uvloop

from benchmarks.comparison import FEWEST_PAIRS, Figure, alternate, count_failed, repeat
from benchmarks.load import LoadClient
from benchmarks.peer import BROKER_JVM
from benchmarks.report import Report, paragraph, write_between
from benchmarks.store_bench import load_client
from rmq_remoting.bodies.ha import HARuntimeInfo
from rmq_remoting.codes import RequestCode
from tests.support import toolchain
from tests.support.apache import ApacheBroker
from tests.support.broker_requests import request, succeeded
from tests.support.own_servers import OwnBroker, OwnNamesrv
from tests.support.ports import LOOPBACK
from tests.support.raw_client import raw_client

_MARKS: Final = ("<!-- replication: written by `python -m benchmarks.replication` -->", "<!-- end -->")
_TOPIC: Final = "Replicated"
_BYTES: Final = 1024
_WARM_UP_SECONDS: Final = 20
_SAMPLE_SECONDS: Final = 0.1
_FOLLOWS_WITHIN_SECONDS: Final = 90.0
_SYNC: Final = {
    "brokerRole": "SYNC_MASTER",
    "totalReplicas": "2",
    "inSyncReplicas": "2",
    "brokerIP2": LOOPBACK,
}
_ASYNC: Final = {"brokerRole": "ASYNC_MASTER", "brokerIP2": LOOPBACK}
_REPLICA: Final = {"brokerRole": "SLAVE", "brokerIP2": LOOPBACK}


async def _ha_status(port: int) -> HARuntimeInfo:
    async with raw_client(port) as client:
        answer = succeeded(await client.ask(request(RequestCode.GET_BROKER_HA_STATUS)))
    return HARuntimeInfo.decode(answer.body)


async def _until_followed(port: int) -> None:
    deadline = time.monotonic() + _FOLLOWS_WITHIN_SECONDS
    while not (await _ha_status(port)).in_sync_slave_nums:
        if time.monotonic() > deadline:
            raise RuntimeError(f"no replica follows the broker at port {port}")
        await asyncio.sleep(_SAMPLE_SECONDS)


@asynccontextmanager
async def _own_group(
    home: Path, master: Mapping[str, str], *, has_replica: bool = True
) -> AsyncIterator[tuple[OwnNamesrv, OwnBroker]]:
    """A name server of ours, a master and a replica."""
    async with AsyncExitStack() as stack:
        namesrv = await stack.enter_async_context(OwnNamesrv())
        broker = OwnBroker(namesrv.address, home=home / "master", settings=master)
        await stack.enter_async_context(broker)
        if has_replica:
            replica = OwnBroker(
                namesrv.address, home=home / "replica", settings={**_REPLICA, "brokerId": "1"}
            )
            await stack.enter_async_context(replica)
            await _until_followed(broker.port)
        yield namesrv, broker


@asynccontextmanager
async def _apaches_group(home: Path) -> AsyncIterator[tuple[OwnNamesrv, ApacheBroker]]:
    """A name server of ours, a master of Apache's, and a replica of Apache's."""
    broker = partial(ApacheBroker, toolchain.apache_servers(), jvm_options=BROKER_JVM)
    async with AsyncExitStack() as stack:
        namesrv = await stack.enter_async_context(OwnNamesrv())
        master = broker(namesrv.address, home=home / "master", settings=_SYNC)
        await stack.enter_async_context(master)
        replica = broker(namesrv.address, home=home / "replica", broker_id=1, settings=_REPLICA)
        await stack.enter_async_context(replica)
        await _until_followed(master.port)
        yield namesrv, master


async def _synchronous(home: Path, rounds: int, seconds: int) -> Sequence[Figure]:
    """A SYNC_MASTER and a replica: synchronous sends with 64 threads."""
    figure = Figure(
        "SYNC_MASTER and a replica: synchronous sends, 64 threads, 1 KiB", "messages/s", at_least=1.2
    )
    async with AsyncExitStack() as stack:
        ours_at, _ = await stack.enter_async_context(_own_group(home / "ours", _SYNC))
        peer_at, _ = await stack.enter_async_context(_apaches_group(home / "peer"))
        sides: dict[str, Callable[[], Awaitable[Sequence[float]]]] = {}
        for side, address in (("ours", ours_at.address), ("peer", peer_at.address)):
            client = stack.enter_context(load_client(home / f"client-{side}", address, keep_running=True))
            await client.sync(_TOPIC, size=_BYTES, seconds=_WARM_UP_SECONDS, warmup_s=1)
            sides[side] = partial(_rate, figure, side, client, seconds)
        await alternate([figure], sides["ours"], sides["peer"], rounds, warm_up=True)
    return [figure]


async def _rate(figure: Figure, side: str, client: LoadClient, seconds: int) -> Sequence[float]:
    result = await client.sync(_TOPIC, size=_BYTES, seconds=seconds, warmup_s=1)
    count_failed([figure], side, result)
    return (result.messages_per_second,)


async def _asynchronous(home: Path, rounds: int, seconds: int) -> Sequence[Figure]:
    """An ASYNC_MASTER with a replica beside one without; the lag of the replica meanwhile."""
    share = Figure("ASYNC_MASTER: rate with a replica, as a share of that without", "x", ours_at_least=0.85)
    cost = Figure("the same: the master's CPU time per send", "x")
    lag = Figure("the same: longest lag of the replica", "s", ours_at_most=1.0)
    async with AsyncExitStack() as stack:
        loads = []
        for name in ("with", "without"):
            group = _own_group(home / name, _ASYNC, has_replica=name == "with")
            namesrv, broker = await stack.enter_async_context(group)
            client = stack.enter_context(
                load_client(home / f"client-{name}", namesrv.address, keep_running=True)
            )
            await client.sync(_TOPIC, size=_BYTES, seconds=_WARM_UP_SECONDS, warmup_s=1)
            loads.append((client, broker))
        turn = 0

        async def once() -> Sequence[float]:
            nonlocal turn
            turn += 1
            results = {}
            for number in (0, 1) if turn % 2 else (1, 0):
                client, broker = loads[number]
                lags: list[int] = []
                sampling = asyncio.ensure_future(_sample_lag(broker.port, lags))
                result = await client.sync(
                    _TOPIC, size=_BYTES, seconds=seconds, warmup_s=1, server=broker.usage
                )
                sampling.cancel()
                results[number] = (
                    result.messages_per_second,
                    result.server_cpu_micros_per_message or 0.0,
                    max(lags, default=0) / (result.messages_per_second * _BYTES),
                )
            with_one, without = results[0], results[1]
            return with_one[0] / without[0], with_one[1] / without[1], with_one[2]

        await repeat([share, cost, lag], once, rounds)
    return [share, cost, lag]


async def _sample_lag(port: int, lags: list[int]) -> None:
    """Append how many bytes the replica lacks, until cancelled."""
    while True:
        lags.extend(replica.diff for replica in (await _ha_status(port)).ha_connection_info)
        await asyncio.sleep(_SAMPLE_SECONDS)


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=FEWEST_PAIRS, help="pairs of measurements (7)")
    parser.add_argument("--seconds", type=int, default=8, help="counted seconds of one measurement (8)")
    parser.add_argument("--write", type=Path, default=Path("docs/replication.md"))
    chosen = parser.parse_args()
    began = time.monotonic()
    figures: list[Figure] = []
    with (
        tempfile.TemporaryDirectory(prefix="rmq-replication-") as home,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        for measure in (_synchronous, _asynchronous):
            figures += runner.run(measure(Path(home) / measure.__name__, chosen.rounds, chosen.seconds))
    took = time.monotonic() - began
    report = Report(figures, _MARKS, chosen.rounds, chosen.seconds, _WARM_UP_SECONDS, took)
    content = "\n\n".join((paragraph(report.conditions()), report.table()))
    write_between(chosen.write, _MARKS, content)
    print(content)


if __name__ == "__main__":
    main()
