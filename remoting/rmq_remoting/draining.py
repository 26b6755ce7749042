"""The wait for the answers to requests that have been taken, before a daemon stops."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from .dispatch import Dispatcher

_POLL_SECONDS: Final = 0.01


async def all_answered(dispatcher: Dispatcher, timeout_seconds: float) -> bool:
    """Wait until no request waits or runs; return whether that was so within the time-out."""
    # A future that has just been set needs an iteration of the loop until its response is written.
    await asyncio.sleep(0)
    deadline = time.monotonic() + timeout_seconds
    while not dispatcher.is_idle:
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_POLL_SECONDS)
    return True
