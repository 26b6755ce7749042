"""Pulls whose messages are not in memory: they are read in a thread.

Apart from the other steps of a pull, because coroutines stay interpreted (docs/compiling.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ..delivery.cold_reads import ClientGone
from .outcomes import Outcome, outcome_of

if TYPE_CHECKING:
    from ..delivery.cold_reads import ColdReads
    from ..store.api import ColdRead, MessageStore
    from .cold_groups import ColdReadGroups
    from .request import Pull

Acted = TypeVar("Acted")


class ColdPulls:
    """Finishes looks into queues that need the disk."""

    def __init__(self, store: MessageStore, reads: ColdReads, groups: ColdReadGroups) -> None:
        self._groups = groups
        self._store = store
        self._reads = reads

    def finish(
        self, pull: Pull, cold: ColdRead, act: Callable[[Outcome], Acted | asyncio.Future[Acted]]
    ) -> asyncio.Future[Acted | None]:
        """Read in a thread, and return the future result of `act`; None if the client disconnected meanwhile.

        The future raises CommandError if too many reads wait, and OSError.
        """
        finished = self._finish(pull, cold, act)
        return asyncio.get_running_loop().create_task(finished, name="cold pull")

    async def _finish(
        self, pull: Pull, cold: ColdRead, act: Callable[[Outcome], Acted | asyncio.Future[Acted]]
    ) -> Acted | None:
        try:
            await self._reads.run(pull.connection, cold.run, cold.read_ahead)
        except ClientGone:
            return None
        result = self._store.finish(cold)
        if result.cold_bytes:
            self._groups.count(pull.plan.header.consumer_group, result.cold_bytes)
        if pull.connection.is_closed:
            return None
        acted = act(outcome_of(result, pull.queue_offset))
        return await acted if isinstance(acted, asyncio.Future) else acted
