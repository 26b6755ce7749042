"""Work that must come to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

# asyncio itself holds tasks by weak references only.
_in_flight: set[asyncio.Task[Any]] = set()


async def uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Do the work to its end, also when who waits for it is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    _in_flight.add(task)
    task.add_done_callback(_in_flight.discard)
    return await asyncio.shield(task)


StartTask = Callable[[Coroutine[Any, Any, Any], str], "asyncio.Task[Any]"]
"""Runs something in the background, watched, until the consumer ends."""
