"""The event loop that all blocking objects of a process share."""

from __future__ import annotations

import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from ..errors import UsageError
from ..forks import after_fork_in_child
from ..loop_thread import LoopThread

T = TypeVar("T")


class _Background:
    """The loop that all blocking objects of a process share, started at its first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for it. An interrupted wait cancels the coroutine.

        Raises UsageError for a caller that runs on that loop: it would wait for itself for ever.
        """
        thread = self._started()
        if thread.is_current():
            coroutine.close()
            raise UsageError(
                "blocking call in a callback on the background loop: it would wait for itself; make the "
                "call from another thread"
            )
        future = thread.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop, and return the future of its result. Cancelling it cancels both."""
        return self._started().submit(coroutine)

    def _started(self) -> LoopThread:
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread("rmq-blocking")
        return self._thread


_background = _Background()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the loop of the blocking objects and wait: for many calls side by side.

    Raises UsageError on that loop itself.
    """
    return _background.run(coroutine)


def submit(coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    """Run a coroutine on this loop without waiting; see `_Background.submit`."""
    return _background.submit(coroutine)


def _reset_after_fork() -> None:
    """Forget the loop in a forked process, which does not have its thread."""
    global _background  # noqa: PLW0603
    _background = _Background()


after_fork_in_child(_reset_after_fork)
