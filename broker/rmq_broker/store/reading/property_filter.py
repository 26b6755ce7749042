"""Choosing messages by their properties: what the entries of a queue do not tell, so that each is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ..log.record import properties_of
from ..queues.batch_consume_queue import Unit, iter_units
from ..queues.consume_queue import QUEUE_ENTRY, ConsumeQueue, Entry
from ..queues.entry_file import PLACEHOLDER_SIZE
from ..queues.extension import is_ext_address
from .log_ranges import ColdData, ReadRange, iter_stretches

# What one read looks through at most, however little of it is wanted: reading it takes a fraction of a
# millisecond, and the loop waits for it.
_MOST_BYTES: Final = 1024 * 1024
# So many comparisons are a few milliseconds.
_MOST_TESTS: Final = 4000


@dataclass(frozen=True, slots=True)
class PropertyFilter:
    """Which messages a read takes, by their raw property bytes. Filters of one name are taken for equal.

    `tests` is about how many comparisons one message costs. `may_match` says by a message's store time (ms)
    and bit map whether it has to be looked at. Both functions are called in any thread.
    """

    name: str
    matches: Callable[[bytes], bool] = field(compare=False, repr=False)
    tests: int = field(default=1, compare=False)
    may_match: Callable[[int, bytes], bool] | None = field(default=None, compare=False, repr=False)

    @property
    def most_messages(self) -> int:
        """So many are looked at in one read at most."""
        return max(1, _MOST_TESTS // max(1, self.tests))


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is given at most; `messages` is what was asked for, which only the first record may exceed."""

    messages: int
    count: int
    size_bytes: int


@dataclass(slots=True)
class Picked:
    """The records that are wanted, as one; of the entries `looked_at` were looked at, from the first on."""

    body: bytes
    count: int
    looked_at: int
    any_there: bool


class Stretch(NamedTuple):
    """Entries of a queue in a row, the offset of each, and the offset behind the last."""

    entries: Sequence[Entry | Unit]
    offsets: Sequence[int]
    end: int

    @classmethod
    def of(cls, queue: ConsumeQueue, raw: bytes, offset: int) -> Stretch:
        """What was read of a queue from an offset on."""
        if queue.is_batch:
            # What ends before the offset stands before a gap.
            units = [unit for unit in iter_units(raw) if unit.end_offset > offset]
            return cls(units, [unit.base_offset for unit in units], units[-1].end_offset if units else offset)
        entries = list(QUEUE_ENTRY.iter_unpack(raw))
        end = offset + len(entries)
        return cls(entries, range(offset, end), end)


def may_match(queue: ConsumeQueue, tags_code: int, wanted: PropertyFilter) -> bool:
    """Whether a message has to be looked at, by the bit map of its entry. Raises OSError; blocks."""
    if wanted.may_match is None or queue.ext is None or not is_ext_address(tags_code):
        return True
    unit = queue.ext.unit(tags_code)
    return unit is None or wanted.may_match(unit.store_timestamp_ms, unit.bit_map)


def within_reason(entries: Sequence[Entry | Unit]) -> int:
    """How many of these entries are looked at in one read: as many as their sizes allow."""
    total = 0
    for index, entry in enumerate(entries):
        total += 0 if entry[1] == PLACEHOLDER_SIZE else entry[1]
        if total > _MOST_BYTES and index:
            return index
    return len(entries)


def pick(entries: Sequence[Entry | Unit], read: ReadRange, wanted: PropertyFilter, limits: Limits) -> Picked:
    """The records of the entries that the filter takes, as far as the limits go.

    Raises ColdData where the first of them would have to be read from the disk and `read` may not; OSError.
    """
    picked = _Picking(limits)
    try:
        for begin, stretch, members in iter_stretches(entries, read):
            if stretch is None:
                picked.looked_at += 1  # removed from the log meanwhile, or never there
            elif not picked.go_through(begin, stretch, members, wanted.matches):
                break
    except ColdData:
        if not picked.looked_at:
            raise
    return Picked(b"".join(picked.parts), picked.count, picked.looked_at, picked.any_there)


class _Picking:
    """What has been picked so far."""

    def __init__(self, limits: Limits) -> None:
        self.parts: list[bytes] = []
        self.count = 0
        self.looked_at = 0
        self.any_there = False
        self._size_bytes = 0
        self._limits = limits

    def go_through(
        self,
        begin: int,
        stretch: bytes,
        entries: Sequence[Sequence[int]],
        matches: Callable[[bytes], bool],
    ) -> bool:
        """Look at the records of a stretch of the log; False where the limits end it."""
        self.any_there = True
        for entry in entries:
            if self.parts and self._is_enough(entry):
                return False
            self.looked_at += 1
            position, size = entry[0] - begin, entry[1]
            if matches(properties_of(stretch, position, size)):
                self.parts.append(stretch[position : position + size])
                self._size_bytes += size
                self.count += _messages_of(entry)
        return True

    def _is_enough(self, entry: Sequence[int]) -> bool:
        """Whether this record would be too much. One is always given, however large it is."""
        limits = self._limits
        full = self.count + _messages_of(entry) > limits.messages or self.count >= limits.count
        return full or self._size_bytes + entry[1] > limits.size_bytes


def _messages_of(entry: Sequence[int]) -> int:
    return entry.messages if isinstance(entry, Unit) else 1
