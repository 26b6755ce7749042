"""What asyncio knows of tasks, but does not say."""

from __future__ import annotations

import asyncio


def is_being_cancelled() -> bool:
    """Whether somebody cancels the running task; else a CancelledError is that of what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
