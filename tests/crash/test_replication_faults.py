"""Faults in random order under load, on a group that needs a replica: nothing acknowledged is lost.

Each round picks a fault: a process is killed or stands still, the connection of the replica is cut or slow,
or the replica takes over. RMQ_CRASH_ROUNDS sets the number of rounds (`make test-crash`: 50).
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rmq_remoting.codes import ResponseCode
from tests.crash.directory import check_directory
from tests.crash.failover import MASTER, REPLICA, Node, create_topics, followed
from tests.crash.ledger_load import LedgerLoad, read_queues
from tests.support.ledger import Ledger
from tests.support.namesrv import running_namesrv
from tests.support.ports import LOOPBACK, free_port
from tests.support.slow_relay import SlowRelay

pytestmark = pytest.mark.long

_ROUNDS = int(os.environ.get("RMQ_CRASH_ROUNDS", "8"))
_MESSAGES = 300
_STILL_SECONDS = (0.1, 4.0)
_NEEDS_REPLICA = {**MASTER, "minInSyncReplicas": "2"}
# Longer than a fault: the connection of a replica that stands still is kept.
_ANSWERS = {
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.SERVICE_NOT_AVAILABLE,  # fewer than minInSyncReplicas
}


class _Group:
    """Two brokers, the relay between them, and the load."""

    def __init__(self, folder: Path, namesrv: str, flush_mode: str, chance: random.Random) -> None:
        self.master = Node(folder / "a", namesrv, flush_mode)
        self.replica = Node(folder / "b", namesrv, flush_mode)
        self.ledger = Ledger()
        self.failovers: list[float] = []
        self._chance = chance
        self._relay_port = free_port()
        self.relay: SlowRelay | None = None

    async def begin(self) -> None:
        await self.master.start_as(_NEEDS_REPLICA)
        await self._start_relay()
        await self._start_replica()

    async def _start_relay(self) -> None:
        if self.relay is not None:
            await self.relay.close()
        self.relay = SlowRelay(LOOPBACK, self.master.port + 1, listen_port=self._relay_port)
        await self.relay.listen()

    async def _start_replica(self) -> None:
        address = {"haMasterAddress": f"{LOOPBACK}:{self._relay_port}"}
        await self.replica.start_as({**REPLICA, **address})

    # --- faults; each ends with a group that heals by itself ---

    async def kill_replica(self) -> None:
        self.replica.kill()
        await self._start_replica()

    async def stop_replica_for_a_moment(self) -> None:
        await self._still(self.replica)

    async def stop_master_for_a_moment(self) -> None:
        await self._still(self.master)

    async def cut(self) -> None:
        assert self.relay is not None
        self.relay.cut()

    async def slow_connection(self) -> None:
        assert self.relay is not None
        self.relay.delay_seconds = 0.2
        await asyncio.sleep(self._chance.uniform(*_STILL_SECONDS))
        self.relay.delay_seconds = 0.0

    async def _still(self, node: Node) -> None:
        os.kill(node.process.pid, signal.SIGSTOP)
        await asyncio.sleep(self._chance.uniform(*_STILL_SECONDS))
        os.kill(node.process.pid, signal.SIGCONT)

    async def fail_over(self) -> None:
        """Kill the master, and let the replica be the master."""
        self.master.kill()
        began = time.monotonic()
        self.replica.kill()
        self.master, self.replica = self.replica, self.master
        await self.master.start_as(_NEEDS_REPLICA)
        await self._start_relay()
        self.failovers.append(time.monotonic() - began)
        await create_topics(self.master)
        print(self.ledger.check(await read_queues(self.master.port)))
        await self._start_replica()


@pytest.mark.timeout(120 + 40 * _ROUNDS)
async def test_faults_in_random_order(tmp_path: Path, flush_mode: str, seed: int) -> None:
    chance = random.Random(seed)
    async with running_namesrv(tmp_path / "namesrv") as namesrv:
        group = _Group(tmp_path, namesrv.address, flush_mode, chance)
        faults: list[Callable[[], Awaitable[None]]] = [
            group.kill_replica,
            group.stop_replica_for_a_moment,
            group.stop_master_for_a_moment,
            group.cut,
            group.slow_connection,
        ]
        try:
            await group.begin()
            for number in range(_ROUNDS):
                fails_over = number % 3 == 2
                await followed(group.master)
                async with LedgerLoad(group.master.port, group.ledger, chance) as load:
                    await load.until_acknowledged(_MESSAGES, 60)
                    if not fails_over:
                        fault = chance.choice(faults)
                        print(f"round {number}: {fault.__name__}")
                        await fault()
                        await load.until_acknowledged(_MESSAGES, 60)
                    assert set(load.answers) <= _ANSWERS, load.answers
                    if fails_over:
                        print(f"round {number}: failover")
                        await group.fail_over()
                        await load.until_ended()
            await followed(group.master)
            await group.master.stop()
            await group.replica.stop()
            assert group.master.log() == group.replica.log()
            for node in (group.master, group.replica):
                check_directory(node.store_path, stopped_cleanly=True)
            seconds = sorted(group.failovers)
            median = seconds[len(seconds) // 2]
            print(f"seconds from kill to ready: median {median:.2f}, worst {seconds[-1]:.2f}")
            if group.relay is not None:
                await group.relay.close()
        finally:
            group.master.close()
            group.replica.close()
