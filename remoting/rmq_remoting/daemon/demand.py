"""Work of a periodic task: while there is none, the task sleeps and the process is not woken for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Demand:
    """Tells a periodic task whether it has work, and wakes it when work comes; belongs to the loop."""

    __slots__ = ("_exists", "_parked")

    def __init__(self, exists: Callable[[], bool]) -> None:
        """`exists` returns whether there is work now."""
        self._exists = exists
        self._parked: asyncio.Future[None] | None = None

    def arise(self) -> None:
        """Wake the task if it sleeps; to be called when `exists` turns true."""
        parked = self._parked
        if parked is not None:
            self._parked = None
            if not parked.done():
                parked.set_result(None)

    async def wait(self) -> None:
        """Return when there is work, at once if there is some. One task at a time waits."""
        while not self._exists():
            self._parked = parked = asyncio.get_running_loop().create_future()
            await parked
