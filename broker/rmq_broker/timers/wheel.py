"""The timer wheel: for each second to come, the position of its newest entry in the timer log.

The file has the slots of Apache RocketMQ 5.3.3 (TimerWheel, Slot): two weeks of seconds, found by the time
modulo the number of slots. The whole wheel is in memory. Changed pages are written after the timer log, so
that the file never points at entries that the log does not have.
"""

from __future__ import annotations

import logging
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from rmq_remoting.daemon.descriptor_reserve import open_file
from rmq_remoting.daemon.file_errors import read_at

from ..store.api import StoreDamaged

log = logging.getLogger("rmq.broker.timers")

_SLOT: Final = Struct(">qqqii")
# A week of seconds, twice.
SLOTS: Final = 7 * 24 * 3600 * 2
WHEEL_BYTES: Final = SLOTS * _SLOT.size
_PAGE_BYTES: Final = 4096
_PAGE_SLOTS: Final = _PAGE_BYTES // _SLOT.size
_EMPTY_PAGE: Final = bytes(_PAGE_BYTES)
_EMPTY_SLOT: Final = bytes(_SLOT.size)
_pack_into: Final = _SLOT.pack_into
_unpack_from: Final = _SLOT.unpack_from


class Slot(NamedTuple):
    """The messages due at one time: the positions of their oldest and newest timer log entry, their number.

    Each recall reduces `waiting` by one.
    """

    time_ms: int
    first: int
    last: int
    waiting: int


