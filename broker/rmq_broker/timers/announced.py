"""Entries of the timer topic's queue that need not be read, because the message writer announced them."""

from __future__ import annotations

from collections import deque
from typing import Final

from ..clock import ClockMs
from ..delivery.timer_entry import TimerEntry
from .counts import TimerCounts
from .pending import PendingTimers

# The bound of announced messages that are not entered yet.
_MAX_ANNOUNCED: Final = 50_000


class AnnouncedTimers:
    """Keeps announced entries in the order of the queue, and enters them into the wheel.

    POP stores an entry for each acknowledgement, so this module is compiled, unlike `entering`.
    """

    def __init__(self, pending: PendingTimers, counts: TimerCounts, now_ms: ClockMs) -> None:
        self._pending = pending
        self._counts = counts
        self._now_ms = now_ms
        # Those that are not entered yet, in the order of the queue.
        self.entries: deque[TimerEntry] = deque()

    def announce(self, entry: TimerEntry) -> None:
        """Note a message that was stored in the timer topic's queue."""
        entries = self.entries
        is_next = not entries or entry.queue_offset == entries[-1].queue_offset + 1
        if is_next and len(entries) < _MAX_ANNOUNCED:
            entries.append(entry)

    def clear(self) -> None:
        """Forget all announced messages: they are read from the store."""
        self.entries.clear()

    def first_offset(self) -> int | None:
        """Return the queue offset of the first entry that is not entered yet; None without one."""
        entries, offset = self.entries, self._pending.queue_offset
        while entries and entries[0].queue_offset < offset:
            entries.popleft()
        return entries[0].queue_offset if entries else None

    def enter_next(self, not_before_ms: int, limit: int) -> bool:
        """Enter up to `limit` entries, beginning with the next one of the queue.

        `not_before_ms`: the first slot that accepts messages. False if the next entry cannot be entered now.
        """
        entries, pending = self.entries, self._pending
        for _ in range(limit):
            if not entries or entries[0].queue_offset != pending.queue_offset:
                break
            if not self.enter(entries[0], not_before_ms):
                return False
            entries.popleft()
        return True

    def enter(self, entry: TimerEntry, not_before_ms: int) -> bool:
        """Enter one message; False if its time is still out of the wheel's range."""
        pending = self._pending
        if not pending.enter(entry, not_before_ms):
            return False
        pending.queue_offset = entry.queue_offset + 1
        if not entry.is_journal:
            delay_ms = entry.out_ms - self._now_ms()
            self._counts.entered(entry.topic, delay_ms, is_delete=entry.is_delete)
        return True
