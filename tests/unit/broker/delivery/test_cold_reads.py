"""Reads that wait for a disk: the bounds of their pool, and clients that disconnect or do not read."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rmq_broker.delivery.cold_reads import ClientGone, ColdReads
from rmq_remoting.codes import ResponseCode
from rmq_remoting.connection import Connection
from rmq_remoting.errors import CommandError
from rmq_remoting.tiers import PoolTier
from tests.support.peers import Peer
from tests.support.waiting import loop_passes, until


class _Disk:
    """Reads that block until they are released."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.afterwards: list[str] = []
        self._release = threading.Event()

    def release(self) -> None:
        self._release.set()

    def read(self, name: str) -> str:
        self.begun.append(name)
        assert self._release.wait(20)
        return name


class _Pool:
    """A pool of one thread over a disk, and a clock."""

    def __init__(self, capacity: int = 2) -> None:
        self.now = 1000.0
        clock = lambda: self.now  # noqa: E731 (for both)
        self.tier = PoolTier("pull_cold", threads=1, capacity=capacity, max_wait_ms=5000, clock=clock)
        self.disk = _Disk()
        self.cold = ColdReads(self.tier, clock)

    def run(self, name: str, connection: Connection | None = None) -> asyncio.Task[str]:
        return asyncio.create_task(
            self.cold.run(
                connection or Peer().connection,
                lambda: self.disk.read(name),
                lambda: self.disk.afterwards.append(name),
            )
        )


@asynccontextmanager
async def _pool(capacity: int = 2) -> AsyncIterator[_Pool]:
    pool = _Pool(capacity)
    try:
        yield pool
    finally:
        pool.disk.release()
        await until(lambda: not pool.tier.statistics.running)
        assert pool.tier.statistics.waiting == 0
        pool.tier.stop()


async def test_the_longest_wait_for_a_thread_is_told() -> None:
    async with _pool() as pool:
        reads = [pool.run("a"), pool.run("b")]
        await until(lambda: pool.disk.begun == ["a"])
        pool.now += 1.5
        assert pool.tier.head_wait_seconds() == 1.5
        reads[1].cancel()
        await until(reads[1].done)
        assert pool.tier.head_wait_seconds() == 0.0
        pool.disk.release()
        await reads[0]


async def test_as_many_reads_run_as_the_pool_has_threads() -> None:
    async with _pool() as pool:
        reads = [pool.run("a"), pool.run("b"), pool.run("c")]
        await until(lambda: pool.disk.begun == ["a"])
        assert (pool.tier.statistics.running, pool.tier.statistics.waiting) == (1, 2)
        pool.disk.release()
        assert await asyncio.gather(*reads) == ["a", "b", "c"]
        await until(lambda: pool.disk.afterwards == ["a", "b", "c"])
        assert pool.tier.statistics.accepted == 3
        assert pool.tier.statistics.max_waiting == 2


async def test_a_read_over_the_capacity_is_refused_at_once() -> None:
    async with _pool(capacity=1) as pool:
        first = pool.run("a")
        await until(lambda: pool.disk.begun == ["a"])
        second = pool.run("b")
        await loop_passes()
        with pytest.raises(CommandError, match=r"\[REJECTREQUEST\]") as caught:
            await pool.run("c")
        assert caught.value.code == ResponseCode.SYSTEM_BUSY
        assert pool.tier.statistics.rejected_full == 1
        pool.disk.release()
        assert [await first, await second] == ["a", "b"]
        assert await pool.run("d") == "d"


async def test_a_read_that_waited_too_long_is_refused() -> None:
    async with _pool() as pool:
        first, second = pool.run("a"), pool.run("b")
        await until(lambda: pool.disk.begun == ["a"])
        pool.now += 5.1
        pool.disk.release()
        assert await first == "a"
        with pytest.raises(CommandError, match="TIMEOUT_CLEAN_QUEUE"):
            await second
        assert pool.disk.begun == ["a"]
        assert pool.tier.statistics.rejected_late == 1


async def test_nothing_is_read_for_a_client_that_disconnected() -> None:
    async with _pool() as pool:
        gone = Peer()
        first, second, third = pool.run("a"), pool.run("b", gone.connection), pool.run("c")
        await until(lambda: pool.disk.begun == ["a"])
        gone.connection.abort()
        await loop_passes()
        assert gone.connection.is_closed
        pool.disk.release()
        assert [await first, await third] == ["a", "c"]
        with pytest.raises(ClientGone):
            await second
        assert pool.disk.begun == ["a", "c"]


async def test_a_read_waits_until_its_client_reads_its_responses() -> None:
    async with _pool() as pool:
        slow = Peer()
        pool.disk.release()
        slow.connection.pause_writing()
        read = pool.run("slow", slow.connection)
        assert await pool.run("other") == "other"
        assert not read.done()
        slow.connection.resume_writing()
        assert await read == "slow"


async def test_a_client_that_stops_reading_keeps_no_thread() -> None:
    async with _pool() as pool:
        slow = Peer()
        first, second = pool.run("a"), pool.run("slow", slow.connection)
        await until(lambda: pool.disk.begun == ["a"])
        slow.connection.pause_writing()
        pool.disk.release()
        assert await first == "a"
        assert await pool.run("other") == "other"
        slow.connection.resume_writing()
        assert await second == "slow"


async def test_an_error_of_the_disk_is_raised() -> None:
    async with _pool() as pool:

        def fail() -> str:
            raise OSError("Input/output error")

        with pytest.raises(OSError, match="Input/output"):
            await pool.cold.run(Peer().connection, fail)
        pool.disk.release()
        assert await pool.run("next") == "next"


async def test_a_stop_cancels_running_and_waiting_reads() -> None:
    async with _pool() as pool:
        reads = [pool.run("a"), pool.run("b")]
        await until(lambda: pool.disk.begun == ["a"])
        pool.tier.stop()
        pool.cold.stop()
        results = await asyncio.gather(*reads, return_exceptions=True)
        assert [type(result) for result in results] == [asyncio.CancelledError] * 2
        with pytest.raises(CommandError, match="shutting down"):
            await pool.run("c")


async def test_a_failed_read_ahead_is_logged_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async with _pool() as pool:
        pool.disk.release()

        def fail() -> None:
            raise OSError("no such advice")

        assert await pool.cold.run(Peer().connection, lambda: "read", fail) == "read"
        assert await pool.run("next") == "next"
        await until(lambda: "read-ahead failed tier=pull_cold" in caplog.text)
        await until(lambda: "no such advice" in caplog.text)


async def test_connections_take_turns_at_the_threads() -> None:
    async with _pool(capacity=100) as pool:
        greedy, modest = Peer(), Peer()
        reads = [pool.run(f"greedy {number}", greedy.connection) for number in range(4)]
        await until(lambda: pool.disk.begun == ["greedy 0"])
        reads += [pool.run(f"modest {number}", modest.connection) for number in range(2)]
        await loop_passes()
        pool.disk.release()
        await asyncio.gather(*reads)
        order = ["greedy 0", "greedy 1", "modest 0", "greedy 2", "modest 1", "greedy 3"]
        assert pool.disk.begun == order
