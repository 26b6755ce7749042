"""Pulls of messages that are not in memory wait here for a thread that reads them.

Reads take turns: as many run at a time as the pool has threads. What waits belongs to the loop, so that a
pull whose client has gone is dropped, and one whose client does not read its answers waits until it does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from rmq_remoting.codes import ResponseCode
from rmq_remoting.dispatch import Clock, PoolTier
from rmq_remoting.errors import CommandError

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

log = logging.getLogger("rmq.broker")

_T = TypeVar("_T")


class ColdPulls:
    """Runs reads that wait for a disk in the threads of a tier, for the loop."""

    def __init__(self, tier: PoolTier, clock: Clock = time.monotonic) -> None:
        self._tier = tier
        self._clock = clock
        self._free = asyncio.Semaphore(tier.threads)
        self._under_way: set[asyncio.Task[Any]] = set()

    def stop(self) -> None:
        """Give up what is under way; reads that have begun end by themselves."""
        for task in list(self._under_way):
            task.cancel()

    async def run(
        self, connection: Connection, read: Callable[[], _T], afterwards: Callable[[], None]
    ) -> _T | None:
        """What `read` gives, run in a thread; None where the client has gone. `afterwards` follows there.

        Raises CommandError (SYSTEM_BUSY) where too many wait or it waited too long, and what `read` raises.
        """
        tier, statistics = self._tier, self._tier.statistics
        if statistics.waiting >= tier.capacity:
            statistics.rejected_full += 1
            raise _busy(f"[REJECTREQUEST]system busy: {tier.capacity} pulls of {tier.name} wait already")
        statistics.accepted += 1
        statistics.waiting += 1
        statistics.max_waiting = max(statistics.max_waiting, statistics.waiting)
        began = self._clock()
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        try:
            await self._turn(connection)
        finally:
            statistics.waiting -= 1
            waited = self._clock() - began
            statistics.wait_seconds_total += waited
        statistics.running += 1
        try:
            if connection.is_closed:
                return None
            if waited > tier.max_wait_seconds:
                statistics.rejected_late += 1
                raise _busy(
                    f"[TIMEOUT_CLEAN_QUEUE]broker busy: waited {waited * 1000:.0f} ms in tier {tier.name}, "
                    f"the limit is {tier.max_wait_ms} ms; {statistics.waiting} pulls wait there"
                )
            return await self._in_thread(read, afterwards)
        finally:
            statistics.running -= 1
            self._free.release()

    async def _turn(self, connection: Connection) -> None:
        """Wait for a free thread. Who does not read would have answers pile up: that one waits on."""
        while True:
            await connection.drain()
            await self._free.acquire()
            if connection.is_writable or connection.is_closed:
                return
            self._free.release()

    def _in_thread(self, read: Callable[[], _T], afterwards: Callable[[], None]) -> asyncio.Future[_T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_T] = loop.create_future()

        def ended(outcome: Callable[[], None]) -> None:
            if not future.done():
                outcome()

        def work() -> None:
            try:
                result = read()
            except Exception as error:
                problem = error
                loop.call_soon_threadsafe(ended, lambda: future.set_exception(problem))
                return
            loop.call_soon_threadsafe(ended, lambda: future.set_result(result))
            try:
                afterwards()
            except Exception:
                log.warning("after a read in tier %s", self._tier.name, exc_info=True)

        try:
            self._tier.submit(work)
        except RuntimeError:  # the pool has been stopped
            raise _busy(f"[REJECTREQUEST]system busy: tier {self._tier.name} is shutting down") from None
        return future


def _busy(remark: str) -> CommandError:
    return CommandError(ResponseCode.SYSTEM_BUSY, remark)
