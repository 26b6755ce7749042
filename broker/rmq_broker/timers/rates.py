"""Rates of timed messages, over the time between two samples."""

from __future__ import annotations

from typing import Final

from ..clock import ClockMs

_MS: Final = 1000


class TimerRates:
    """Messages per second that entered the wheel and that were delivered, as of the last two samples.

    `steady_ms` is a clock that is never set.
    """

    def __init__(self, steady_ms: ClockMs) -> None:
        self.entered_per_second = 0.0
        self.delivered_per_second = 0.0
        self._steady_ms = steady_ms
        self._last = (steady_ms(), 0, 0)

    def sample(self, entered: int, delivered: int) -> None:
        """Compare the totals with those of the last sample. A deleted topic takes its counts along."""
        now_ms = self._steady_ms()
        last_ms, last_entered, last_delivered = self._last
        if now_ms <= last_ms:
            return
        elapsed_seconds = (now_ms - last_ms) / _MS
        self.entered_per_second = max(0, entered - last_entered) / elapsed_seconds
        self.delivered_per_second = max(0, delivered - last_delivered) / elapsed_seconds
        self._last = (now_ms, entered, delivered)
