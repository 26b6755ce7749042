"""Ages of files by their modification times, although the wall clock was set while they were written.

A clock that jumps forward by days must not make files expire: their messages would be deleted unread. So the
age of a file counts the time that has really passed since it was written, as far as this process knows. What
happened to the clock before the start of the process is not known.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from typing import Final

from ...clock import Clocks, ClockSteps

log = logging.getLogger("rmq.store.cleaning")

# The number of steps of the clock that are remembered.
_MAX_STEPS: Final = 16
# A step is noticed this late at most: the cleaner looks more often.
_NOTICED_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Span:
    """A time without steps, until `end_ms` by the steady clock; the wall clock was `ahead_ms` ahead of it."""

    end_ms: int
    ahead_ms: int


class FileAges:
    """Tells the ages of files; `look` has to be called at least every ten seconds."""

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self._steps = ClockSteps(clocks)
        self._ahead_ms = clocks.now_ms() - clocks.steady_ms()
        self._before: deque[_Span] = deque(maxlen=_MAX_STEPS)

    def look(self) -> None:
        """Notice a step of the wall clock."""
        _, step_ms = self._steps.look()
        if not step_ms:
            return
        self._before.append(_Span(self._clocks.steady_ms(), self._ahead_ms))
        self._ahead_ms += step_ms
        log.warning(
            "wall clock was set step_s=%+.1f; log files expire by the time that has really passed, clients "
            "see the new time; keep the clock synchronized",
            step_ms / 1000,
        )

    def age_ms(self, modified_ms: int) -> int:
        """Return for how long a file has not been modified, the shortest time that its time may mean."""
        self.look()
        now_ms = self._clocks.steady_ms()
        written_ms = modified_ms - self._ahead_ms
        begin_ms = self._before[-1].end_ms - _NOTICED_MS if self._before else written_ms
        if begin_ms <= written_ms <= now_ms:
            return now_ms - written_ms
        for number in reversed(range(len(self._before))):
            span = self._before[number]
            earlier_ms = modified_ms - span.ahead_ms
            if earlier_ms <= span.end_ms and (not number or earlier_ms >= self._before[number - 1].end_ms):
                return now_ms - earlier_ms
        return now_ms - written_ms
