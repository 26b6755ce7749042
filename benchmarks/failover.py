"""Failover by Apache's controller: the time from the kill of the master to the first accepted send.

python -m benchmarks.failover                writes the table into docs/replication.md
python -m benchmarks.failover --write FILE   elsewhere

One controller of Apache's and one name server of ours serve a group of two brokers of ours and one of two
brokers of Apache's, all on one machine. In each round the master of one group is killed by SIGKILL. A
producer asks for the route every 20 ms until a master has accepted its message. The killed broker is started
again, and the next round begins once both are in sync.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import uvloop

from benchmarks.comparison import FEWEST_PAIRS, Figure, alternate
from benchmarks.report import (
    APACHE,
    OWN,
    commit,
    comparison_table,
    paragraph,
    processor,
    python_build,
    write_between,
)
from tests.support import toolchain
from tests.support.apache import ApacheController
from tests.support.controlled_groups import START_SECONDS, Group, Server, started
from tests.support.own_servers import OwnNamesrv

_MARKS: Final = ("<!-- failover: written by `python -m benchmarks.failover` -->", "<!-- end of failover -->")
_JVM: Final = ("-Xms1g", "-Xmx1g")
_STORED_BEFORE: Final = 200


async def _measure(home: Path, rounds: int) -> Sequence[Figure]:
    """Kill the master of each group in turns."""
    figure = Figure("from `kill -9` of the master to the first accepted send", "s", at_most=1.0)
    program = toolchain.apache_servers()
    async with AsyncExitStack() as stack:
        namesrv = await stack.enter_async_context(OwnNamesrv())
        controller = await stack.enter_async_context(ApacheController(program))
        ours = Group(namesrv.address, controller.address, "broker-ours", "OfOurs")
        peer = Group(namesrv.address, controller.address, "broker-peer", "OfPeer")
        servers: dict[str, dict[int, Server]] = {"ours": {}, "peer": {}}
        for broker_id in (1, 2):
            for side, group in (("ours", ours), ("peer", peer)):
                folder = home / f"{side}-{broker_id}"
                server: Server = (
                    group.ours(folder) if side == "ours" else group.apaches(program, folder, jvm_options=_JVM)
                )
                servers[side][broker_id] = await started(stack, server)
                if broker_id == 1:
                    await group.create_topic(server.port)
        await alternate(
            [figure],
            partial(_fail_over, ours, servers["ours"]),
            partial(_fail_over, peer, servers["peer"]),
            rounds,
            warm_up=True,
        )
    worst = Figure("the same: worst of all rounds", "s", ours=[max(figure.ours)], peer=[max(figure.peer)])
    return [figure, worst]


async def _fail_over(group: Group, servers: dict[int, Server]) -> Sequence[float]:
    """Kill the master; return the seconds until a message was accepted. Starts the killed one again."""
    master = await group.until_in_sync(2)
    for number in range(_STORED_BEFORE):
        await group.until_accepted(b"%d" % number)
    killed = servers[master]
    began = time.monotonic()
    killed.kill()
    port = await group.until_accepted(b"after the kill")
    took = time.monotonic() - began
    assert port != killed.port
    await killed.start(START_SECONDS)
    await group.until_in_sync(2)
    return (took,)


def _conditions(rounds: int, took_seconds: float) -> str:
    return (
        f"Measured on {datetime.now(UTC):%Y-%m-%d} at commit {commit()}: {os.cpu_count()} cores "
        f"({processor()}), {python_build()}. Controller, name server, two brokers of each kind and the "
        f"producer on one machine, {rounds} alternating pairs after an uncounted one, "
        f"{took_seconds / 60:.0f} minutes. A producer asks for the route every 20 ms. "
        "Both groups have `allAckInSyncStateSet=true`. The end of the connection tells the controller of the "
        "kill. A row reaches its goal if the worse quartile does."
    )


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=FEWEST_PAIRS, help="pairs of measurements (7)")
    parser.add_argument("--write", type=Path, default=Path("docs/replication.md"))
    chosen = parser.parse_args()
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="rmq-failover-") as home,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        figures = runner.run(_measure(Path(home), chosen.rounds))
    conditions = _conditions(chosen.rounds, time.monotonic() - began)
    content = "\n\n".join((paragraph(conditions), comparison_table(figures, OWN, APACHE)))
    write_between(chosen.write, _MARKS, content)
    print(content)


if __name__ == "__main__":
    main()
