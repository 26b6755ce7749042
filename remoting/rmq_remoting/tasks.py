"""Functions for asyncio tasks that asyncio lacks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


def is_being_cancelled() -> bool:
    """Return whether the running task itself is being cancelled, and not only a future that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def shielded(future: asyncio.Future[T]) -> T:
    """Wait for a future that continues if the caller is cancelled.

    From then on the future's callbacks take its errors. After `asyncio.shield`, Python 3.14 would report
    these errors as unhandled.
    """
    if not future.done():
        await asyncio.wait([future])
    return future.result()


async def finished(work: Coroutine[Any, Any, T]) -> T:
    """Wait for work that must not end half done: if the caller is cancelled, that takes effect after it."""
    task = asyncio.get_running_loop().create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # marks it as retrieved
        raise cancelled
    return task.result()


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until all of them have ended; their errors are not raised."""
    cancelled = list(tasks)
    for task in cancelled:
        task.cancel()
    if cancelled:
        await asyncio.wait(cancelled)
