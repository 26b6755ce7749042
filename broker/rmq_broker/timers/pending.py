"""The waiting timed messages: wheel and timer log together, in memory and on disk.

The files are flushed in this order: the commit log (by its own flushing), the timer log, the wheel, the
checkpoint. A power cut can therefore not take back a message that the checkpoint counts as delivered or as
entered. Messages behind the checkpoint are found in the timer log and, behind its end, in the timer's queue.
"""

from __future__ import annotations

import logging
import time
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from rmq_remoting.java_hash import string_hash_code

from ..clock import ClockMs
from ..delivery.timer_entry import TimerEntry
from .checkpoint import TimerCheckpoint
from .log_unit import DEFAULT, DELETE, NO_POSITION, ROLL, UNIT_BYTES, Unit
from .scans import scan_log, scan_valid, slots_in_use
from .timer_log import TimerLog
from .wheel import SLOTS, Slot, TimerWheel

log = logging.getLogger("rmq.broker.timers")

# Slots of the wheel that are kept free between the future and the past (TIMER_BLANK_SLOTS).
_BLANK_SLOTS: Final = 60
_MAX_WINDOW_SLOTS: Final = SLOTS // 2 - _BLANK_SLOTS
_BREATHE_ENTRIES: Final = 256
# An entry has its delay in ms in 31 bits.
_MAX_DELAY_MS: Final = (1 << 31) - 1
# An entry that is overdue for longer is entered as overdue for this long.
_MAX_OVERDUE_MS: Final = 24 * 3600 * 1000


class Snapshot(NamedTuple):
    """A state of the timer, to be written once the commit log is flushed up to `commit_log_end`."""

    checkpoint: TimerCheckpoint
    log_begin: int
    log_data: bytes
    pages: dict[int, bytes]
    commit_log_end: int


@dataclass(slots=True)
class DueSlot:
    """A due slot: the positions of its entries in the timer log, the oldest first."""

    time_ms: int
    messages: array[int]
    deletes: array[int]
    done: int = 0  # the number of `messages` that were delivered or skipped


class DeliveredTimers(NamedTuple):
    """Messages that a master has delivered: those of the queue before an offset, due before a time.

    `handed_over_ms` is that of the master's checkpoint.
    """

    before_ms: int
    before_offset: int
    handed_over_ms: int


