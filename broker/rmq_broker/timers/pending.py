"""What waits: the wheel and the timer log together, in memory and on the disk.

The files go to the disk in this order: the commit log (by its own flushing), the timer log, the wheel, the
checkpoint. So a checkpoint never says of anything that it is delivered, or waits, that a power cut could take
back; what came after it is found again in the timer log and, behind that, in the timer topic's queue.
"""

from __future__ import annotations

import logging
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from rmq_remoting.java_hash import string_hash_code

from ..clock import ClockMs
from ..delivery.timer_entry import TimerEntry
from .checkpoint import TimerCheckpoint
from .timer_log import DEFAULT, DELETE, NO_POSITION, ROLL, UNIT_BYTES, TimerLog, Unit
from .wheel import SLOTS, Slot, TimerWheel

log = logging.getLogger("rmq.broker.timers")

# Slots of the wheel that are kept free between what is to come and what has been (TIMER_BLANK_SLOTS).
_BLANK_SLOTS: Final = 60
_MOST_WINDOW_SLOTS: Final = SLOTS // 2 - _BLANK_SLOTS
_BREATHE_ENTRIES: Final = 256
# Entries tell in 31 bits for how long, in ms, they wait.
_LONGEST_MS: Final = (1 << 31) - 1
# What is so late is as late as that.
_LATEST_MS: Final = 24 * 3600 * 1000


class Snapshot(NamedTuple):
    """What goes to the disk once the commit log is there up to `commit_log_end`."""

    checkpoint: TimerCheckpoint
    log_begin: int
    log_data: bytes
    pages: dict[int, bytes]
    commit_log_end: int


@dataclass(slots=True)
class DueSlot:
    """A slot whose time has come: where its entries stand in the timer log, the oldest first."""

    time_ms: int
    messages: array[int]
    deletes: array[int]
    done: int = 0  # how many of `messages` have been worked off


