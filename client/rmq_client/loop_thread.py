"""An event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, TypeVar

from .forks import after_fork_in_child

log = logging.getLogger(__name__)

T = TypeVar("T")

_EXIT_GRACE_SECONDS: Final = 1.0


class LoopThread:
    """Runs an event loop in a daemon thread until it is stopped."""

    def __init__(self, name: str, new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None) -> None:
        """Start the thread. Without `new_loop` it has uvloop's loop if that is installed, or asyncio's."""
        self._new_loop = new_loop or _new_loop
        self._ready: Future[asyncio.AbstractEventLoop] = Future()
        self._ended: Future[None] = Future()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()
        _running.add(self)

    async def ready(self) -> asyncio.AbstractEventLoop:
        """Return the loop, once it runs."""
        return await asyncio.shield(asyncio.wrap_future(self._ready))

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop, and block until the thread has started it."""
        return self._ready.result()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop; cancelling the future cancels the coroutine."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop())

    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.current_thread() is self._thread

    async def stop(self) -> None:
        """Stop the loop and the thread. Tasks that still run there are cancelled."""
        self.signal_stop()
        await asyncio.shield(asyncio.wrap_future(self._ended))
        self._thread.join()

    def signal_stop(self) -> None:
        """Tell the loop to stop, without waiting."""
        if self._ended.done():
            return
        loop = self.loop()
        with suppress(RuntimeError):  # closed in the meantime
            loop.call_soon_threadsafe(loop.stop)

    def join(self, timeout_seconds: float | None = None) -> None:
        """Wait for the end of the thread."""
        self._thread.join(timeout_seconds)

    def _main(self) -> None:
        try:
            loop = self._new_loop()
            asyncio.set_event_loop(loop)
            loop.call_soon(self._ready.set_result, loop)
            try:
                loop.run_forever()
            finally:
                _cancel_all(loop)
                loop.run_until_complete(loop.shutdown_asyncgens())
                asyncio.set_event_loop(None)
                loop.close()
        except BaseException as error:
            log.exception("event loop ended by an error thread=%s", self._thread.name)
            if not self._ready.done():
                self._ready.set_exception(error)
        finally:
            _running.discard(self)
            self._ended.set_result(None)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415  # not on every platform
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


_running: weakref.WeakSet[LoopThread] = weakref.WeakSet()


def _stop_all() -> None:
    """Stop all loops: a daemon thread inside C code while the interpreter shuts down can crash it."""
    threads = list(_running)
    for thread in threads:
        thread.signal_stop()
    for thread in threads:
        thread.join(_EXIT_GRACE_SECONDS)


atexit.register(_stop_all)
# A forked process has none of the threads.
after_fork_in_child(_running.clear)
