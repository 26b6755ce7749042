"""Progress bar on standard error, if it is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final, TextIO

_EVERY_SECONDS: Final = 0.2
_WIDTH: Final = 30


class Progress:
    """Counts processed bytes; prints nothing if the stream is no terminal."""

    def __init__(
        self,
        what: str,
        total_bytes: int,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = what
        self._total = total_bytes
        self._done = 0
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._shown = self._stream.isatty()
        self._begun = self._last = clock()

    def advance(self, done_bytes: int) -> None:
        """Add processed bytes."""
        self._done += done_bytes
        now = self._clock()
        if self._shown and now - self._last >= _EVERY_SECONDS:
            self._last = now
            self._stream.write(f"\r{self._line(now)}")
            self._stream.flush()

    def close(self) -> None:
        """Remove the bar."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _line(self, now: float) -> str:
        part = min(1.0, self._done / self._total) if self._total else 1.0
        bar = "#" * round(part * _WIDTH)
        left = (now - self._begun) * (1 - part) / part if part else 0.0
        return f"{self._what} [{bar:<{_WIDTH}}] {part:4.0%}, {left:.0f} s left "
