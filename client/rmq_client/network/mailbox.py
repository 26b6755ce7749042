"""Batched hand-over of items from any thread to one event loop."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Takes items from any thread and delivers them on one loop, in order, in batches.

    It has no bound of its own: callers must bound their items in flight.
    """

    __slots__ = ("_deliver", "_dropped", "_items", "_loop", "_scheduled")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        deliver: Callable[[list[T]], None],
        dropped: Callable[[list[T]], None] | None = None,
    ) -> None:
        """Deliver to `deliver` on `loop`.

        `dropped` is called on the thread of `put` with items that came after the end of the loop.
        """
        self._loop = loop
        self._deliver = deliver
        self._dropped = dropped
        self._items: deque[T] = deque()
        self._scheduled = False

    def put(self, item: T) -> None:
        """Hand `item` over. It is dropped if the loop has ended."""
        # Safe without a lock: the flag is cleared before the items are taken, so an item that was put while
        # the flag was still set is among those taken.
        self._items.append(item)
        if not self._scheduled:
            self._scheduled = True
            try:
                self._loop.call_soon_threadsafe(self._run)
            except RuntimeError:
                if not self._loop.is_closed():
                    raise
                self._drop()

    def _run(self) -> None:
        self._deliver(self._take())

    def _drop(self) -> None:
        items = self._take()
        log.debug("items dropped, their loop has ended count=%d", len(items))
        if self._dropped is not None:
            self._dropped(items)

    def _take(self) -> list[T]:
        self._scheduled = False
        items = self._items
        take = items.popleft
        return [take() for _ in range(len(items))]
