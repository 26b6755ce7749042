"""Restarts of one shard's process, and its shutdown, in virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rmq_broker.shards.child import CLEAN_END
from rmq_broker.shards.common_tables import CommonTables
from rmq_broker.shards.plan import ShardPlan
from rmq_broker.shards.runner import ShardRunner
from rmq_broker.shards.shard_link import ShardLink
from rmq_remoting.backoff import Backoff
from rmq_remoting.connection import Connection
from rmq_remoting.daemon.lifecycle import StartError
from rmq_remoting.daemon.ready import Ready
from tests.support.peers import Peer
from tests.support.waiting import loop_passes

pytestmark = pytest.mark.virtual_time

_READY = Ready(name="b-0", address="10.0.0.1:10911")


class _Child:
    """A process that does what the test says."""

    def __init__(self, link: ShardLink, *, hangs: bool = False, error: OSError | None = None) -> None:
        self.peer = Peer(link)  # type: ignore[arg-type]
        self.began = asyncio.get_running_loop().time()
        self.stops_asked = 0
        self._hangs = hangs
        self._error = error
        self._ready: asyncio.Future[Ready | None] = asyncio.get_running_loop().create_future()
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def is_ready(self) -> None:
        self._ready.set_result(_READY)

    def end(self, cause: str) -> None:
        self._ended.set_result(cause)
        if not self._ready.done():
            self._ready.set_result(None)

    async def start(self) -> Connection:
        if self._error is not None:
            raise self._error
        return self.peer.connection

    async def ready(self) -> Ready | None:
        return await self._ready

    async def ended(self) -> str:
        return await asyncio.shield(self._ended)

    def ask_to_stop(self) -> None:
        self.stops_asked += 1
        if not self._hangs and not self._ended.done():
            self.end(CLEAN_END)

    def kill(self) -> None:
        self.end("signal SIGKILL")


class _Run:
    """A runner and its processes, the last one being `child`."""

    def __init__(self, *, hangs: bool, error: OSError | None) -> None:
        plan = ShardPlan(0, "b-0", 10911, Path())
        self.children: list[_Child] = []
        self._made = asyncio.Queue[_Child]()
        loop = asyncio.get_running_loop()
        link = ShardLink(0, plan.broker_name, _Tables())

        def new_child() -> _Child:
            self.children.append(_Child(link, hangs=hangs, error=error))
            self._made.put_nowait(self.child)
            return self.child

        backoff = Backoff(0.5, 30.0, lambda: 0.0)
        self.hangs = asyncio.Event()

        async def until_silent(*_: object) -> None:
            await self.hangs.wait()
            self.hangs.clear()

        self.runner = ShardRunner(
            plan, link, new_child, clock=loop.time, backoff=backoff, until_silent=until_silent
        )

    @property
    def child(self) -> _Child:
        return self.children[-1]

    async def next_child(self) -> float:
        """Wait for the next process; return the seconds since its predecessor ended."""
        began = asyncio.get_running_loop().time()
        while not self._made.empty():
            self._made.get_nowait()
        return (await self._made.get()).began - began


class _Tables(CommonTables):
    """Tables without a file."""

    def __init__(self) -> None:
        self._listeners = []

    def begin(self, shard: int) -> None:
        pass


@asynccontextmanager
async def _running(*, hangs: bool = False, error: OSError | None = None) -> AsyncIterator[_Run]:
    run = _Run(hangs=hangs, error=error)
    task = asyncio.ensure_future(run.runner.run())
    await loop_passes()
    try:
        yield run
    finally:
        await run.runner.stop(1.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_shard_that_ends_is_restarted_with_growing_pauses(caplog: pytest.LogCaptureFixture) -> None:
    async with _running() as run:
        pauses = []
        run.child.is_ready()
        await loop_passes()
        for _ in range(8):
            run.child.end("signal SIGKILL")
            pauses.append(round(await run.next_child(), 1))

    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert run.runner.restarts == 8
    assert "shard ended, restarting it shard=b-0 cause=signal SIGKILL restart_in_s=0.5" in caplog.text


async def test_pauses_begin_anew_after_a_long_run() -> None:
    async with _running() as run:
        run.child.is_ready()
        for _ in range(4):
            await loop_passes()
            run.child.end("exit code 1")
            await run.next_child()
        await asyncio.sleep(61)
        run.child.end("exit code 1")

        assert round(await run.next_child(), 1) == 0.5


async def test_a_first_start_that_fails_is_told_and_not_repeated() -> None:
    async with _running() as run:
        run.child.end("exit code 1")

        with pytest.raises(StartError, match=r"b-0 has ended \(exit code 1\); its log lines say why"):
            await run.runner.first_ready()

        await asyncio.sleep(100)
        assert len(run.children) == 1


async def test_a_process_that_cannot_be_started_is_told() -> None:
    async with _running(error=OSError("no memory")) as run:
        with pytest.raises(StartError, match="its process cannot be started: no memory"):
            await run.runner.first_ready()


async def test_the_facts_of_the_first_process_are_returned(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with _running() as run:
        assert not run.runner.is_ready
        run.child.is_ready()

        assert await run.runner.first_ready() == _READY
        assert run.runner.is_ready
        run.child.end("exit code 1")
        await loop_passes(10)
        assert not run.runner.is_ready


async def test_a_shard_without_a_connection_is_stopped_and_restarted() -> None:
    async with _running() as run:
        run.child.is_ready()
        await loop_passes()
        first = run.child
        first.peer.transport.lose(None)
        await run.next_child()

        assert first.stops_asked == 1


async def test_a_shard_that_does_not_answer_is_killed_and_restarted(caplog: pytest.LogCaptureFixture) -> None:
    async with _running(hangs=True) as run:
        run.child.is_ready()
        await loop_passes()
        run.hangs.set()
        await run.next_child()

        assert (run.runner.hangs, run.runner.restarts) == (1, 1)
        assert "shard does not answer, killing it shard=b-0 silent_s=30 hangs=1" in caplog.text
        assert "shard ended, restarting it shard=b-0 cause=signal SIGKILL" in caplog.text


async def test_a_shard_that_stops_may_take_its_time() -> None:
    async with _running(hangs=True) as run:
        run.child.is_ready()
        await loop_passes()
        stopping = asyncio.ensure_future(run.runner.stop(38.0))
        await loop_passes()
        run.hangs.set()
        await asyncio.sleep(30)
        assert not stopping.done()
        run.child.end(CLEAN_END)

        assert await stopping
        assert run.runner.hangs == 0


async def test_a_stop_is_graceful() -> None:
    async with _running() as run:
        run.child.is_ready()
        await loop_passes()

        assert await run.runner.stop(1.0)
        assert run.child.stops_asked == 1
        await asyncio.sleep(100)
        assert len(run.children) == 1


async def test_a_shard_that_does_not_stop_is_killed(caplog: pytest.LogCaptureFixture) -> None:
    async with _running(hangs=True) as run:
        run.child.is_ready()
        await loop_passes()

        assert not await run.runner.stop(38.0)

    assert "shard not stopped in time, killing it shard=b-0 limit_s=38" in caplog.text


async def test_a_stop_during_the_pause_before_a_restart_ends_at_once() -> None:
    async with _running() as run:
        run.child.is_ready()
        await loop_passes()
        run.child.end("exit code 1")
        await loop_passes(10)

        assert await run.runner.stop(1.0)
        await asyncio.sleep(100)
        assert len(run.children) == 1


async def test_a_stop_before_the_shard_is_ready_ends_the_wait_for_it() -> None:
    async with _running() as run:
        waiting = asyncio.ensure_future(run.runner.first_ready())
        await loop_passes()

        assert await run.runner.stop(1.0)

        await asyncio.wait([waiting])
        assert waiting.cancelled()
