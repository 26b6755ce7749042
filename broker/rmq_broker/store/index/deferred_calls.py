"""Calls that are put off until the answers of what the loop is reading now have left."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

CallSoon = Callable[[Callable[[], None]], object]


class BehindAnswers:
    """Keeps calls in order. Without `call_soon` each is made at once. Belongs to one thread."""

    __slots__ = ("_call_soon", "_calls")

    def __init__(self) -> None:
        self._calls: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._call_soon: CallSoon | None = None

    def use(self, call_soon: CallSoon | None) -> None:
        """Put calls off with this, an event loop's: they are made before it reads again; None: no more."""
        self.make()
        self._call_soon = call_soon

    def add(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call the function behind the answers."""
        if self._call_soon is None:
            function(*arguments)
            return
        if not self._calls:
            self._call_soon(self.make)
        self._calls.append((function, arguments))

    def make(self) -> None:
        """Make the calls that are left."""
        calls = self._calls
        try:
            while calls:
                function, arguments = calls.popleft()
                function(*arguments)
        finally:
            if calls and self._call_soon is not None:
                self._call_soon(self.make)
