"""Pulls whose messages are not in memory: they are read in a thread.

Apart from the other steps of a pull, because coroutines stay interpreted (docs/compiling.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmq_remoting.answers import Answer, Result

from ..delivery.cold_reads import ClientGone
from .outcomes import Outcome, outcome_of

if TYPE_CHECKING:
    from ..delivery.cold_reads import ColdReads
    from ..store.api import ColdRead, MessageStore
    from .request import Pull


class ColdPulls:
    """Finishes looks into queues that need the disk."""

    def __init__(self, store: MessageStore, reads: ColdReads) -> None:
        self._store = store
        self._reads = reads

    def answer(
        self, pull: Pull, cold: ColdRead, answer: Callable[[Outcome], Result]
    ) -> asyncio.Future[Answer]:
        """Return the future result of `answer`, which is called when the messages have been read."""
        answered = self._answer(pull, cold, answer)
        return asyncio.get_running_loop().create_task(answered, name="cold pull")

    async def _answer(self, pull: Pull, cold: ColdRead, answer: Callable[[Outcome], Result]) -> Answer:
        try:
            outcome = await self.read(pull, cold)
        except ClientGone:
            return None
        result = answer(outcome)
        return await result if isinstance(result, asyncio.Future) else result

    async def read(self, pull: Pull, cold: ColdRead) -> Outcome:
        """Finish a read in a thread.

        Raises ClientGone if the client disconnected meanwhile, CommandError if too many reads wait, OSError.
        """
        await self._reads.run(pull.connection, cold.run, cold.read_ahead)
        if pull.connection.is_closed:
            raise ClientGone
        return outcome_of(self._store.finish(cold), pull.queue_offset)
