"""The queue of one delay level, as its delivery sees it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..store.api import ConsumeQueue

# The number of backward steps of the clock that are kept for a level.
_MAX_CLOCK_STEPS: Final = 8


@dataclass(slots=True)
class DelayedEntry:
    """An entry of a level's queue."""

    offset: int
    physical_offset: int
    size: int
    due_ms: int


@dataclass(frozen=True, slots=True)
class ClockStep:
    """A backward step of the clock: messages stored before it are due earlier than their entries say.

    These are the entries before `sure_offset`, and the entries before `end_offset` that are due at `from_ms`
    or later.
    """

    back_ms: int
    sure_offset: int
    end_offset: int
    from_ms: int

    def of(self, offset: int, stored_ms: int) -> int:
        """Return by how many ms an entry is due earlier, because of this step."""
        is_before = offset < self.sure_offset or (offset < self.end_offset and stored_ms >= self.from_ms)
        return self.back_ms if is_before else 0


@dataclass(slots=True)
class LevelQueue:
    """The queue of one level, with the due time of its first waiting message.

    `stored_ahead` are offsets of messages that another master has stored, behind one that it has not.
    """

    level: int
    queue: ConsumeQueue
    head_offset: int = -1
    head_due_ms: int = 0
    seen_end: int = 0  # end of the queue when the clock was last checked
    steps: deque[ClockStep] = field(default_factory=lambda: deque(maxlen=_MAX_CLOCK_STEPS))
    retry_at_ms: int = 0
    stored_ahead: set[int] = field(default_factory=set)
