"""Turns of connections at something scarce: threads that read from a disk, and the event loop itself.

Connections take turns in rotation, whatever number of requests each has waiting. A connection with thousands
of requests therefore delays another one by a single turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

# Items of a long walk on the loop, such as queues of a topic, between two pauses; 0.1 to 0.5 ms of work.
ITEMS_PER_SLICE: Final = 128

_Turn = asyncio.Future[None]


class _Rotation:
    """Waiting turns of owners, each owner's in order. Cancelled turns are skipped."""

    def __init__(self) -> None:
        # In the order of the next turn.
        self._waiting: dict[object, deque[_Turn]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, owner: object) -> _Turn:
        """Return a new turn, behind the others of its owner."""
        turn: _Turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        return turn

    def grant(self) -> bool:
        """Grant the next turn; False if none waits."""
        waiting = self._waiting
        while waiting:
            owner = next(iter(waiting))
            turns = waiting.pop(owner)
            turn = turns.popleft()
            if turns:
                waiting[owner] = turns
            if not turn.done():
                turn.set_result(None)
                return True
        return False


class Permits:
    """A number of permits. A released one goes to the connection whose last turn is longest ago."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._rotation = _Rotation()

    async def acquire(self, owner: object) -> None:
        """Wait for a permit; the caller releases it."""
        if self._free:
            self._free -= 1
            return
        turn = self._rotation.add(owner)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()  # granted just before the cancellation
            raise

    def release(self) -> None:
        """Pass a permit on."""
        if not self._rotation.grant():
            self._free += 1


class LoopSlices:
    """Slices of long work on the loop: one in each iteration, so that requests are served between them."""

    def __init__(self) -> None:
        self._rotation = _Rotation()
        self._is_scheduled = False

    async def pause(self, owner: object) -> None:
        """Wait until the work of this owner may go on."""
        turn = self._rotation.add(owner)
        self._schedule()
        await turn

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._grant)

    def _grant(self) -> None:
        self._is_scheduled = False
        self._rotation.grant()
        if self._rotation:
            self._schedule()
