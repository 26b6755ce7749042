"""Work that must come to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

# asyncio itself holds tasks by weak references only.
_under_way: set[asyncio.Task[Any]] = set()


async def uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Do the work to its end, also when who waits for it is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    _under_way.add(task)
    task.add_done_callback(_under_way.discard)
    return await asyncio.shield(task)
