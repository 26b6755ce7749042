"""Facts about asyncio tasks that asyncio has no function for."""

from __future__ import annotations

import asyncio


def is_being_cancelled() -> bool:
    """Return whether the running task itself is being cancelled, and not only a future that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
