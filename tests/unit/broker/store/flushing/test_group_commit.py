"""Group commit: which flush ends which waits, in virtual time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from rmq_broker.store.durability import Durability
from rmq_broker.store.flushing.group_commit import CommitStatistics, GroupCommit
from rmq_broker.store.flushing.log_flush import LogFlush
from rmq_broker.store.flushing.stopping import stop_commits
from rmq_broker.store.log.commit_log import CommitLog
from rmq_broker.store.write_health import WriteHealth
from tests.support.waiting import loop_passes, until


class Log:
    """A log whose end is a number. A flush waits for the gate, and covers the end at its beginning."""

    def __init__(self) -> None:
        self.end = 0
        self.flushes = 0
        self.waiting = 0
        self.error: OSError | None = None
        self.gate = threading.Event()
        self.gate.set()

    def flush(self) -> int:
        covered = self.end
        self.waiting += 1
        assert self.gate.wait(30)
        self.waiting -= 1
        if self.error is not None:
            raise self.error
        self.flushes += 1
        return covered


class Parts:
    def __init__(self, longest_pause_s: float = 0.02) -> None:
        self.log = Log()
        self.now = 100.0
        self.told: list[int] = []
        self.health = WriteHealth()
        self.commits = GroupCommit(
            LogFlush(cast(CommitLog, self.log), self.health),
            timeout_ms=lambda: 5000,
            on_flushed=self.told.append,
            clock=lambda: self.now,
            longest_pause_s=longest_pause_s,
        )
        self.commits.start()

    def append(self, size: int = 10) -> asyncio.Future[Durability]:
        """Append to the log; the future tells how the wait for the flush of that ended."""
        self.log.end += size
        self.commits.request()
        return self.flushed_to(self.log.end)

    def flushed_to(self, offset: int) -> asyncio.Future[Durability]:
        future: asyncio.Future[Durability] = asyncio.get_running_loop().create_future()
        self.commits.when_flushed(offset, future.set_result)
        return future


@asynccontextmanager
async def new_parts(**options: float) -> AsyncIterator[Parts]:
    parts = Parts(**options)
    try:
        yield parts
    finally:
        parts.log.gate.set()
        parts.commits.close()
        parts.commits.join(10)


async def test_appends_of_one_loop_iteration_share_a_flush() -> None:
    async with new_parts() as parts:
        waiting = [parts.append() for _ in range(20)]
        assert await asyncio.gather(*waiting) == [Durability.DURABLE] * 20
        assert (parts.log.flushes, parts.told) == (1, [200])
        assert parts.commits.statistics == CommitStatistics(flushes=1, answered=20)


async def test_appends_during_a_flush_wait_for_the_next() -> None:
    async with new_parts() as parts:
        parts.log.gate.clear()
        first = parts.append()
        await until(lambda: parts.log.waiting)
        others = [parts.append() for _ in range(5)]
        await loop_passes()
        parts.log.gate.set()
        assert await first == Durability.DURABLE
        assert await asyncio.gather(*others) == [Durability.DURABLE] * 5
        assert (parts.log.flushes, parts.told) == (2, [10, 60])


async def _flushed_slowly(parts: Parts, seconds: float) -> asyncio.Future[Durability]:
    """Flush two messages in the given time; return the future of a third, appended during the flush."""
    parts.log.gate.clear()
    answered = [parts.append(), parts.append()]
    await until(lambda: parts.log.waiting)
    during = parts.append()
    parts.now += seconds
    parts.log.gate.set()
    await asyncio.gather(*answered)
    return during


async def test_a_flush_waits_for_the_producers_that_were_just_answered() -> None:
    async with new_parts(longest_pause_s=100.0) as parts:
        group = [await _flushed_slowly(parts, 400.0)]  # the pause, 100 s, ends when they have sent again
        group.append(parts.append())
        await loop_passes()
        assert not any(future.done() for future in group)
        group.append(parts.append())
        assert await asyncio.gather(*group) == [Durability.DURABLE] * 3
        assert parts.log.flushes == 2


async def test_a_flush_waits_for_a_part_of_the_time_that_the_last_one_took() -> None:
    async with new_parts() as parts:
        alone = await _flushed_slowly(parts, 0.02)
        assert await alone is Durability.DURABLE
        assert parts.log.flushes == 2


async def test_the_wait_is_short_after_a_disk_that_stalled() -> None:
    async with new_parts() as parts:
        alone = await _flushed_slowly(parts, 400.0)
        assert await asyncio.wait_for(alone, 10) is Durability.DURABLE


async def test_a_stop_ends_the_wait_for_more_messages() -> None:
    async with new_parts(longest_pause_s=100.0) as parts:
        alone = await _flushed_slowly(parts, 400.0)
        await stop_commits(parts.commits)
        assert alone.result() is Durability.DURABLE


async def test_a_wait_for_a_flushed_offset_ends_at_once() -> None:
    async with new_parts() as parts:
        assert await parts.append() == Durability.DURABLE
        waiting = parts.flushed_to(parts.log.end)
        assert not waiting.done()  # the loop goes on with other work first
        await asyncio.sleep(0)
        assert waiting.result() == Durability.DURABLE
        assert parts.log.flushes == 1
        assert parts.commits.statistics == CommitStatistics(flushes=1, answered=2)


async def test_a_wait_requests_a_flush() -> None:
    """As for the first wait after a start, or after a flush in the background."""
    async with new_parts() as parts:
        parts.log.end += 10
        waiting = [parts.flushed_to(10) for _ in range(3)]
        async with asyncio.timeout(4):
            assert await asyncio.gather(*waiting) == [Durability.DURABLE] * 3
        assert parts.log.flushes == 1


async def test_flushed_offsets_stay_flushed_after_a_failure() -> None:
    async with new_parts() as parts:
        assert await parts.append() == Durability.DURABLE
        flushed = parts.log.end
        parts.log.error = OSError(5, "Input/output error")
        known = parts.flushed_to(flushed)
        assert await parts.append() == Durability.FLUSH_FAILED
        assert await known == Durability.DURABLE


async def test_entries_are_made_before_listeners_are_called() -> None:
    async with new_parts() as parts:
        seen: list[list[int]] = []
        parts.log.end += 10
        parts.commits.request()
        parts.commits.when_flushed(10, lambda durability: seen.append(list(parts.told)))
        await parts.flushed_to(10)
        assert seen == [[10]]


async def test_timeouts_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    async with new_parts() as parts:
        parts.log.gate.clear()
        waits = []
        for _ in range(4):
            waits.append(parts.append())
            parts.now += 6
            parts.commits.expire()
        assert {await wait for wait in waits} == {Durability.FLUSH_TIMED_OUT}
        lines = [record.getMessage() for record in caplog.records if "timed out" in record.getMessage()]
        assert [line.split(" ")[3] for line in lines] == ["sends=1", "sends=2"]
        parts.log.gate.set()


async def test_a_wait_times_out() -> None:
    async with new_parts() as parts:
        parts.log.gate.clear()
        early = parts.append()
        parts.now += 3
        late = parts.append()
        parts.now += 2.5
        parts.commits.expire()
        assert await early == Durability.FLUSH_TIMED_OUT
        assert not late.done()
        assert parts.commits.waiting == 1
        assert parts.commits.statistics.timed_out == 1
        parts.log.gate.set()
        assert await late == Durability.DURABLE
        assert parts.commits.waiting == 0


async def test_a_failure_is_final_and_reaches_all_listeners() -> None:
    async with new_parts() as parts:
        parts.log.error = OSError(5, "Input/output error")
        assert await parts.append() == Durability.FLUSH_FAILED
        assert parts.health.refusal == "flushing to the disk failed: [Errno 5] Input/output error"
        parts.log.error = None
        assert await parts.append() == Durability.FLUSH_FAILED
        assert (parts.log.flushes, parts.told) == (0, [])
        assert parts.commits.statistics == CommitStatistics(failed=2)


async def test_a_listener_that_fails_is_logged_and_the_others_are_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with new_parts() as parts:

        def broken(durability: Durability) -> None:
            raise ValueError("no answer")

        parts.log.end += 10
        parts.commits.when_flushed(10, broken)
        assert await parts.append() is Durability.DURABLE
        assert "durability listener failed" in caplog.text


async def test_a_stop_flushes_a_last_time() -> None:
    async with new_parts() as parts:
        parts.log.gate.clear()
        first = parts.append()
        await until(lambda: parts.log.waiting)
        second = parts.append()
        stopping = asyncio.create_task(stop_commits(parts.commits))
        await loop_passes()
        parts.log.gate.set()
        await stopping
        assert [first.result(), second.result()] == [Durability.DURABLE, Durability.DURABLE]
        assert "store-group-commit" not in {thread.name for thread in threading.enumerate()}


async def test_close_ends_all_waits() -> None:
    async with new_parts() as parts:
        parts.log.gate.clear()
        waiting = parts.append()
        parts.commits.close()
        assert await waiting == Durability.FLUSH_TIMED_OUT