class PendingTimers:
    """The messages that wait; belongs to the loop's thread, but for what says that it blocks.

    Everything before `read_ms` is done with. `queue_offset` is the next message of the timer topic's queue
    that is not entered yet.
    """

    def __init__(
        self,
        wheel: TimerWheel,
        timer_log: TimerLog,
        checkpoint_path: Path,
        window_slots: int,
        now_ms: ClockMs,
    ) -> None:
        """`window_slots`: what is further away than this is entered again when it comes nearer."""
        self.wheel = wheel
        self.timer_log = timer_log
        self.read_ms = 0
        self.queue_offset = 0
        self.count = 0  # of what waits; without what was taken back
        self.checkpoint = TimerCheckpoint()
        self._checkpoint_path = checkpoint_path
        # As Apache's broker takes it (TimerMessageStore), but no longer than an entry can tell.
        most = min(_MOST_WINDOW_SLOTS, _LONGEST_MS // wheel.precision_ms)
        self._window_slots = window_slots if 2 <= window_slots <= most else most
        self._now_ms = now_ms

    def second_of(self, time_ms: int) -> int:
        """The beginning of the second (or what `timerPrecisionMs` says) that a time is in."""
        return time_ms - time_ms % self.wheel.precision_ms

    def waiting_at(self, slot_ms: int) -> int:
        """How many messages wait in a slot."""
        slot = self.wheel.slot(slot_ms)
        return 0 if slot is None else slot.waiting

    # --- in ---

    def enter(self, entry: TimerEntry, not_before_ms: int) -> bool:
        """Let a message wait; False where the wheel has no room for its time yet.

        `not_before_ms`: the first slot that can still take one. What is late goes there.
        """
        written_ms = self.second_of(self._now_ms())
        out_ms = max(entry.out_ms, not_before_ms, written_ms - _LATEST_MS)
        slot_ms, magic = self._place(out_ms, written_ms)
        slot_ms = self.second_of(slot_ms)
        if slot_ms - self.read_ms >= self.wheel.span_ms - _BLANK_SLOTS * self.wheel.precision_ms:
            return False
        weight = 1
        if entry.is_delete:
            magic, weight = magic | DELETE, -1
        position = self.timer_log.place()
        previous = self.wheel.link(slot_ms, position, weight)
        self.timer_log.append(
            previous,
            magic,
            written_ms,
            slot_ms,
            entry.physical_offset,
            entry.size,
            _topic_hash(entry.topic),
            entry.is_journal,
        )
        self.count += weight
        return True

    def _place(self, out_ms: int, written_ms: int) -> tuple[int, int]:
        """The slot to wait in; for what is too far away, one on the way (TimerMessageStore.doEnqueue)."""
        precision_ms, window = self.wheel.precision_ms, self._window_slots
        beyond_ms = out_ms - written_ms - window * precision_ms
        if beyond_ms < 0:
            return out_ms, DEFAULT
        slots = window // 2 if beyond_ms < window // 3 * precision_ms else window
        return written_ms + slots * precision_ms, DEFAULT | ROLL

    # --- out ---

    def mind_the_clock(self) -> None:
        """Where the clock was set back, what is sent from now on is due by what it says now.

        The slots in between are empty: what was in them has been delivered.
        """
        self.read_ms = min(self.read_ms, self.second_of(self._now_ms()))

    def next_due(self) -> Slot | None:
        """The first slot whose time has come; None where there is none."""
        now_ms = self.second_of(self._now_ms())
        slot_ms = self.wheel.next_in_use(self.read_ms, now_ms)
        self.read_ms = max(self.read_ms, now_ms) if slot_ms is None else slot_ms
        return None if slot_ms is None else self.wheel.slot(slot_ms)

    def entries_of(self, slot: Slot) -> DueSlot:
        """Where the entries of a slot stand. Raises OSError; blocks."""
        due = DueSlot(slot.time_ms, array("q"), array("q"))
        position, entries = slot.last, 0
        while position != NO_POSITION:
            entries += 1
            if entries % _BREATHE_ENTRIES == 0:
                time.sleep(0)  # others may have the interpreter
            unit = self.timer_log.unit(position)
            if unit is None or self.second_of(unit.slot_ms) != slot.time_ms:
                log.error(
                    "the timer log has no entry of slot %d at %d: what was entered there before is lost",
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
        """A slot has been worked off."""
        self.count = max(0, self.count - self.waiting_at(slot_ms))
        self.wheel.clear(slot_ms)
        self.read_ms = slot_ms + self.wheel.precision_ms

    def units_left(self, due: DueSlot) -> list[Unit] | None:
        """What of a slot has not been worked off, and all in it that takes something back.

        None where some of it is not there. Raises OSError; blocks.
        """
        units = []
        for position in (*due.deletes, *due.messages[due.done :]):
            unit = self.timer_log.unit(position)
            if unit is None:
                return None
            units.append(unit)
        return units

    def put_off(self, slot_ms: int, units: Iterable[Unit]) -> None:
        """A slot is done with, but for these of its entries: their turn comes with those of the next one."""
        next_ms = slot_ms + self.wheel.precision_ms
        for unit in units:
            self._chain(unit, next_ms)
            self.count += unit.weight
        self.done(slot_ms)

    # --- to the disk ---

    @property
    def has_changed(self) -> bool:
        """Whether there is something to write; that time passes while nothing is due is no news."""
        is_behind = self.timer_log.end != self.timer_log.written
        return is_behind or self.wheel.has_changed or self.queue_offset != self.checkpoint.queue_offset

    def snapshot(self, commit_log_end: int, held_from_ms: int | None) -> Snapshot:
        """What is to be written as of now.

        `held_from_ms`: when Apache's broker would have to hear of the first of POP's check points.
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
        )
        return Snapshot(checkpoint, log_begin, log_data, self.wheel.take_changes(), commit_log_end)

    def write(self, snapshot: Snapshot) -> None:
        """Put a snapshot on the disk. Raises OSError: it can be tried again; blocks."""
        if snapshot.log_data:
            self.timer_log.write(snapshot.log_begin, snapshot.log_data)
        if snapshot.pages:
            self.wheel.write(snapshot.pages)
        snapshot.checkpoint.save(self._checkpoint_path)

    def written(self, snapshot: Snapshot) -> None:
        """Back on the loop: the snapshot is on the disk."""
        self.checkpoint = snapshot.checkpoint
        self.timer_log.was_written(snapshot.checkpoint.log_end)

    # --- opening; blocks ---

    def load(self, commit_log_end: int) -> Unit | None:
        """Take over what the last run left; the newest entry that is there. Raises StoreDamaged, OSError.

        `queue_offset` is that of the checkpoint afterwards: entries may be of later messages.
        """
        before = self.checkpoint = TimerCheckpoint.load(self._checkpoint_path)
        self.timer_log.load()
        has_wheel = self.wheel.load()
        is_other_precision = before.precision_ms not in (0, self.wheel.precision_ms)
        if is_other_precision:
            log.warning("timerPrecisionMs was %d: the timer wheel is made anew", before.precision_ms)
        is_whole = self._is_trusted(before.log_end, commit_log_end)
        is_known = has_wheel and is_whole
        begin = before.log_end if is_known else self.timer_log.begin
        self.read_ms = self._first_slot(self.second_of(before.read_ms))
        latest = None if is_known else self._latest_entries(commit_log_end)
        end, last = self._enter_again(begin, commit_log_end, latest)
        is_whole = is_whole and end >= before.log_end
        if end < self.timer_log.end:
            self.timer_log.cut(end)
        if is_other_precision:
            self.wheel.clear_all()
            self._chain_anew(before.read_ms, before.precision_ms)
        else:
            self._mend_wheel(end)
        self.queue_offset = before.queue_offset if is_whole else 0
        self.count = sum(slot.waiting for slot in self.wheel.in_use(self.read_ms))
        return last or self.timer_log.last_before(end)

    def _chain_anew(self, read_ms: int, precision_ms: int) -> None:
        """Enter all that waits a second time: chains are of slots of another length, `precision_ms`."""
        now_ms = self.second_of(self._now_ms())
        for unit in self._waiting(read_ms):
            # Their turn comes when both are over, or something would come too early. What is overdue comes
            # next, and the wheel may span less than before: what is too far away now is rolled.
            slot_ms, magic = self._place(max(unit.slot_ms + precision_ms - 1, now_ms), now_ms)
            moved = unit._replace(magic=unit.magic | magic, written_ms=now_ms)
            if moved.rolls:
                moved = moved._replace(later_ms=max(unit.later_ms, precision_ms - 1))
            self._chain(moved, self.second_of(slot_ms))
        self.read_ms = now_ms

    def _waiting(self, read_ms: int) -> list[Unit]:
        """What waits, in the order in which it was sent: of each message the newest entry counts.

        Those before it are of slots of another length, or of a slot that was left off.
        """
        waiting: dict[int, Unit] = {}
        for _, unit in self.timer_log.scan(self.timer_log.begin):
            if unit.slot_ms >= read_ms:
                waiting[unit.physical_offset] = unit
            else:
                waiting.pop(unit.physical_offset, None)
        return list(waiting.values())

    def _chain(self, unit: Unit, slot_ms: int) -> None:
        """Enter what has an entry already a second time, for another slot."""
        written_ms = max(unit.written_ms, slot_ms - _LONGEST_MS)
        previous = self.wheel.link(slot_ms, self.timer_log.place(), unit.weight)
        self.timer_log.append(*unit._replace(previous=previous, written_ms=written_ms, slot_ms=slot_ms))

    def _is_trusted(self, log_end: int, commit_log_end: int) -> bool:
        """Whether the timer log is there as far as its checkpoint says, and its messages are, too."""
        timer_log = self.timer_log
        if not timer_log.begin <= log_end <= timer_log.end:
            return False
        last = timer_log.last_before(log_end)
        return log_end == timer_log.begin or (last is not None and last.end <= commit_log_end)

    def _first_slot(self, read_ms: int) -> int:
        """Where delivering goes on; without a checkpoint, as long ago as the wheel can tell."""
        return read_ms or max(0, self.second_of(self._now_ms()) - self.wheel.span_ms // 2)

    def _latest_entries(self, commit_log_end: int) -> dict[int, int]:
        """Where the newest entry of each message that waits stands, by the message's place in the log."""
        latest: dict[int, int] = {}
        for position, unit in self._sound(self.timer_log.begin, commit_log_end):
            if unit.slot_ms >= self.read_ms:
                latest[unit.physical_offset] = position
            else:
                latest.pop(unit.physical_offset, None)
        return latest

    def _enter_again(
        self, begin: int, commit_log_end: int, latest: dict[int, int] | None
    ) -> tuple[int, Unit | None]:
        """Enter what the timer log has from `begin` on into the wheel; where it ends, its newest message.

        The newest message's entry need not be the last one. `latest`: of each message that waits the entry
        that counts, None where all do.
        """
        end, newest = begin, None
        for position, unit in self._sound(begin, commit_log_end):
            if unit.slot_ms >= self.read_ms:
                slot = self.wheel.slot(unit.slot_ms)
                counts = latest is None or latest.get(unit.physical_offset) == position
                # What takes back does so in both slots where something waits: else it might come.
                is_needed = counts or (slot is not None and unit.deletes)
                if is_needed and (slot is None or slot.last < position):
                    self.wheel.link(unit.slot_ms, position, unit.weight)
            end = position + UNIT_BYTES
            if newest is None or unit.physical_offset >= newest.physical_offset:
                newest = unit
        return end, newest

    def _sound(self, begin: int, commit_log_end: int) -> Iterator[tuple[int, Unit]]:
        """The entries from `begin` on; they end before the first one of a message that the log has lost."""
        for position, unit in self.timer_log.scan(begin):
            if unit.end > commit_log_end:
                return
            yield position, unit

    def _mend_wheel(self, log_end: int) -> None:
        """Where slots point beyond the timer log's end, make them anew out of it; it has been cut there."""
        ahead = [slot for slot in self.wheel.in_use(self.read_ms) if slot.last >= log_end]
        if not ahead:
            return
        log.warning("the timer log ends before %d slots of the wheel do: they are made anew", len(ahead))
        for slot in ahead:
            self.wheel.clear(slot.time_ms)
        times = {slot.time_ms for slot in ahead}
        begin = max(self.timer_log.begin, min(slot.first for slot in ahead))
        for position, unit in self.timer_log.scan(begin):
            if unit.slot_ms in times:
                self.wheel.link(unit.slot_ms, position, unit.weight)

    # --- what is old; blocks ---

    def remove_old_files(self, commit_log_begin: Callable[[], int]) -> int:
        """Delete files all of whose messages are gone from the commit log; how many. Raises OSError."""
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
