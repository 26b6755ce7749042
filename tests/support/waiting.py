"""Waiting for a condition instead of for a while."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Final

_POLL_SECONDS: Final = 0.001


async def until(condition: Callable[[], object], timeout_seconds: float = 5.0) -> None:
    """Return as soon as `condition()` is true; TimeoutError, naming the condition, where it never is."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_seconds
    while not condition():
        if loop.time() > deadline:
            raise TimeoutError(f"not true after {timeout_seconds:g} s: {_where(condition)}")
        await asyncio.sleep(_POLL_SECONDS)


def until_in_thread(condition: Callable[[], object], timeout_seconds: float = 5.0) -> None:
    """The same for a thread without a loop."""
    deadline = time.monotonic() + timeout_seconds
    pause = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not true after {timeout_seconds:g} s: {_where(condition)}")
        pause.wait(_POLL_SECONDS)


async def loop_passes(count: int = 3) -> None:
    """Let everything that is ready now run, and what that makes ready."""
    for _ in range(count):
        await asyncio.sleep(0)


def _where(condition: Callable[[], object]) -> str:
    code = getattr(condition, "__code__", None)
    return repr(condition) if code is None else f"{code.co_filename}:{code.co_firstlineno}"