class TimerWheel:
    """The slots; belongs to the loop's thread, except `load` and `write`."""

    def __init__(self, path: Path, precision_ms: int) -> None:
        """`precision_ms`: the length of a slot, which is called a second here."""
        self.precision_ms = precision_ms
        self._path = path
        self._slots = mmap.mmap(-1, WHEEL_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._used: set[int] = set()  # the pages that are not empty
        self._dirty: set[int] = set()

    @property
    def span_ms(self) -> int:
        """The range of times that the wheel can hold at once, in ms."""
        return SLOTS * self.precision_ms

    # --- slots ---

    def slot(self, time_ms: int) -> Slot | None:
        """Return the slot of a time; None if no message waits for it."""
        number = time_ms // self.precision_ms
        time, first, last, count, _ = _unpack_from(self._slots, number % SLOTS * _SLOT.size)
        return Slot(time_ms, first, last, count) if time == number else None

    def newest(self, time_ms: int) -> int:
        """Return the position of the newest entry of a time, -1 for none."""
        number = time_ms // self.precision_ms
        time, _, last, _, _ = _unpack_from(self._slots, number % SLOTS * _SLOT.size)
        return int(last) if time == number else -1

    def put(self, slot: Slot) -> None:
        """Replace a slot."""
        number = slot.time_ms // self.precision_ms
        index = number % SLOTS
        _pack_into(self._slots, index * _SLOT.size, number, slot.first, slot.last, slot.waiting, 0)
        page = index // _PAGE_SLOTS
        self._used.add(page)
        self._dirty.add(page)

    def link(self, time_ms: int, position: int, weight: int) -> int:
        """Make an entry the newest of its slot; return the position of the entry before it, -1 for none."""
        number = time_ms // self.precision_ms
        index = number % SLOTS
        at = index * _SLOT.size
        time, first, last, waiting, _ = _unpack_from(self._slots, at)
        if time != number:
            first, last, waiting = position, -1, 0
        page = index // _PAGE_SLOTS
        self._used.add(page)
        self._dirty.add(page)
        _pack_into(self._slots, at, number, first, position, waiting + weight, 0)
        return int(last)

    def clear(self, time_ms: int) -> None:
        """Empty the slot of a time."""
        index = time_ms // self.precision_ms % SLOTS
        at = index * _SLOT.size
        self._slots[at : at + _SLOT.size] = _EMPTY_SLOT
        page = index // _PAGE_SLOTS
        self._dirty.add(page)
        if self._page(page) == _EMPTY_PAGE:
            self._used.discard(page)

    def next_in_use(self, begin_ms: int, end_ms: int) -> int | None:
        """Return the first time with waiting messages, from `begin_ms` on and before `end_ms`; else None."""
        precision_ms, slots, used = self.precision_ms, self._slots, self._used
        number, end = begin_ms // precision_ms, end_ms // precision_ms
        while number < end:
            index = number % SLOTS
            if index // _PAGE_SLOTS not in used:
                number += _PAGE_SLOTS - index % _PAGE_SLOTS
            elif _unpack_from(slots, index * _SLOT.size)[0] == number:
                return number * precision_ms
            else:
                number += 1
        return None

    def used_pages(self) -> list[int]:
        """Return the numbers of the pages that are not empty, in the order of the file."""
        return sorted(self._used)

    def slots_of_page(self, page: int, begin_ms: int) -> list[Slot]:
        """Return the slots in use of one page for times from `begin_ms` on."""
        precision_ms = self.precision_ms
        begin, index = begin_ms // precision_ms, page * _PAGE_SLOTS
        slots = []
        for time, first, last, count, _ in _SLOT.iter_unpack(self._page(page)):
            if begin <= time < begin + SLOTS and time % SLOTS == index:
                slots.append(Slot(time * precision_ms, first, last, count))
            index += 1
        return slots

    def _page(self, page: int) -> bytes:
        at = page * _PAGE_BYTES
        return self._slots[at : at + _PAGE_BYTES]

    # --- the file ---

    def load(self) -> bool:
        """Read the file; return whether there is one. Raises StoreDamaged, OSError; blocks."""
        try:
            descriptor = open_file(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            found = os.fstat(descriptor).st_size
            if found not in (0, WHEEL_BYTES):
                raise StoreDamaged(
                    f"{self._path} has {found} bytes instead of {WHEEL_BYTES}, so it is no timer wheel: move "
                    "it away, and the broker rebuilds it from timerlog"
                )
            for begin, end in _data_ranges(descriptor, found):
                for at in range(begin - begin % _PAGE_BYTES, end, _PAGE_BYTES):
                    page = read_at(descriptor, _PAGE_BYTES, at)
                    if page != _EMPTY_PAGE:
                        self._slots[at : at + len(page)] = page
                        self._used.add(at // _PAGE_BYTES)
        finally:
            os.close(descriptor)
        return True

    def clear_all(self) -> None:
        """Empty all slots, because the file cannot be used or has slots of another length."""
        for page in self._used:
            self._slots[page * _PAGE_BYTES : (page + 1) * _PAGE_BYTES] = _EMPTY_PAGE
        self._dirty |= self._used
        self._used = set()

    @property
    def has_changed(self) -> bool:
        """Whether a page has changed since `take_changes` was called last."""
        return bool(self._dirty)

    def take_changes(self) -> dict[int, bytes]:
        """Return copies of the pages changed since the last call, by their position in the file."""
        pages, self._dirty = self._dirty, set()
        return {page * _PAGE_BYTES: self._page(page) for page in sorted(pages)}

    def write(self, pages: Mapping[int, bytes]) -> None:
        """Write such pages and flush the file. Raises OSError; blocks."""
        descriptor = open_file(self._path, os.O_RDWR | os.O_CREAT)
        try:
            if os.fstat(descriptor).st_size != WHEEL_BYTES:
                os.ftruncate(descriptor, WHEEL_BYTES)
            for at, page in pages.items():
                os.pwrite(descriptor, page, at)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _data_ranges(descriptor: int, size: int) -> list[tuple[int, int]]:
    """Return the allocated ranges of a sparse file, as begin and end."""
    ranges: list[tuple[int, int]] = []
    end = 0
    while end < size:
        try:
            begin = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError:  # only a hole follows (ENXIO), or the file system does not support holes (EINVAL)
            if end:
                break
            begin, end = 0, size
        else:
            end = os.lseek(descriptor, begin, os.SEEK_HOLE)
        ranges.append((begin, end))
    return ranges
