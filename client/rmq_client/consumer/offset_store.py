"""How far a group has consumed: kept here, committed to the brokers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from rmq_remoting.message_queue import MessageQueue

from ..brokers import BrokerApi
from ..errors import ClientError

log = logging.getLogger("rmq.client.offsets")

AddressOf = Callable[[MessageQueue], "str | None"]
"""The address of a queue's master broker, None where it is not known."""


class OffsetStore:
    """The offsets of one group, by queue: the next message that it wants. Belongs to one loop."""

    def __init__(self, group: str, api: BrokerApi, address_of: AddressOf) -> None:
        self._group = group
        self._api = api
        self._address_of = address_of
        self._offsets: dict[MessageQueue, int] = {}
        self.commits = 0

    def advance(self, queue: MessageQueue, offset: int) -> None:
        """All before `offset` is consumed; never goes back."""
        if offset > self._offsets.get(queue, -1):
            self._offsets[queue] = offset

    def set(self, queue: MessageQueue, offset: int) -> None:
        """Go to `offset`, also back."""
        self._offsets[queue] = offset

    def get(self, queue: MessageQueue) -> int | None:
        """The offset of a queue, None where nothing of it has been consumed."""
        return self._offsets.get(queue)

    def forget(self, queue: MessageQueue) -> None:
        """The queue is somebody else's."""
        self._offsets.pop(queue, None)

    def items(self) -> list[tuple[MessageQueue, int]]:
        """All offsets."""
        return list(self._offsets.items())

    async def commit(self, queues: Iterable[MessageQueue] | None = None) -> bool:
        """Tell the brokers, all queues at once. What fails is logged, and told again the next time.

        Returns whether all went well.
        """
        chosen = (
            list(self._offsets) if queues is None else [queue for queue in queues if queue in self._offsets]
        )
        done = await asyncio.gather(*(self._commit_one(queue, self._offsets[queue]) for queue in chosen))
        return all(done)

    async def _commit_one(self, queue: MessageQueue, offset: int) -> bool:
        address = self._address_of(queue)
        if address is None:
            log.warning("offset %d of %s is not committed: its broker is not known", offset, queue)
            return False
        try:
            await self._api.commit_offset(address, self._group, queue, offset)
        except ClientError as error:
            log.warning("%s", error)
            return False
        self.commits += 1
        return True
