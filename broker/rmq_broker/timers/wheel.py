"""The wheel: for each second to come, where in the timer log the newest message of that second stands.

A file of slots as Apache RocketMQ 5.3.3 has it (TimerWheel, Slot): two weeks of seconds, found by the time
modulo their number. It is kept in memory as a whole; what has changed goes to the disk page by page, behind
the timer log, so that the file never points at what is not there.
"""

from __future__ import annotations

import logging
import mmap
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

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
_pack_into = _SLOT.pack_into
_unpack_from = _SLOT.unpack_from


class Slot(NamedTuple):
    """What waits for one time: its oldest and its newest entry in the timer log, and how many there are.

    `waiting` is less by one for each message that is taken back.
    """

    time_ms: int
    first: int
    last: int
    waiting: int


class TimerWheel:
    """The slots; belongs to the loop's thread, but for `load` and `write`."""

    def __init__(self, path: Path, precision_ms: int) -> None:
        """`precision_ms`: the length of what is called a second here."""
        self.precision_ms = precision_ms
        self._path = path
        self._slots = mmap.mmap(-1, WHEEL_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._used: set[int] = set()  # the pages that are not empty
        self._dirty: set[int] = set()

    @property
    def span_ms(self) -> int:
        """How far apart the times may be that are in the wheel together."""
        return SLOTS * self.precision_ms

    # --- slots ---

    def slot(self, time_ms: int) -> Slot | None:
        """What waits for a time; None where nothing does."""
        number = time_ms // self.precision_ms
        time, first, last, count, _ = _unpack_from(self._slots, number % SLOTS * _SLOT.size)
        return Slot(time_ms, first, last, count) if time == number else None

    def put(self, slot: Slot) -> None:
        """Set what waits for a time."""
        number = slot.time_ms // self.precision_ms
        index = number % SLOTS
        _pack_into(self._slots, index * _SLOT.size, number, slot.first, slot.last, slot.waiting, 0)
        page = index // _PAGE_SLOTS
        self._used.add(page)
        self._dirty.add(page)

    def link(self, time_ms: int, position: int, weight: int) -> int:
        """Let an entry be the newest that waits for a time; where the one before it stands, -1 for none."""
        number = time_ms // self.precision_ms
        index = number % SLOTS
        at = index * _SLOT.size
        time, first, last, waiting, _ = _unpack_from(self._slots, at)
        if time != number:
            first, last, waiting = position, -1, 0
        _pack_into(self._slots, at, number, first, position, waiting + weight, 0)
        page = index // _PAGE_SLOTS
        self._used.add(page)
        self._dirty.add(page)
        return int(last)

    def clear(self, time_ms: int) -> None:
        """Nothing waits for a time any more."""
        index = time_ms // self.precision_ms % SLOTS
        at = index * _SLOT.size
        self._slots[at : at + _SLOT.size] = _EMPTY_SLOT
        page = index // _PAGE_SLOTS
        self._dirty.add(page)
        if self._page(page) == _EMPTY_PAGE:
            self._used.discard(page)

    def next_in_use(self, begin_ms: int, end_ms: int) -> int | None:
        """The first time from `begin_ms` on and before `end_ms` that something waits for."""
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

    def in_use(self, begin_ms: int) -> Iterator[Slot]:
        """Everything that waits for a time from `begin_ms` on, in the order of the file."""
        precision_ms = self.precision_ms
        begin = begin_ms // precision_ms
        for page in sorted(self._used):
            index = page * _PAGE_SLOTS
            for time, first, last, count, _ in _SLOT.iter_unpack(self._page(page)):
                if begin <= time < begin + SLOTS and time % SLOTS == index:
                    yield Slot(time * precision_ms, first, last, count)
                index += 1

    def _page(self, page: int) -> bytes:
        at = page * _PAGE_BYTES
        return self._slots[at : at + _PAGE_BYTES]

    # --- the file ---

    def load(self) -> bool:
        """Take over what the file holds; whether there is one. Raises StoreDamaged, OSError; blocks."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            found = os.fstat(descriptor).st_size
            if found not in (0, WHEEL_BYTES):
                raise StoreDamaged(
                    f"{self._path} has {found} bytes instead of {WHEEL_BYTES}: it is no timer wheel; move it "
                    "away to have it made again out of timerlog"
                )
            for begin, end in _data_ranges(descriptor, found):
                for at in range(begin - begin % _PAGE_BYTES, end, _PAGE_BYTES):
                    page = os.pread(descriptor, _PAGE_BYTES, at)
                    if page != _EMPTY_PAGE:
                        self._slots[at : at + len(page)] = page
                        self._used.add(at // _PAGE_BYTES)
        finally:
            os.close(descriptor)
        return True

    def clear_all(self) -> None:
        """Forget everything: what the file holds is not to be had, or not in these seconds."""
        for page in self._used:
            self._slots[page * _PAGE_BYTES : (page + 1) * _PAGE_BYTES] = _EMPTY_PAGE
        self._dirty |= self._used
        self._used = set()

    @property
    def has_changed(self) -> bool:
        """Whether something is not in the file yet, or on its way there."""
        return bool(self._dirty)

    def take_changes(self) -> dict[int, bytes]:
        """Copies of the pages that have changed since this was asked last, by their place in the file."""
        pages, self._dirty = self._dirty, set()
        return {page * _PAGE_BYTES: self._page(page) for page in sorted(pages)}

    def write(self, pages: Mapping[int, bytes]) -> None:
        """Put such pages into the file, and wait until they are on the disk. Raises OSError; blocks."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(descriptor).st_size != WHEEL_BYTES:
                os.ftruncate(descriptor, WHEEL_BYTES)
            for at, page in pages.items():
                os.pwrite(descriptor, page, at)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _data_ranges(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """The parts of a sparse file that are there."""
    end = 0
    while end < size:
        try:
            begin = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError:  # nothing but a hole follows (ENXIO), or the file system knows no holes (EINVAL)
            if end:
                return
            begin, end = 0, size
        else:
            end = os.lseek(descriptor, begin, os.SEEK_HOLE)
        yield begin, end
