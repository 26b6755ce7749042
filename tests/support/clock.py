"""A clock whose time passes only when a test says so."""

from __future__ import annotations

from typing import Final

from rmq_broker.clock import Clocks

START_MS: Final = 1_700_000_000_000


class Clock:
    """Milliseconds since 1970 that pass when they are told to; `set_by` sets the wall clock alone."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms
        self._set_by_ms = 0
        self.clocks = Clocks(self, lambda: self.now_ms / 1000, self.steady_ms)

    def __call__(self) -> int:
        return self.now_ms

    def pass_seconds(self, seconds: float) -> None:
        self.now_ms += int(seconds * 1000)

    def set_by(self, seconds: float) -> None:
        """Set the wall clock forward, or back; no time passes."""
        self.now_ms += int(seconds * 1000)
        self._set_by_ms += int(seconds * 1000)

    def restart(self) -> None:
        """Begin a new process: its steady clock begins with the wall clock's time."""
        self._set_by_ms = 0

    def steady_ms(self) -> int:
        return self.now_ms - self._set_by_ms
