"""Walks through queues, which wait where a disk is to be read, brought to their end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmq_remoting.dispatch import Answer, Result
from rmq_remoting.errors import CommandError

from ..delivery.cold_reads import ClientGone, ColdReads
from ..store.api import ColdRead, GetResult

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ..pop.popping import Walk
    from ..store.api import MessageStore


class Walks:
    """Goes on with a walk as soon as it can."""

    def __init__(self, store: MessageStore, cold: ColdReads) -> None:
        self._store = store
        self._cold = cold

    def finish(self, connection: Connection, walk: Walk, then: Callable[[], Result]) -> Result:
        """What `then` gives at the end of the walk: at once, or after what has to be read from the disk."""
        try:
            cold = next(walk)
        except StopIteration:
            return then()
        return asyncio.get_running_loop().create_task(
            self._finish_cold(connection, walk, cold, then), name="cold pop"
        )

    async def _finish_cold(
        self, connection: Connection, walk: Walk, cold: ColdRead, then: Callable[[], Result]
    ) -> Answer:
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
            return None  # what was popped comes back
        answer = then()
        return await answer if isinstance(answer, asyncio.Future) else answer

    async def _read_cold(self, connection: Connection, cold: ColdRead) -> GetResult | None:
        """What is on the disk; None where too many wait for it: the other queues may have something."""
        try:
            await self._cold.run(connection, cold.run, cold.read_ahead)
        except (ClientGone, CommandError):
            return None
        return self._store.reader.finish(cold)
