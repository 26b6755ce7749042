"""Filtering messages by their properties, which queue entries do not hold: each message's record is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ..log.record import properties_of
from ..queues.batch_consume_queue import BatchEntry, batch_entries
from ..queues.consume_queue import QUEUE_ENTRY, ConsumeQueue, Entry
from ..queues.entry_file import PLACEHOLDER_SIZE
from ..queues.extension import is_ext_address
from .log_ranges import ColdData, ReadRange, read_in_ranges

# Bytes of records that one read tests at most, even if few of them are wanted. Reading them takes a fraction
# of a millisecond, during which the event loop is blocked.
_MAX_BYTES: Final = 1024 * 1024
# Comparisons of one read at most: they take a few milliseconds.
_MAX_TESTS: Final = 4000


@dataclass(frozen=True, slots=True)
class PropertyFilter:
    """Which messages a read takes, by their raw property bytes. Filters of the same name are equal.

    `tests` is the approximate number of comparisons that one message costs. `may_match` tells by a message's
    store time (ms) and bit map whether the message has to be tested. Any thread may call both functions.
    If there are `needles`, the properties of every message that the filter takes contain one of them.
    """

    name: str
    matches: Callable[[bytes], bool] = field(compare=False, repr=False)
    tests: int = field(default=1, compare=False)
    may_match: Callable[[int, bytes], bool] | None = field(default=None, compare=False, repr=False)
    needles: tuple[bytes, ...] = field(default=(), compare=False, repr=False)

    @property
    def most_messages(self) -> int:
        """The number of messages that one read tests at most."""
        return max(1, _MAX_TESTS // max(1, self.tests))


@dataclass(frozen=True, slots=True)
class FilterLimits:
    """How much a read returns at most.

    `messages` is the number that the client asked for; only the first record may exceed it.
    """

    messages: int
    count: int
    size_bytes: int


@dataclass(slots=True)
class FilteredRecords:
    """The wanted records, one after the other, and the number of messages in them.

    `tested` is the number of entries, from the first on, whose messages were tested. `any_exists` tells
    whether at least one of those messages is still in the log.
    """

    body: bytes
    count: int
    tested: int
    any_exists: bool


class EntryRange(NamedTuple):
    """Consecutive entries of a queue, the offset of each, and the offset after the last."""

    entries: Sequence[Entry | BatchEntry]
    offsets: Sequence[int]
    end: int

    @classmethod
    def of(cls, queue: ConsumeQueue, raw: bytes, offset: int) -> EntryRange:
        """Unpack the entries that were read of a queue from an offset on."""
        if queue.is_batch:
            # An entry that ends before the offset stands before a gap.
            entries = [entry for entry in batch_entries(raw) if entry.end_offset > offset]
            end = entries[-1].end_offset if entries else offset
            return cls(entries, [entry.base_offset for entry in entries], end)
        plain = list(QUEUE_ENTRY.iter_unpack(raw))
        end = offset + len(plain)
        return cls(plain, range(offset, end), end)


def may_match(queue: ConsumeQueue, tags_code: int, wanted: PropertyFilter) -> bool:
    """Whether a message has to be tested, by the bit map of its entry. Raises OSError; blocks."""
    if wanted.may_match is None or queue.ext is None or not is_ext_address(tags_code):
        return True
    unit = queue.ext.unit(tags_code)
    return unit is None or wanted.may_match(unit.store_timestamp_ms, unit.bit_map)


def within_budget(entries: Sequence[Entry | BatchEntry]) -> int:
    """Return how many of these entries one read tests, by the sum of their records' sizes."""
    total = 0
    for index, entry in enumerate(entries):
        total += 0 if entry[1] == PLACEHOLDER_SIZE else entry[1]
        if total > _MAX_BYTES and index:
            return index
    return len(entries)


def filter_records(
    entries: Sequence[Entry | BatchEntry], read: ReadRange, wanted: PropertyFilter, limits: FilterLimits
) -> FilteredRecords:
    """Read the records of the entries and return those that the filter takes, up to the limits.

    Raises OSError, and ColdData if the first record is not in memory and `read` may not block.
    """
    filtering = _Filtering(limits, wanted)
    try:
        read_in_ranges(entries, read, filtering.test)
    except ColdData:
        if not filtering.tested:
            raise
    return FilteredRecords(b"".join(filtering.parts), filtering.count, filtering.tested, filtering.any_exists)


class _Filtering:
    """The records found so far."""

    def __init__(self, limits: FilterLimits, wanted: PropertyFilter) -> None:
        self.parts: list[bytes] = []
        self.count = 0
        self.tested = 0
        self.any_exists = False
        self._size_bytes = 0
        self._limits = limits
        self._matches = wanted.matches
        self._needles = wanted.needles

    def test(self, begin: int, records: bytes | None, entries: Sequence[Sequence[int]]) -> bool:
        """Test the records of a range of the log; False if a limit ends the read."""
        if records is None:
            self.tested += 1  # removed from the log meanwhile, or a placeholder
            return True
        self.any_exists = True
        before = self.tested
        candidates = (
            range(len(entries)) if not self._needles else _having(self._needles, begin, records, entries)
        )
        for index in candidates:
            entry = entries[index]
            self.tested = before + index
            if self.parts and self._is_enough(entry):
                return False
            position, size = entry[0] - begin, entry[1]
            if self._matches(properties_of(records, position, size)):
                self.parts.append(records[position : position + size])
                self._size_bytes += size
                self.count += _messages_of(entry)
        self.tested = before + len(entries)
        return True

    def _is_enough(self, entry: Sequence[int]) -> bool:
        """Whether this record would exceed a limit. One record is always returned, however large it is."""
        limits = self._limits
        full = self.count + _messages_of(entry) > limits.messages or self.count >= limits.count
        return full or self._size_bytes + entry[1] > limits.size_bytes


def _having(
    needles: Sequence[bytes], begin: int, records: bytes, entries: Sequence[Sequence[int]]
) -> Sequence[int]:
    """Return the indexes of the entries whose records, in a range of the log, contain one of the needles."""
    found: set[int] = set()
    for needle in needles:
        index, count = 0, len(entries)
        at = records.find(needle)
        while at >= 0:
            while index < count and entries[index][0] + entries[index][1] - begin <= at:
                index += 1
            if index == count:
                break
            entry = entries[index]
            position = entry[0] - begin
            if position <= at:
                found.add(index)
                position += entry[1]
            at = records.find(needle, position)
    return sorted(found)


def _messages_of(entry: Sequence[int]) -> int:
    return entry.messages if isinstance(entry, BatchEntry) else 1
