"""Calls deferred until the event loop has written the answers to the requests that it is reading."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

CallSoon = Callable[[Callable[[], None]], object]


class DeferredCalls:
    """Runs calls later, in the order in which they were added. Belongs to one thread."""

    __slots__ = ("_call_soon", "_calls")

    def __init__(self, call_soon: CallSoon | None) -> None:
        """`call_soon` of an event loop runs the calls before the loop reads again. None: `add` calls."""
        self._calls: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._call_soon = call_soon

    def add(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call the function, after the answers if there is an event loop."""
        if self._call_soon is None:
            function(*arguments)
            return
        if not self._calls:
            self._call_soon(self.run)
        self._calls.append((function, arguments))

    def run(self) -> None:
        """Make all calls now. After a call that raises, the rest is scheduled again."""
        calls = self._calls
        try:
            while calls:
                function, arguments = calls.popleft()
                function(*arguments)
        finally:
            if calls and self._call_soon is not None:
                self._call_soon(self.run)
