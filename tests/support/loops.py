"""Event loops for tests: uvloop, asyncio in debug mode, and one whose time is virtual."""

from __future__ import annotations

import asyncio
import selectors
import warnings
from collections.abc import Callable
from typing import Any, Final

import uvloop

# How long a virtual loop waits for real sockets before it advances its clock; loopback needs far less.
_SOCKET_GRACE_SECONDS: Final = 0.005


class DebugLoop(asyncio.SelectorEventLoop):
    """asyncio's loop, always in debug mode."""

    def set_debug(self, enabled: bool) -> None:
        super().set_debug(True)


class UvLoop(uvloop.Loop):
    """uvloop's loop, which can be closed although a test left transports open.

    Warnings are errors in tests. uvloop's warning of an open transport would be raised during the loop's
    close, which then never ends, so these warnings go to the loop's error handler instead.
    """

    def close(self) -> None:
        handler = self.get_exception_handler()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            super().close()
        for warning in caught:
            if handler is not None:
                handler(self, {"message": str(warning.message)})


class VirtualTimeLoop(DebugLoop):
    """A loop that never waits: when nothing is ready, its clock jumps to the next timer.

    Meant for code without threads and with little or no real I/O.
    """

    def __init__(self) -> None:
        self._now_seconds = 1000.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self._now_seconds

    def jump(self, seconds: float) -> None:
        """Move the clock."""
        self._now_seconds += seconds

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Wait for the executor's threads without a limit: virtual time would jump to its end at once.

        asyncio's runner sets a limit since Python 3.12.
        """
        await super().shutdown_default_executor()


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        if timeout is None:
            return super().select(None)
        # The loop's wake-up pipe is always registered.
        events = super().select(_SOCKET_GRACE_SECONDS) if len(self.get_map()) > 1 else []
        if not events:
            self._loop.jump(timeout)
        return events


LOOPS: Final[dict[str, Callable[[], asyncio.AbstractEventLoop]]] = {
    "uvloop": UvLoop,
    "asyncio-debug": DebugLoop,
    "virtual-time": VirtualTimeLoop,
}


def new_loop(name: str, errors: list[dict[str, Any]]) -> asyncio.AbstractEventLoop:
    """Return a loop of LOOPS; its unhandled errors (failed callbacks, lost tasks) go to `errors`."""
    loop = LOOPS[name]()
    loop.set_exception_handler(lambda _, context: errors.append(context))
    return loop
