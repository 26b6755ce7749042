"""Tasks that must not be interrupted or lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

# asyncio itself holds tasks only by weak references.
_in_flight: set[asyncio.Task[Any]] = set()


async def uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, even if its caller is cancelled in the meantime."""
    task = asyncio.ensure_future(work)
    _in_flight.add(task)
    task.add_done_callback(_in_flight.discard)
    return await asyncio.shield(task)


StartTask = Callable[[Coroutine[Any, Any, Any], str], "asyncio.Task[Any]"]
"""Starts a supervised background task that runs until the consumer stops."""
