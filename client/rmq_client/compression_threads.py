"""Threads that compress and decompress large bodies, so that an event loop goes on meanwhile.

They are not those of the loop's default executor. The application's code may occupy all threads of that
executor while it waits for a body.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from .forks import after_fork_in_child

T = TypeVar("T")

_THREADS: Final = min(4, os.cpu_count() or 1)


async def run_in_compression_thread(function: Callable[..., T], *arguments: object) -> T:
    """Call the function in one of the threads. A cancelled caller leaves the call running."""
    return await asyncio.get_running_loop().run_in_executor(_executor, function, *arguments)


def _new_executor() -> ThreadPoolExecutor:
    """Return an executor, whose threads start with the first large body and end with the interpreter."""
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="rmq-compress")


_executor = _new_executor()


def _forget_threads() -> None:
    """Replace the executor in a forked process, which has none of its threads."""
    global _executor  # noqa: PLW0603
    _executor = _new_executor()


after_fork_in_child(_forget_threads)
