"""Reading an index file: its header, its entries, and looking messages up by the hash of a key.

Layout (Apache RocketMQ 5.3.3, IndexFile and IndexHeader), all numbers big-endian:

- a header of 40 bytes,
- hash slots (int32: the number of the newest entry of the slot's chain),
- entries of 20 bytes: hash, physical offset, seconds since the file's begin, the number of the entry before
  it in the chain. Entries are numbered from 1, so that a file with space for N entries holds N - 1.
"""

from __future__ import annotations

import os
from pathlib import Path
from struct import Struct
from typing import Final

from rmq_remoting.daemon.descriptor_reserve import open_file
from rmq_remoting.daemon.file_errors import read_at

from ..errors import StoreDamaged

HEADER_BYTES: Final = 40
SLOT_BYTES: Final = 4
ENTRY_BYTES: Final = 20
HEADER: Final = Struct(">qqqqii")
ENTRY: Final = Struct(">iqii")
NO_ENTRY: Final = bytes(ENTRY_BYTES)
_INT: Final = Struct(">i")


class IndexFileReader:
    """An open index file; any thread may read it, with `pread`."""

    __slots__ = (
        "begin_offset",
        "begin_timestamp_ms",
        "capacity",
        "count",
        "descriptor",
        "end_offset",
        "end_timestamp_ms",
        "entries_at",
        "path",
        "size",
        "slot_count",
        "slots_used",
    )

    begin_timestamp_ms: int
    end_timestamp_ms: int
    begin_offset: int
    end_offset: int
    count: int  # the number of the next entry
    slots_used: int

    def __init__(self, path: Path, slot_count: int, capacity: int) -> None:
        """Open a file. Raises StoreDamaged if it is damaged, OSError."""
        self.path = path
        self.slot_count = slot_count
        self.capacity = capacity
        self.size = index_file_bytes(slot_count, capacity)
        self.entries_at = HEADER_BYTES + slot_count * SLOT_BYTES
        self.descriptor = open_file(path, os.O_RDWR)
        found = os.fstat(self.descriptor).st_size
        if found != self.size:
            raise StoreDamaged(f"{path} has {found} bytes instead of {self.size}")
        self._read_header()
        self._check()

    def __del__(self) -> None:
        descriptor, self.descriptor = getattr(self, "descriptor", -1), -1
        if descriptor >= 0:
            os.close(descriptor)

    def _read_header(self) -> None:
        header = HEADER.unpack(read_at(self.descriptor, HEADER_BYTES, 0))
        self.begin_timestamp_ms, self.end_timestamp_ms = header[0], header[1]
        self.begin_offset, self.end_offset = header[2], header[3]
        self.slots_used, self.count = header[4], header[5]
        if self.count <= 0:
            self.count = 1

    def _check(self) -> None:
        """Raise StoreDamaged if the header cannot belong to these entries."""
        plausible = (
            self.count <= self.capacity
            and 0 <= self.slots_used <= min(self.count, self.slot_count)
            and 0 <= self.begin_offset <= self.end_offset
            and self.begin_timestamp_ms >= 0
        )
        if not plausible:
            raise StoreDamaged(f"{self.path} has an impossible header")
        if self.count > 1:
            begin, end = self.entry(1)[1], self.entry(self.count - 1)[1]
            is_hole = self.count > 2 and self.entry_bytes(self.count - 1) == NO_ENTRY
            # A crash of the process may leave a header whose parts were written at different times.
            if is_hole or begin != self.begin_offset or not begin <= end <= self.end_offset:
                raise StoreDamaged(f"the header of {self.path} does not fit its entries")

    # --- entries ---

    @property
    def is_full(self) -> bool:
        """Whether no entry can be added."""
        return self.count >= self.capacity

    @property
    def is_empty(self) -> bool:
        """Whether there is no entry."""
        return self.count <= 1

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Return an entry: hash, physical offset, seconds since the file's begin, previous entry."""
        key_hash, offset, seconds, previous = ENTRY.unpack(self.entry_bytes(number))
        return key_hash, offset, seconds, previous

    def entry_bytes(self, number: int) -> bytes:
        """Return an entry as it is in the file."""
        return read_at(self.descriptor, ENTRY_BYTES, self.entries_at + number * ENTRY_BYTES)

    def slot(self, slot: int) -> int:
        """Return the number of the newest entry of a slot's chain; 0 if there is none."""
        at = HEADER_BYTES + slot * SLOT_BYTES
        return int(_INT.unpack(read_at(self.descriptor, SLOT_BYTES, at))[0])

    # --- looking up ---

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """Whether the file may hold messages of a time range, both ends included."""
        first, last = self.begin_timestamp_ms, self.end_timestamp_ms
        contains = begin_ms < first and end_ms > last
        return contains or first <= begin_ms <= last or first <= end_ms <= last

    def look_up(self, key_hash: int, begin_ms: int, end_ms: int, limit: int, found: list[int]) -> None:
        """Add offsets of messages of a hash and a time range, newest first, until `found` has `limit`."""
        # The slot is read before `count`: it may refer to the entry that is being put. That entry is written
        # before the slot, and counted after it.
        number = self.slot(key_hash % self.slot_count)
        if self.is_empty or number > self.count or number >= self.capacity:
            return
        # The loop ends in a damaged file, too: each entry has to refer to one with a smaller number.
        while number > 0 and len(found) < limit:
            entry_hash, offset, seconds, previous = self.entry(number)
            if seconds < 0:
                return
            stored_ms = self.begin_timestamp_ms + seconds * 1000
            if entry_hash == key_hash and begin_ms <= stored_ms <= end_ms:
                found.append(offset)
            if previous >= number or (stored_ms < begin_ms and self._is_ordered()):
                return
            number = previous

    def _is_ordered(self) -> bool:
        """Whether the last entry is the latest one, so that entries before an early one are earlier still.

        False as long as the clock, after it was set back, has not reached the latest entry's time again.
        """
        seconds = self.entry(self.count - 1)[2]
        return self.begin_timestamp_ms + seconds * 1000 + 999 >= self.end_timestamp_ms


def index_file_bytes(slot_count: int, capacity: int) -> int:
    """Return the size of an index file."""
    return HEADER_BYTES + slot_count * SLOT_BYTES + capacity * ENTRY_BYTES
