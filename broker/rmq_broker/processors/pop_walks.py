"""Walks of pops, peeks and notifications through queues, with their pauses and their reads from a disk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from rmq_remoting.answers import Answer
from rmq_remoting.errors import CommandError

from ..delivery.cold_reads import ClientGone, ColdReads
from ..delivery.waiting_requests import LookResult
from ..store.api import ColdRead, GetResult

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ..delivery.turns import LoopSlices
    from ..pop.walk import Stop, Walk
    from ..store.api import MessageStore


log = logging.getLogger("rmq.broker.processors")

_R = TypeVar("_R", Answer, LookResult)


class QueueWalks:
    """Runs walks through queues to their end.

    A topic may have 65,536 queues, and a walk takes 1 to 3 µs for each.
    """

    def __init__(self, store: MessageStore, cold: ColdReads, slices: LoopSlices) -> None:
        self._store = store
        self._cold = cold
        self._slices = slices

    def finish(
        self,
        connection: Connection,
        walk: Walk,
        check: Callable[[], None],
        conclude: Callable[[], _R | asyncio.Future[_R]],
    ) -> _R | asyncio.Future[_R]:
        """Return what `conclude` returns after the walk; a future of it if the walk pauses or reads a disk.

        `check` raises CommandError if the walk may not go on after a pause, for instance because the topic is
        deleted.
        """
        try:
            stop = next(walk)
        except StopIteration:
            return conclude()
        return asyncio.get_running_loop().create_task(
            self._finish(connection, walk, stop, check, conclude), name="walk through queues"
        )

    async def _finish(
        self,
        connection: Connection,
        walk: Walk,
        stop: Stop,
        check: Callable[[], None],
        conclude: Callable[[], _R | asyncio.Future[_R]],
    ) -> _R:
        try:
            while True:
                result: GetResult | None = None
                if isinstance(stop, ColdRead):
                    result = await self._read_cold(connection, stop)
                else:
                    await self._slices.pause(connection)
                    if connection.is_closed:
                        return None
                    check()
                try:
                    stop = walk.send(result)
                except StopIteration:
                    break
        finally:
            walk.close()
        if connection.is_closed:
            return None  # popped messages are redelivered after their invisible time
        outcome = conclude()
        return await outcome if isinstance(outcome, asyncio.Future) else outcome

    async def _read_cold(self, connection: Connection, cold: ColdRead) -> GetResult | None:
        """Return the messages; None if the read was refused or failed: the walk goes on with the next queue.

        An error would be the answer to the whole pop, and messages of other queues, which are in flight by
        then, would reach no consumer.
        """
        try:
            await self._cold.run(connection, cold.run, cold.read_ahead)
        except (ClientGone, CommandError):
            return None
        except OSError as error:
            queue = cold.queue
            log.error(
                "messages not popped, they cannot be read topic=%s queue=%d cause=%s",
                queue.topic,
                queue.queue_id,
                error,
            )
            return None
        return self._store.finish(cold)
