"""Time that a test can advance: the clocks of a broker, and the event loop that the broker runs on.

The time passes as on the machine, and additionally by as much as a test orders. Both move together: with the
clocks alone, a broker's tasks would sleep on.
"""

from __future__ import annotations

import asyncio
import time

from rmq_broker.clock import Clocks, SteadyClock, now_ms


class AdvanceableClock:
    """The clocks of the machine, ahead by the time that a test has advanced them. Thread-safe."""

    def __init__(self) -> None:
        self._ahead_ms = 0
        self._steady = SteadyClock()
        self.clocks = Clocks(self.now_ms, self.now_seconds, self.steady_ms)

    def advance(self, seconds: float) -> None:
        """Let time pass. Raises ValueError for a negative time: messages already have later timestamps."""
        if seconds < 0:
            raise ValueError(f"seconds={seconds}: time cannot be set back; start another broker instead")
        self._ahead_ms += round(seconds * 1000)

    @property
    def ahead_seconds(self) -> float:
        """By how many seconds the clocks are ahead of those of the machine."""
        return self._ahead_ms / 1000

    def now_ms(self) -> int:
        """Return the wall clock's time in ms since 1970 UTC."""
        return now_ms() + self._ahead_ms

    def now_seconds(self) -> float:
        """Return the wall clock's time in seconds since 1970 UTC."""
        return time.time() + self._ahead_ms / 1000

    def steady_ms(self) -> int:
        """Return the time of the clock that is never set, in ms."""
        return self._steady() + self._ahead_ms


class AdvanceableLoop(asyncio.SelectorEventLoop):
    """An event loop whose timers follow an AdvanceableClock.

    The loop reads the time whenever it looks for timers that are due. A call from another thread that follows
    `advance` wakes it.
    """

    def __init__(self, clock: AdvanceableClock) -> None:
        self._clock = clock
        super().__init__()

    def time(self) -> float:
        """Return the time in seconds."""
        return super().time() + self._clock.ahead_seconds
