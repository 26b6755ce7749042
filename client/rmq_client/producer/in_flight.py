"""Counters of calls in flight that a stop can wait for."""

from __future__ import annotations

import asyncio


class InFlightCount:
    """A count, and a wait until it is zero. Belongs to one loop."""

    __slots__ = ("_count", "_idle")

    def __init__(self) -> None:
        self._count = 0
        self._idle: asyncio.Future[None] | None = None

    async def wait_idle(self) -> None:
        """Wait until no call is in flight."""
        while self._count:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    def _wake_if_idle(self) -> None:
        """Wake the waiting stop at zero; to be called after each decrement while a stop waits (`_idle`)."""
        if self._idle is not None and not self._count:
            if not self._idle.done():
                self._idle.set_result(None)
            self._idle = None


class InFlightCalls(InFlightCount):
    """Counts calls: `with in_flight:` around each one."""

    __slots__ = ()

    def __enter__(self) -> None:
        self._count += 1

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        self._wake_if_idle()
