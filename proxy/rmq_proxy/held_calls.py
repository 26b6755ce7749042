"""Calls that a broker holds for messages; a graceful shutdown ends them at once."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

T = TypeVar("T")


class HeldCalls:
    """Requests to brokers that calls of clients wait for. Belongs to one loop."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[Any], Any] = {}
        self._is_released = False

    @property
    def count(self) -> int:
        """Number of calls that wait."""
        return len(self._waiting)

    async def wait(self, work: asyncio.Task[T], without: T) -> T:
        """Return the result of `work`, or `without` as soon as the proxy stops. Raises what `work` raises.

        `work` goes on if the caller is cancelled, and after a release.
        """
        if self._is_released and not work.done():
            return without
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting[answer] = without

        def ended(task: asyncio.Task[T]) -> None:
            if answer.done():
                # The call has ended. Its error must be retrieved, or asyncio would report it.
                _ = task.cancelled() or task.exception()
            elif task.cancelled():
                answer.cancel()
            elif (error := task.exception()) is not None:
                answer.set_exception(error)
            else:
                answer.set_result(task.result())

        work.add_done_callback(ended)
        try:
            return await answer
        finally:
            del self._waiting[answer]

    def release(self) -> None:
        """End all waits, and every later one at once."""
        self._is_released = True
        for answer, without in self._waiting.items():
            if not answer.done():
                answer.set_result(without)
