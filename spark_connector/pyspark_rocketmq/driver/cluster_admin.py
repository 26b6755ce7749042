"""The SDK's administration as far as the driver needs it, and the event loop on which the driver waits.

Each stream has a process of its own on the driver, which imports this module. `rmq_client.Admin` and
`rmq_client.blocking` import the whole SDK, which took 0.2 s of CPU for each start of a stream.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from rmq_client.admin.offsets import OffsetAdmin
from rmq_client.admin.topics import TopicAdmin
from rmq_client.forks import after_fork_in_child
from rmq_client.loop_thread import LoopThread

T = TypeVar("T")


class ClusterAdmin(TopicAdmin, OffsetAdmin):
    """Topics, routes and offsets of a cluster."""


_thread: LoopThread | None = None


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the driver's event loop and wait for it. An interrupted wait cancels it."""
    global _thread  # noqa: PLW0603
    if _thread is None:
        _thread = LoopThread("rmq-spark-driver")
    future = _thread.submit(coroutine)
    try:
        return future.result()
    finally:
        future.cancel()


def _reset_after_fork() -> None:
    """Forget the loop in a forked process, which does not have its thread."""
    global _thread  # noqa: PLW0603
    _thread = None


after_fork_in_child(_reset_after_fork)