class PendingTimers:
    """The waiting messages; belongs to the loop's thread, except methods that are documented to block.

    All slots before `read_ms` are delivered. `queue_offset` is the offset in the timer's queue of the next
    message to be entered.
    """

    def __init__(
        self,
        wheel: TimerWheel,
        timer_log: TimerLog,
        checkpoint_path: Path,
        window_slots: int,
        now_ms: ClockMs,
    ) -> None:
        """`window_slots`: a message due later than this is entered on the way, and again from there."""
        self.wheel = wheel
        self.timer_log = timer_log
        self.read_ms = 0
        self.queue_offset = 0
        self.count = 0  # of waiting messages, without recalled ones
        self.checkpoint = TimerCheckpoint()
        self._checkpoint_path = checkpoint_path
        # Limited as by Apache's broker (TimerMessageStore), and by the longest delay of an entry.
        most = min(_MAX_WINDOW_SLOTS, _MAX_DELAY_MS // wheel.precision_ms)
        self._window_slots = window_slots if 2 <= window_slots <= most else most
        self._now_ms = now_ms

    def second_of(self, time_ms: int) -> int:
        """Return the begin of the slot that a time is in; slots have the length `timerPrecisionMs`."""
        return time_ms - time_ms % self.wheel.precision_ms

    def waiting_at(self, slot_ms: int) -> int:
        """Return the number of waiting messages in a slot."""
        slot = self.wheel.slot(slot_ms)
        return 0 if slot is None else slot.waiting

    # --- entering ---

    def enter(self, entry: TimerEntry, not_before_ms: int) -> bool:
        """Enter a message; return False if its time is still out of the wheel's range.

        `not_before_ms`: the first slot that accepts messages; overdue messages are entered there.
        """
        written_ms = self.second_of(self._now_ms())
        out_ms = max(entry.out_ms, not_before_ms, written_ms - _MAX_OVERDUE_MS)
        slot_ms, magic = self._place(out_ms, written_ms)
        slot_ms = self.second_of(slot_ms)
        if slot_ms - self.read_ms >= self.wheel.span_ms - _BLANK_SLOTS * self.wheel.precision_ms:
            return False
        weight = 1
        if entry.is_delete:
            magic, weight = magic | DELETE, -1
        position = self.timer_log.place()
        # The entry first: if memory runs out, no slot may refer to an entry that does not exist.
        self.timer_log.append(
            self.wheel.newest(slot_ms),
            magic,
            written_ms,
            slot_ms,
            entry.physical_offset,
            entry.size,
            _topic_hash(entry.topic),
            entry.is_journal,
        )
        self.wheel.link(slot_ms, position, weight)
        self.count += weight
        return True

    def _place(self, out_ms: int, written_ms: int) -> tuple[int, int]:
        """Return the slot to wait in and the entry's magic; for distant times, a slot on the way.

        (TimerMessageStore.doEnqueue.)
        """
        precision_ms, window = self.wheel.precision_ms, self._window_slots
        beyond_ms = out_ms - written_ms - window * precision_ms
        if beyond_ms < 0:
            return out_ms, DEFAULT
        slots = window // 2 if beyond_ms < window // 3 * precision_ms else window
        return written_ms + slots * precision_ms, DEFAULT | ROLL

    # --- delivering ---

    def follow_clock_back(self) -> None:
        """Continue at the current time if the clock was set back: new messages are due by that clock.

        The slots in between are empty, because their messages were delivered.
        """
        self.read_ms = min(self.read_ms, self.second_of(self._now_ms()))

    def next_due(self) -> Slot | None:
        """Return the first due slot with messages; None if there is none."""
        now_ms = self.second_of(self._now_ms())
        slot_ms = self.wheel.next_in_use(self.read_ms, now_ms)
        self.read_ms = max(self.read_ms, now_ms) if slot_ms is None else slot_ms
        return None if slot_ms is None else self.wheel.slot(slot_ms)

    def read_slot(self, slot: Slot) -> DueSlot:
        """Find the positions of a slot's entries. Raises OSError; blocks."""
        due = DueSlot(slot.time_ms, array("q"), array("q"))
        position, entries = slot.last, 0
        while position != NO_POSITION:
            entries += 1
            if entries % _BREATHE_ENTRIES == 0:
                time.sleep(0)  # let other threads run
            unit = self.timer_log.unit(position)
            if unit is None or self.second_of(unit.slot_ms) != slot.time_ms:
                log.error(
                    "timer log entry missing, earlier messages of its slot are lost slot_ms=%d position=%d",
                    slot.time_ms,
                    position,
                )
                break
            if not unit.is_journal:
                (due.deletes if unit.deletes and not unit.rolls else due.messages).append(position)
            if unit.previous >= position:
                break
            position = unit.previous
        due.messages.reverse()
        return due

    def done(self, slot_ms: int) -> None:
        """Empty a slot after its delivery, and continue at the next one."""
        self.count = max(0, self.count - self.waiting_at(slot_ms))
        self.wheel.clear(slot_ms)
        self.read_ms = slot_ms + self.wheel.precision_ms

    def remaining_units(self, due: DueSlot) -> list[Unit] | None:
        """Read the entries of a slot that were not delivered, and all of its recalls.

        None if one of them is missing. Raises OSError; blocks.
        """
        units = []
        for position in (*due.deletes, *due.messages[due.done :]):
            unit = self.timer_log.unit(position)
            if unit is None:
                return None
            units.append(unit)
        return units

    def finish_partly(self, slot_ms: int, units: Iterable[Unit]) -> None:
        """Finish a slot whose delivery was interrupted; its remaining entries move to the next slot."""
        next_ms = slot_ms + self.wheel.precision_ms
        for unit in units:
            self._chain(unit, next_ms)
            self.count += unit.weight
        self.done(slot_ms)

    # --- writing ---

    @property
    def has_changed(self) -> bool:
        """Whether there is something to write; time that passed without due messages is not written."""
        is_behind = self.timer_log.end != self.timer_log.written
        return is_behind or self.wheel.has_changed or self.queue_offset != self.checkpoint.queue_offset

    def snapshot(self, commit_log_end: int, held_from_ms: int | None) -> Snapshot:
        """Return the current state, to be written.

        `held_from_ms`: the time from which Apache's broker would have to read again, for the first of POP's
        unacknowledged check points.
        """
        log_begin, log_data = self.timer_log.unwritten()
        apaches_read_ms = self.read_ms if held_from_ms is None else min(self.read_ms, held_from_ms)
        before = self.checkpoint
        checkpoint = TimerCheckpoint(
            read_ms=self.read_ms,
            log_end=log_begin + len(log_data),
            queue_offset=self.queue_offset,
            timestamp_ms=self._now_ms(),
            counter=before.counter + 1,
            precision_ms=self.wheel.precision_ms,
            handed_over_ms=before.handed_over_ms,
            apaches_read_ms=max(0, apaches_read_ms),
            delivered_ms=before.delivered_ms,
            delivered_offset=before.delivered_offset,
        )
        return Snapshot(checkpoint, log_begin, log_data, self.wheel.take_changes(), commit_log_end)

    def write(self, snapshot: Snapshot) -> None:
        """Write and flush a snapshot. Raises OSError, and can be retried then; blocks."""
        if snapshot.log_data:
            self.timer_log.write(snapshot.log_begin, snapshot.log_data)
        if snapshot.pages:
            self.wheel.write(snapshot.pages)
        snapshot.checkpoint.save(self._checkpoint_path)

    def written(self, snapshot: Snapshot) -> None:
        """Take note that a snapshot was written; to be called on the loop."""
        self.checkpoint = snapshot.checkpoint
        self.timer_log.was_written(snapshot.checkpoint.log_end)

    # --- replication ---

    def reported(self) -> TimerCheckpoint:
        """Return the durable state for replicas, including time that passed without due messages."""
        return self.checkpoint if self.has_changed else replace(self.checkpoint, read_ms=self.read_ms)

    def was_delivered(self, entry: TimerEntry) -> bool:
        """Whether the broker that was the master before this one has certainly delivered a message."""
        known = self.checkpoint
        return entry.queue_offset < known.delivered_offset and entry.out_ms < known.delivered_ms

    def follow(self, delivered: DeliveredTimers) -> None:
        """Take over on a replica what its master has delivered; raises OSError, blocks.

        A replica keeps no entries of waiting messages: as a master it enters those of the queue that are not
        delivered. Entries of a time when this broker was the master itself are dropped, because the log
        may have changed since.
        """
        if self.count or self.timer_log.end != self.timer_log.begin or self.wheel.used_pages():
            # In this order: a start after a crash in between finds the timer log shorter than the checkpoint
            # says, and enters the queue again.
            self.timer_log.cut(self.timer_log.begin)
            self.wheel.clear_all()
            self.wheel.write(self.wheel.take_changes())
            self.count = 0
        self.checkpoint = TimerCheckpoint(
            read_ms=delivered.before_ms,
            log_end=self.timer_log.end,
            timestamp_ms=self._now_ms(),
            counter=self.checkpoint.counter + 1,
            precision_ms=self.wheel.precision_ms,
            handed_over_ms=delivered.handed_over_ms,
            apaches_read_ms=delivered.before_ms,
            delivered_ms=delivered.before_ms,
            delivered_offset=delivered.before_offset,
        )
        self.read_ms, self.queue_offset = self.second_of(delivered.before_ms), 0
        self.checkpoint.save(self._checkpoint_path)

    # --- opening; blocks ---

    def load(self, commit_log_end: int) -> Unit | None:
        """Load the state that the last run left; return the newest entry. Raises StoreDamaged, OSError.

        Afterwards `queue_offset` is that of the checkpoint, although later messages may be entered already.
        """
        before = self.checkpoint = TimerCheckpoint.load(self._checkpoint_path)
        self.timer_log.load()
        has_wheel = self.wheel.load()
        is_other_precision = before.precision_ms not in (0, self.wheel.precision_ms)
        if is_other_precision:
            log.warning(
                "timer wheel is rebuilt, timerPrecisionMs was changed before=%d now=%d",
                before.precision_ms,
                self.wheel.precision_ms,
            )
        is_whole = self._is_trusted(before.log_end, commit_log_end)
        is_known = has_wheel and is_whole
        begin = before.log_end if is_known else self.timer_log.begin
        self.read_ms = self._first_slot(self.second_of(before.read_ms))
        if is_whole:
            self._follow_entries_back(before.log_end, commit_log_end)
        latest = None if is_known else self._latest_entries(commit_log_end)
        end, last = self._replay(begin, commit_log_end, latest)
        is_whole = is_whole and end >= before.log_end
        if end < self.timer_log.end:
            self.timer_log.cut(end)
        if is_other_precision:
            self.wheel.clear_all()
            self._rechain(before.read_ms, before.precision_ms)
        else:
            self._repair_wheel(end)
        self.queue_offset = before.queue_offset if is_whole else 0
        self.count = sum(slot.waiting for slot in slots_in_use(self.wheel, self.read_ms))
        return last or self.timer_log.last_before(end)

    def _rechain(self, read_ms: int, precision_ms: int) -> None:
        """Enter all waiting messages again, because their chains are of slots of `precision_ms`."""
        now_ms = self.second_of(self._now_ms())
        for unit in self._waiting(read_ms):
            # A message is delivered when both its old and its new slot are over, or it would be too early.
            # Overdue messages are next. The wheel may have a smaller range than before, so that a message may
            # have to be rolled now.
            slot_ms, magic = self._place(max(unit.slot_ms + precision_ms - 1, now_ms), now_ms)
            moved = unit._replace(magic=unit.magic | magic, written_ms=now_ms)
            if moved.rolls:
                moved = moved._replace(later_ms=max(unit.later_ms, precision_ms - 1))
            self._chain(moved, self.second_of(slot_ms))
        self.read_ms = now_ms

    def _waiting(self, read_ms: int) -> list[Unit]:
        """Return the newest entry of each waiting message, in the order in which the messages were stored.

        Earlier entries are of slots of another length, or of a slot whose delivery was interrupted.
        """
        waiting: dict[int, Unit] = {}
        for _, unit in scan_log(self.timer_log, self.timer_log.begin):
            if unit.slot_ms >= read_ms:
                waiting[unit.physical_offset] = unit
            else:
                waiting.pop(unit.physical_offset, None)
        return list(waiting.values())

    def _chain(self, unit: Unit, slot_ms: int) -> None:
        """Enter a message again, for another slot."""
        written_ms = max(unit.written_ms, slot_ms - _MAX_DELAY_MS)
        previous = self.wheel.link(slot_ms, self.timer_log.place(), unit.weight)
        self.timer_log.append(*unit._replace(previous=previous, written_ms=written_ms, slot_ms=slot_ms))

    def _is_trusted(self, log_end: int, commit_log_end: int) -> bool:
        """Whether timer log and commit log go as far as the checkpoint says."""
        timer_log = self.timer_log
        if not timer_log.begin <= log_end <= timer_log.end:
            return False
        last = timer_log.last_before(log_end)
        return log_end == timer_log.begin or (last is not None and last.end <= commit_log_end)

    def _first_slot(self, read_ms: int) -> int:
        """Return the slot to continue at; without a checkpoint, the earliest that the wheel can hold."""
        return read_ms or max(0, self.second_of(self._now_ms()) - self.wheel.span_ms // 2)

    def _follow_entries_back(self, log_end: int, commit_log_end: int) -> None:
        """Continue at the first slot of the entries behind the checkpoint, `log_end`, if that is earlier.

        New entries are for slots that are not delivered yet. Earlier slots than the checkpoint's have some
        only if the clock was set back since.
        """
        slots = [
            self.second_of(unit.slot_ms) for _, unit in scan_valid(self.timer_log, log_end, commit_log_end)
        ]
        self.read_ms = min([self.read_ms, *slots])

    def _latest_entries(self, commit_log_end: int) -> dict[int, int]:
        """Return the position of each waiting message's newest entry, by the message's physical offset."""
        latest: dict[int, int] = {}
        for position, unit in scan_valid(self.timer_log, self.timer_log.begin, commit_log_end):
            if unit.slot_ms >= self.read_ms:
                latest[unit.physical_offset] = position
            else:
                latest.pop(unit.physical_offset, None)
        return latest

    def _replay(
        self, begin: int, commit_log_end: int, latest: dict[int, int] | None
    ) -> tuple[int, Unit | None]:
        """Replay the timer log from `begin` on into the wheel; return its end and its newest message's entry.

        The newest message's entry need not be the last one. `latest` has the position of the valid entry of
        each waiting message; None: all entries are valid.
        """
        end, newest = begin, None
        for position, unit in scan_valid(self.timer_log, begin, commit_log_end):
            if unit.slot_ms >= self.read_ms:
                slot = self.wheel.slot(unit.slot_ms)
                counts = latest is None or latest.get(unit.physical_offset) == position
                # A recall stays in both slots, or the message that it recalls might be delivered.
                is_needed = counts or (slot is not None and unit.deletes)
                if is_needed and (slot is None or slot.last < position):
                    self.wheel.link(unit.slot_ms, position, unit.weight)
            end = position + UNIT_BYTES
            if newest is None or unit.physical_offset >= newest.physical_offset:
                newest = unit
        return end, newest

    def _repair_wheel(self, log_end: int) -> None:
        """Rebuild the slots that point beyond the timer log's end, where it was cut off."""
        ahead = [slot for slot in slots_in_use(self.wheel, self.read_ms) if slot.last >= log_end]
        if not ahead:
            return
        log.warning("timer wheel is ahead of the timer log, its slots are rebuilt slots=%d", len(ahead))
        for slot in ahead:
            self.wheel.clear(slot.time_ms)
        times = {slot.time_ms for slot in ahead}
        begin = max(self.timer_log.begin, min(slot.first for slot in ahead))
        for position, unit in scan_log(self.timer_log, begin):
            if unit.slot_ms in times:
                self.wheel.link(unit.slot_ms, position, unit.weight)

    # --- old files; blocks ---

    def remove_old_files(self, commit_log_begin: Callable[[], int]) -> int:
        """Delete files whose messages are all gone from the commit log; return how many. Raises OSError."""
        removed = 0
        while self.timer_log.oldest_file_end() is not None:
            last = self.timer_log.last_of_oldest_file()
            if last is None or last.physical_offset >= commit_log_begin():
                break
            if self.timer_log.newest_of_oldest_file() >= commit_log_begin():
                break
            self.timer_log.remove_oldest_file()
            removed += 1
        return removed


@lru_cache(maxsize=4096)
def _topic_hash(topic: str) -> int:
    return string_hash_code(topic)
