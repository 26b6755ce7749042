"""Event loops for tests: uvloop, asyncio in debug mode, and one whose time is virtual."""

from __future__ import annotations

import asyncio
import selectors
import warnings
from collections.abc import Callable
from typing import Any, Final

import uvloop

# How long a virtual loop lets real sockets speak before it moves its clock: loopback answers far sooner.
_SOCKET_GRACE_SECONDS: Final = 0.005


class DebugLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop in debug mode, whatever the runner wishes."""

    def set_debug(self, enabled: bool) -> None:
        super().set_debug(True)


class UvLoop(uvloop.Loop):
    """uvloop's own, which closes with whatever a test left open.

    Where warnings are errors, uvloop's warning of an open transport is raised in the middle of its closing,
    which then never ends: such warnings are handled like the loop's other errors instead.
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
    """A loop that never waits: where nothing is ready, its clock jumps to the next timer.

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
        # The loop's own wake-up pipe is always registered.
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
    """A loop of LOOPS; what nobody handles in it (failed callbacks, lost tasks) goes to `errors`."""
    loop = LOOPS[name]()
    loop.set_exception_handler(lambda _, context: errors.append(context))
    return loop
