"""Index entries in columns: hash chains and times of many entries at once."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from typing import Final

_WORDS: Final = 5  # of an entry of 20 bytes
_SECONDS_WORD: Final = 3
_PREVIOUS_WORD: Final = 4
_MAX_SECONDS: Final = 2**31 - 1
ENTRY_BYTES: Final = 20


class IndexItems:
    """Expected index entries without their numbers in a file: hashes and log offsets, and store times."""

    __slots__ = ("packed", "rise", "times")

    def __init__(self, packed: bytes, times: array[int], rise: bool) -> None:
        """`packed`: entries of 20 bytes, with zeros for the time and the previous entry; `times`: in ms.

        `rise`: whether no time is before the one of the entry before.
        """
        self.packed = packed
        self.times = times
        self.rise = rise

    def __len__(self) -> int:
        return len(self.times)

    def offset(self, index: int) -> int:
        """Return the log offset of an entry's message."""
        at = index * ENTRY_BYTES + 4
        return int.from_bytes(self.packed[at : at + 8], "big")

    def item(self, index: int) -> tuple[int, int, int]:
        """Return hash, log offset and store time in ms of an entry."""
        at = index * ENTRY_BYTES
        return int.from_bytes(self.packed[at : at + 4], "big"), self.offset(index), self.times[index]

    def seconds(self, begin: int, end: int, begin_ms: int) -> array[int] | None:
        """Return the times of some entries in whole seconds after `begin_ms`; None if one does not fit.

        A time before `begin_ms` is negative.
        """
        times = self.times
        try:
            if not self.rise:
                return array("i", [(time_ms - begin_ms) // 1000 for time_ms in times[begin:end]])
            column = array("i")
            while begin < end:
                seconds = (times[begin] - begin_ms) // 1000
                behind = bisect_left(times, begin_ms + (seconds + 1) * 1000, begin, end)
                column += array("i", [seconds]) * (behind - begin)
                begin = behind
        except OverflowError:
            return None
        return column

    def is_equal(self, begin: int, end: int, found: bytes, begin_ms: int) -> bool:
        """Return whether hashes, log offsets and times of some entries are those in `found`."""
        seconds = self.seconds(begin, end, begin_ms)
        if seconds is None:
            return False
        _to_big_endian(seconds)
        wanted = array("i", self.packed[begin * ENTRY_BYTES : end * ENTRY_BYTES])
        wanted[_SECONDS_WORD::_WORDS] = seconds
        words = array("i", found)
        words[_PREVIOUS_WORD::_WORDS] = array("i", bytes(4 * (end - begin)))
        return words == wanted

    def linked(
        self, begin: int, end: int, slots: array[int], first: int, begin_ms: int
    ) -> tuple[array[int], int]:
        """Return some entries as in a file where the first of them has the number `first`.

        `slots`, the newest entry of each slot, is updated. Returns the words of the entries, and how many
        slots were empty.
        """
        words = array("i", self.packed[begin * ENTRY_BYTES : end * ENTRY_BYTES])
        hashes = words[0::_WORDS]
        _to_big_endian(hashes)
        before, used = _link(hashes, slots, first)
        _to_big_endian(before)
        words[_PREVIOUS_WORD::_WORDS] = before
        seconds = self._limited_seconds(begin, end, begin_ms)
        _to_big_endian(seconds)
        words[_SECONDS_WORD::_WORDS] = seconds
        return words, used

    def _limited_seconds(self, begin: int, end: int, begin_ms: int) -> array[int]:
        if begin_ms <= 0:
            return array("i", bytes(4 * (end - begin)))
        seconds = self.seconds(begin, end, begin_ms) if self.rise and self.times[begin] >= begin_ms else None
        if seconds is not None:
            return seconds
        times = self.times[begin:end]
        return array("i", [min(max(0, (time_ms - begin_ms) // 1000), _MAX_SECONDS) for time_ms in times])


def _link(hashes: array[int], slots: array[int], first: int) -> tuple[array[int], int]:
    """Return the number of the previous entry of each entry's slot, and how many slots were empty."""
    slot_count, number, used = len(slots), first, 0
    before: list[int] = []
    for hashed in hashes:
        slot = hashed % slot_count
        previous = slots[slot]
        before.append(previous)
        if not previous:
            used += 1
        slots[slot] = number
        number += 1
    return array("i", before), used


class IndexColumns:
    """Columns of the entries in a block of an index file."""

    __slots__ = ("before", "hashes", "high", "seconds")

    def __init__(self, packed: bytes) -> None:
        words = array("i", packed)
        _to_big_endian(words)
        self.hashes = words[0::_WORDS]
        self.high = words[1::_WORDS]  # half of the log offset
        self.seconds = words[_SECONDS_WORD::_WORDS]
        self.before = words[_PREVIOUS_WORD::_WORDS]

    @property
    def has_negative(self) -> bool:
        """Whether a hash, log offset or time is negative."""
        return min(self.hashes) < 0 or min(self.high) < 0 or min(self.seconds) < 0

    @property
    def latest_seconds(self) -> int:
        """The latest time."""
        return max(self.seconds)

    def follow_chains(self, slots: array[int], first: int) -> int | None:
        """Enter the entries into `slots`, the newest entry of each slot; return how many slots were empty.

        `first` is the number of the first entry. None: `slots` is unchanged, because an entry names another
        previous entry than the newest of its slot.
        """
        hashes = self.hashes
        before, used = _link(hashes, slots, first)
        if before == self.before:
            return used
        slot_count = len(slots)
        for index in range(len(hashes) - 1, -1, -1):
            slots[hashes[index] % slot_count] = before[index]
        return None


def _to_big_endian(values: array[int]) -> None:
    """Convert integers between the order of this machine and that of the files."""
    if sys.byteorder == "little":
        values.byteswap()
