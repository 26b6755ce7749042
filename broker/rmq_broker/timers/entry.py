"""What the timer has to know of a message in the timer topic's queue."""

from __future__ import annotations

from typing import NamedTuple

TIMER_QUEUE_ID = 0


class TimerEntry(NamedTuple):
    """A message that waits: its place in the queue and in the commit log, and what its properties say.

    `out_ms` is the slot that it is to wait in (TIMER_OUT_MS). `is_delete`: it takes another message back.
    `is_journal`: it is POP's, which keeps the time itself.
    """

    queue_offset: int
    physical_offset: int
    size: int
    out_ms: int
    topic: str
    is_delete: bool = False
    is_journal: bool = False
