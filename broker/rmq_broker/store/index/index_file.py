"""One index file: entries in hash chains, found by the hash of a message's key.

Apache RocketMQ 5.3.3, IndexFile and IndexHeader. A header of 40 bytes; hash slots (int32: the newest entry of
the chain); entries of 20 bytes: hash, physical offset, seconds since the file's begin, the entry before it in
the chain. Entries are numbered from 1, so that a file of N holds N - 1. All numbers are big endian.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from struct import Struct
from typing import Final

from ..errors import StoreDamaged

HEADER_BYTES: Final = 40
SLOT_BYTES: Final = 4
ENTRY_BYTES: Final = 20
PLACE_BYTES: Final = 20  # an entry of a consume queue: it begins with the message's physical offset
_COUNT_UP: Final = bytes(range(256))

_HEADER: Final = Struct(">qqqqii")
_INT: Final = Struct(">i")
_ENTRY: Final = Struct(">iqii")
_WORD_BYTES: Final = 4
_HEADER_WORDS: Final = HEADER_BYTES // _WORD_BYTES
_PREVIOUS_WORD: Final = 4  # of an entry's five words
_MAX_SECONDS: Final = 0x7FFFFFFF
_NO_ENTRY: Final = bytes(ENTRY_BYTES)

# Disk space is reserved for so many entries at a time (1.25 MiB).
ENTRY_STEP: Final = 65536
# A new file's slots are written in such pieces.
_WRITE_BYTES: Final = 1 << 20
# How many entries of one batch are packed by one call.
_BLOCK_ENTRIES: Final = 256
# The header follows that often: what it does not count after a kill is taken back by `cut`.
_HEADER_EVERY: Final = 64

_pack_entry_into = Struct(">iqi").pack_into  # what stands before it in the chain is copied as a word
_pack_int_into = _INT.pack_into
_pack_header_into = _HEADER.pack_into


class IndexFile:
    """Written by one thread, which keeps it mapped while it does; read by any, with `pread`.

    A mapped page without disk space behind it kills the process when it is written. So the space of the slots
    is taken when the file is made ready for writing, and that of entries a step ahead: a full disk is an
    OSError of `make_writable` or `extend`.

    An entry is written first, then its slot, then the header. Whatever a killed process left in between is
    behind the header's count, and `cut` takes it back.
    """

    __slots__ = (
        "_entries_at",
        "_map",
        "_seconds",
        "_words",
        "begin_offset",
        "begin_timestamp_ms",
        "capacity",
        "count",
        "descriptor",
        "end_offset",
        "end_timestamp_ms",
        "is_flushed",
        "is_writable",
        "path",
        "room",
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
    _map: mmap.mmap
    _words: memoryview

    def __init__(self, path: Path, slot_count: int, capacity: int) -> None:
        """Open a file for reading. Raises StoreDamaged for one that is not sound, OSError."""
        self._set_layout(path, slot_count, capacity)
        self.descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        found = os.fstat(self.descriptor).st_size
        if found != self.size:
            raise StoreDamaged(f"{path} has {found} bytes instead of {self.size}")
        self.is_flushed = True
        self._read_header()
        self._check()

    @classmethod
    def create(cls, path: Path, slot_count: int, capacity: int) -> IndexFile:
        """Make an empty file, ready for writing. Raises OSError, and leaves no file then; blocks."""
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("wb") as stream:
                left = HEADER_BYTES + slot_count * SLOT_BYTES
                # Written and not only reserved: the loop finds the slots' pages in memory.
                while left > 0:
                    left -= stream.write(bytes(min(left, _WRITE_BYTES)))
                stream.truncate(_file_bytes(slot_count, capacity))
            file = cls(path, slot_count, capacity)
            file.make_writable()
        except OSError:
            path.unlink(missing_ok=True)
            raise
        return file

    def _set_layout(self, path: Path, slot_count: int, capacity: int) -> None:
        self.path = path
        self.slot_count = slot_count
        self.capacity = capacity
        self.size = _file_bytes(slot_count, capacity)
        self._entries_at = HEADER_BYTES + slot_count * SLOT_BYTES
        self.is_writable = False  # mapped, with disk space behind the slots
        self.room = 0  # entries with smaller numbers can be written
        self._seconds = 0

    def _read_header(self) -> None:
        header = _HEADER.unpack(os.pread(self.descriptor, HEADER_BYTES, 0))
        self.begin_timestamp_ms, self.end_timestamp_ms = header[0], header[1]
        self.begin_offset, self.end_offset = header[2], header[3]
        self.slots_used, self.count = header[4], header[5]
        if self.count <= 0:
            self.count = 1

    def _check(self) -> None:
        """Raises StoreDamaged where the header cannot be that of these entries."""
        plausible = (
            self.count <= self.capacity
            and 0 <= self.slots_used <= min(self.count, self.slot_count)
            and 0 <= self.begin_offset <= self.end_offset
            and self.begin_timestamp_ms >= 0
        )
        if not plausible:
            raise StoreDamaged(f"{self.path} has a header that cannot be right")
        if self.count > 1:
            begin, end = self.entry(1)[1], self.entry(self.count - 1)[1]
            is_hole = self.count > 2 and self._bytes_at(self.count - 1) == _NO_ENTRY
            # A killed process may have left parts of the header that are of different times.
            if is_hole or begin != self.begin_offset or not begin <= end <= self.end_offset:
                raise StoreDamaged(f"the header of {self.path} does not fit its entries")

    # --- writing ---

    @property
    def is_full(self) -> bool:
        """Whether no entry can be added."""
        return self.count >= self.capacity

    @property
    def is_empty(self) -> bool:
        """Whether there is no entry."""
        return self.count <= 1

    def make_writable(self) -> None:
        """Take disk space for the slots, and map the file. Raises OSError; blocks."""
        if self.is_writable:
            return
        os.posix_fallocate(self.descriptor, 0, self._entries_at)
        self._map = mmap.mmap(self.descriptor, self.size)
        self._words = memoryview(self._map).cast("I")
        self.is_writable = True
        if not self.is_empty:
            self.extend()

    def extend(self) -> None:
        """Take disk space for more entries. Raises OSError."""
        first = max(self.room, 1)
        until = min(self.capacity, max(self.room, self.count) + ENTRY_STEP)
        os.posix_fallocate(
            self.descriptor, self._entries_at + first * ENTRY_BYTES, (until - first) * ENTRY_BYTES
        )
        self.room = until

    def follow(self, before: IndexFile) -> None:
        """Begin where the file before it ends, as long as there are no entries."""
        self.begin_offset = self.end_offset = before.end_offset
        self.begin_timestamp_ms = self.end_timestamp_ms = before.end_timestamp_ms
        self.is_flushed = False
        self.write_header()

    def begin(self, physical_offset: int, store_timestamp_ms: int) -> None:
        """Take disk space for the first entries; they begin with this message. Raises OSError."""
        self.extend()
        self.begin_offset = self.end_offset = physical_offset
        self.begin_timestamp_ms = self.end_timestamp_ms = store_timestamp_ms
        self._seconds = 0
        self.is_flushed = False
        self.write_header()

    def put(self, key_hash: int, physical_offset: int, store_timestamp_ms: int) -> bool:
        """Add an entry; False where there is no room: it is full, to be begun or to be extended."""
        number = self.count
        if number >= self.room:
            return False
        mapped, words = self._map, self._words
        position = self._entries_at + number * ENTRY_BYTES
        if store_timestamp_ms != self.end_timestamp_ms:
            self._set_end_timestamp(store_timestamp_ms)
        _pack_entry_into(mapped, position, key_hash, physical_offset, self._seconds)
        slot = _HEADER_WORDS + key_hash % self.slot_count
        if previous := words[slot]:
            words[(position >> 2) + _PREVIOUS_WORD] = previous
        else:
            self.slots_used += 1
        _pack_int_into(mapped, slot * _WORD_BYTES, number)
        self.count = number + 1
        self.end_offset = physical_offset
        self.is_flushed = False
        if not number % _HEADER_EVERY:
            self.write_header()
        return True

    def put_block(self, key_hash: int, places: bytes, store_timestamp_ms: int) -> int:
        """Add entries of one hash, as `put` does each; returns how many there was room for.

        `places`: the messages' consume queue entries, 20 bytes each, which begin with the physical offset.
        """
        count, added = len(places) // PLACE_BYTES, 0
        while added < count:
            room = min(self.room - self.count, _BLOCK_ENTRIES)
            if room <= 0:
                break
            block = places if count <= room else places[added * PLACE_BYTES : (added + room) * PLACE_BYTES]
            self._put_block(key_hash, block, store_timestamp_ms)
            added += len(block) // PLACE_BYTES
        return added

    def _put_block(self, key_hash: int, places: bytes, store_timestamp_ms: int) -> None:
        mapped = self._map
        number, length = self.count, len(places) // PLACE_BYTES
        if store_timestamp_ms != self.end_timestamp_ms:
            self._set_end_timestamp(store_timestamp_ms)
        slot_at = HEADER_BYTES + key_hash % self.slot_count * SLOT_BYTES
        (previous,) = _INT.unpack_from(mapped, slot_at)
        first, last = offset_of(places, 0), offset_of(places, len(places) - PLACE_BYTES)
        low = (number - 1) & 0xFF
        if first >> 24 == last >> 24 and low + length <= 256:
            # They differ in three bytes of their offsets and one of the entry before: a third of the time.
            block = bytearray(_ENTRY.pack(key_hash, first, self._seconds, number - 1) * length)
            block[9::20], block[10::20], block[11::20] = places[5::20], places[6::20], places[7::20]
            block[19::20] = _COUNT_UP[low : low + length]
            _pack_int_into(block, 16, previous)
        else:
            offsets = [offset_of(places, at) for at in range(0, len(places), PLACE_BYTES)]
            before = (previous, *range(number, number + length - 1))
            entries = zip(offsets, before, strict=True)
            block = bytearray().join([_ENTRY.pack(key_hash, at, self._seconds, of) for at, of in entries])
        begin = self._entries_at + number * ENTRY_BYTES
        mapped[begin : begin + len(block)] = block
        _pack_int_into(mapped, slot_at, number + length - 1)
        if not previous:
            self.slots_used += 1
        self.count = number + length
        self.end_offset = last
        self.is_flushed = False
        if number % _HEADER_EVERY + length > _HEADER_EVERY:
            self.write_header()

    def _set_end_timestamp(self, store_timestamp_ms: int) -> None:
        self.end_timestamp_ms = store_timestamp_ms
        seconds = (store_timestamp_ms - self.begin_timestamp_ms) // 1000
        self._seconds = min(max(seconds, 0), _MAX_SECONDS)

    def write_header(self) -> None:
        """Let the file say how far it goes."""
        _pack_header_into(
            self._map,
            0,
            self.begin_timestamp_ms,
            self.end_timestamp_ms,
            self.begin_offset,
            self.end_offset,
            self.slots_used,
            self.count,
        )

    def cut(self, physical_offset: int) -> None:
        """Take the entries of messages from `physical_offset` on back, and those that are not counted."""
        mapped = self._map
        number = self.count
        while number < self.capacity and self._bytes_at(number) != _NO_ENTRY:
            number += 1
        kept = number
        while kept > 1:
            number = kept - 1
            key_hash, offset, _, previous = self.entry(number)
            if number < self.count and offset < physical_offset:
                break
            slot_at = HEADER_BYTES + key_hash % self.slot_count * SLOT_BYTES
            if _INT.unpack_from(mapped, slot_at)[0] == number:
                _pack_int_into(mapped, slot_at, previous)
            if not previous and number < self.count:
                self.slots_used = max(0, self.slots_used - 1)
            entry_at = self._entries_at + number * ENTRY_BYTES
            mapped[entry_at : entry_at + ENTRY_BYTES] = _NO_ENTRY
            kept = number
        self._end_with(kept)

    def _end_with(self, count: int) -> None:
        self.count = count
        if self.is_empty:
            self.room = self.slots_used = 0
            self.end_offset = self.begin_offset
            self.end_timestamp_ms = self.begin_timestamp_ms
        else:
            _, self.end_offset, self._seconds, _ = self.entry(count - 1)
            # Entries know seconds only.
            latest_ms = self.begin_timestamp_ms + self._seconds * 1000 + 999
            self.end_timestamp_ms = min(self.end_timestamp_ms, latest_ms)
        self.is_flushed = False
        self.write_header()

    def flush(self) -> None:
        """Bring it onto the disk, while nobody writes it; blocks. Raises OSError."""
        if self.is_flushed:
            return
        if self.is_writable:
            self.write_header()
            self._map.flush()
        os.fsync(self.descriptor)
        self.is_flushed = True

    def seal(self) -> None:
        """Let the mapping go: it will not be written again soon."""
        self.room = 0
        if self.is_writable:
            self.is_writable = False
            self._words.release()
            self._map.close()

    def rename(self, path: Path) -> None:
        """Give it another name. Raises OSError."""
        self.path.rename(path)
        self.path = path

    def delete(self) -> None:
        """Remove the file. It can be read as long as somebody holds it."""
        self.path.unlink(missing_ok=True)

    def __del__(self) -> None:
        descriptor, self.descriptor = getattr(self, "descriptor", -1), -1
        if descriptor >= 0:
            os.close(descriptor)

    # --- reading, from any thread ---

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Hash, physical offset, seconds since the file's begin, and the entry before it in its chain."""
        key_hash, offset, seconds, previous = _ENTRY.unpack(self._bytes_at(number))
        return key_hash, offset, seconds, previous

    def slot(self, slot: int) -> int:
        """The newest entry of a slot's chain; 0 for none."""
        at = HEADER_BYTES + slot * SLOT_BYTES
        return int(_INT.unpack(os.pread(self.descriptor, SLOT_BYTES, at))[0])

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """Whether there may be messages of a time range, both ends included."""
        first, last = self.begin_timestamp_ms, self.end_timestamp_ms
        contains = begin_ms < first and end_ms > last
        return contains or first <= begin_ms <= last or first <= end_ms <= last

    def look_up(self, key_hash: int, begin_ms: int, end_ms: int, limit: int, found: list[int]) -> None:
        """Add the offsets of messages of a hash and a time range, newest first, until `found` has `limit`."""
        number = self.slot(key_hash % self.slot_count)
        # The slot first: the entry that is being put may be in it and not counted yet, but is written.
        if self.is_empty or number > self.count or number >= self.capacity:
            return
        # Later entries point at earlier ones: whatever a damaged file holds, this ends.
        while number > 0 and len(found) < limit:
            entry_hash, offset, seconds, previous = self.entry(number)
            if seconds < 0:
                return
            stored_ms = self.begin_timestamp_ms + seconds * 1000
            if entry_hash == key_hash and begin_ms <= stored_ms <= end_ms:
                found.append(offset)
            if stored_ms < begin_ms or previous >= number:
                return
            number = previous

    def _bytes_at(self, number: int) -> bytes:
        return os.pread(self.descriptor, ENTRY_BYTES, self._entries_at + number * ENTRY_BYTES)


def _file_bytes(slot_count: int, capacity: int) -> int:
    return HEADER_BYTES + slot_count * SLOT_BYTES + capacity * ENTRY_BYTES


def offset_of(places: bytes, position: int) -> int:
    """The physical offset in the consume queue entry at `position`."""
    return int.from_bytes(places[position : position + 8], "big")
