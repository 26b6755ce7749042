"""Waiting for a condition instead of for a time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

# More than anything takes on a busy machine: a wait that lasts longer has failed.
PATIENCE_SECONDS: Final = 20.0
# For a query of Spark, which takes seconds on an idle machine, and minutes on a busy one.
QUERY_SECONDS: Final = 240
_POLL_SECONDS: Final = 0.001

T = TypeVar("T")


async def until(condition: Callable[[], object], timeout_seconds: float = PATIENCE_SECONDS) -> None:
    """Return as soon as `condition()` is true. Raises TimeoutError, which names the condition."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_seconds
    while not condition():
        if loop.time() > deadline:
            raise TimeoutError(f"not true after {timeout_seconds:g} s: {_where(condition)}")
        await asyncio.sleep(_POLL_SECONDS)


async def until_answer(ask: Callable[[], Awaitable[T]], timeout_seconds: float = PATIENCE_SECONDS) -> T:
    """Return the first answer of `ask()` that is true or not empty. Raises TimeoutError."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_seconds
    while not (answer := await ask()):
        if loop.time() > deadline:
            raise TimeoutError(f"no answer after {timeout_seconds:g} s: {_where(ask)}")
        await asyncio.sleep(_POLL_SECONDS)
    return answer


def until_in_thread(condition: Callable[[], object], timeout_seconds: float = PATIENCE_SECONDS) -> None:
    """Like `until`, for a thread without a loop."""
    deadline = time.monotonic() + timeout_seconds
    pause = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not true after {timeout_seconds:g} s: {_where(condition)}")
        pause.wait(_POLL_SECONDS)


async def loop_passes(count: int = 3) -> None:
    """Run the callbacks that are ready now, and those that they make ready."""
    for _ in range(count):
        await asyncio.sleep(0)


def _where(condition: Callable[[], object]) -> str:
    code = getattr(condition, "__code__", None)
    return repr(condition) if code is None else f"{code.co_filename}:{code.co_firstlineno}"
