"""Entries of the timer topic's queue, in memory."""

from __future__ import annotations

from typing import Final, NamedTuple

TIMER_QUEUE_ID: Final = 0


class TimerEntry(NamedTuple):
    """A waiting message: where it is in the queue and in the commit log, and what its properties say.

    `out_ms` is the slot that it waits in (TIMER_OUT_MS). `is_delete`: it recalls another message.
    `is_journal`: it is an entry of POP's journal, and POP redelivers at its time, not the timer.
    """

    queue_offset: int
    physical_offset: int
    size: int
    out_ms: int
    topic: str
    is_delete: bool = False
    is_journal: bool = False
