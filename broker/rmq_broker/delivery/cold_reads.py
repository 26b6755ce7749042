"""Reads that wait for a disk, run for the loop in the threads of a tier.

As many reads run at a time as the pool has threads. A waiting read stays on the loop until a thread is free:
there it can be dropped when its client disconnects, and postponed while its client does not read its
responses. Connections take turns at the threads, so that one with thousands of cold reads delays the others
by one read each.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from rmq_remoting.dispatch import Clock
from rmq_remoting.tiers import PoolTier

from .turns import Permits

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

log = logging.getLogger("rmq.broker")

_T = TypeVar("_T")


class ClientGone(Exception):
    """The client disconnected before its read began: there is nobody to answer."""


class ColdReads:
    """Runs blocking reads in the threads of a tier, within the tier's bounds."""

    def __init__(self, tier: PoolTier, clock: Clock = time.monotonic) -> None:
        self._tier = tier
        self._clock = clock
        self._threads = Permits(tier.threads)
        self._under_way: set[asyncio.Task[Any]] = set()

    def stop(self) -> None:
        """Cancel the tasks that wait for a read; a read that has begun ends by itself."""
        for task in list(self._under_way):
            task.cancel()

    async def run(
        self, connection: Connection, read: Callable[[], _T], afterwards: Callable[[], None] | None = None
    ) -> _T:
        """Return the result of `read`, run in a thread; `afterwards` follows there and delays nobody.

        Raises ClientGone; CommandError (SYSTEM_BUSY) where too many reads wait or this one waited too long;
        and whatever `read` raises.
        """
        tier, statistics = self._tier, self._tier.statistics
        if not tier.has_room(connection):
            raise tier.refuse_full()
        statistics.accepted += 1
        tier.enter(connection)
        tier.wait_begins(task := asyncio.current_task())
        began = self._clock()
        assert task is not None
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        try:
            await self._free_thread(connection)
        finally:
            waited_seconds = self._clock() - began
            tier.wait_ends(task)
            tier.leave(connection, waited_seconds)
        statistics.running += 1
        try:
            if connection.is_closed:
                raise ClientGone
            if waited_seconds > tier.max_wait_seconds:
                raise tier.refuse_late(waited_seconds)
            return await self._in_thread(read, afterwards)
        finally:
            statistics.running -= 1
            self._threads.release()

    async def _free_thread(self, connection: Connection) -> None:
        """Wait for a free thread, and for the client to read what it was sent.

        Otherwise the responses of a client that does not read would pile up in memory.
        """
        while True:
            await connection.drain()
            await self._threads.acquire(connection)
            if connection.is_writable or connection.is_closed:
                return
            self._threads.release()

    def _in_thread(self, read: Callable[[], _T], afterwards: Callable[[], None] | None) -> asyncio.Future[_T]:
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
                if afterwards is not None:
                    afterwards()
            except Exception:
                log.warning(
                    "read-ahead failed tier=%s; the read itself succeeded", self._tier.name, exc_info=True
                )

        self._tier.submit(work)
        return future
