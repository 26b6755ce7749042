"""Walks of pops and peeks through queues, with the reads in between that wait for a disk."""

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

    from ..pop.popping import Walk
    from ..store.api import MessageStore


log = logging.getLogger("rmq.broker.processors")

_R = TypeVar("_R", Answer, LookResult)


class QueueWalks:
    """Runs walks through queues to their end, with the reads in between that wait for a disk."""

    def __init__(self, store: MessageStore, cold: ColdReads) -> None:
        self._store = store
        self._cold = cold

    def finish(
        self, connection: Connection, walk: Walk, conclude: Callable[[], _R | asyncio.Future[_R]]
    ) -> _R | asyncio.Future[_R]:
        """Return what `conclude` returns after the walk; a future of it if the walk needs the disk."""
        try:
            cold = next(walk)
        except StopIteration:
            return conclude()
        return asyncio.get_running_loop().create_task(
            self._finish_cold(connection, walk, cold, conclude), name="cold pop"
        )

    async def _finish_cold(
        self,
        connection: Connection,
        walk: Walk,
        cold: ColdRead,
        conclude: Callable[[], _R | asyncio.Future[_R]],
    ) -> _R:
        try:
            while True:
                result = await self._read_cold(connection, cold)
                try:
                    cold = walk.send(result)
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
