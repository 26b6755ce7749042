"""Records of half messages that are not in memory: they are read in a thread.

Apart from the processor of transactions, because coroutines stay interpreted (docs/compiling.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmq_remoting.answers import Answer, Result, answer_of
from rmq_remoting.daemon.deferred_answers import deferred_answer

from ..delivery.cold_reads import ClientGone

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ..delivery.cold_reads import ColdReads
    from ..store.api import MessageStore


class ColdRecords:
    """Reads records from the disk for requests."""

    def __init__(self, store: MessageStore, reads: ColdReads) -> None:
        self._store = store
        self._reads = reads

    def read(
        self, connection: Connection, offset: int, act: Callable[[bytes | None], Result]
    ) -> asyncio.Future[Answer]:
        """Read the record at a physical offset, and return the future result of `act`.

        The future raises CommandError if too many reads wait, and OSError.
        """
        return deferred_answer(self._read(connection, offset, act), "cold transaction")

    async def _read(
        self, connection: Connection, offset: int, act: Callable[[bytes | None], Result]
    ) -> Answer:
        try:
            record = await self._reads.run(connection, lambda: self._store.record_at(offset))
        except ClientGone:
            return None  # another producer of its group will be asked
        return await answer_of(act(record))
