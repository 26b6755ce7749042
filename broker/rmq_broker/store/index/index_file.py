"""Writing an index file: adding entries to its hash chains, and taking entries back after a crash.

Source: Apache RocketMQ 5.3.3, IndexFile. `index_reading.py` describes the layout.
"""

from __future__ import annotations

import mmap
import os
import sys
from array import array
from collections.abc import Sequence
from pathlib import Path
from struct import Struct
from typing import Final

from rmq_remoting.daemon.descriptor_reserve import map_file, open_file
from rmq_remoting.daemon.file_errors import naming_file

from .index_reading import (
    ENTRY,
    ENTRY_BYTES,
    HEADER,
    HEADER_BYTES,
    NO_ENTRY,
    SLOT_BYTES,
    IndexFileReader,
    index_file_bytes,
)

PLACE_BYTES: Final = 20  # of a consume queue's entry, which begins with the message's physical offset
# Entries for which disk space is reserved at a time (1.25 MiB).
ENTRY_STEP: int = 65536  # not `Final`: tests use less
# The slots of a new file are written in parts of this size.
_WRITE_BYTES: Final = 1 << 20
# Entries of a batch that are packed by one call.
_BLOCK_ENTRIES: Final = 256
# Number of entries after which the header is written. After a crash, `cut` takes back entries that it does
# not count.
_HEADER_EVERY: Final = 64
_MAX_SECONDS: Final = 0x7FFFFFFF
_COUNT_UP: Final = bytes(range(256))

_INT: Final = Struct(">i")
_WORD_BYTES: Final = 4
_HEADER_WORDS: Final = HEADER_BYTES // _WORD_BYTES
_PREVIOUS_WORD: Final = 4  # of an entry's five words
_pack_entry_into = Struct(">iqi").pack_into  # the number of the previous entry is copied as a word
_pack_int_into = _INT.pack_into
_pack_header_into = HEADER.pack_into


class IndexFile(IndexFileReader):
    """Written by one thread, which keeps the file mapped meanwhile.

    Writing to a mapped page without disk space behind it kills the process. So `make_writable` reserves the
    space of the slots, and `extend` that of entries in advance: a full disk raises OSError there.

    An entry is written first, then its slot, then the header. Entries that the header does not count after a
    crash are taken back by `cut`.
    """

    __slots__ = (
        "_map",
        "_seconds",
        "_stored_ms",
        "_words",
        "allocated",
        "is_flushed",
        "is_writable",
        "reserved",
    )

    _map: mmap.mmap
    _words: memoryview

    def __init__(self, path: Path, slot_count: int, capacity: int) -> None:
        """Open a file for reading. Raises StoreDamaged if it is damaged, OSError."""
        super().__init__(path, slot_count, capacity)
        self.is_flushed = True
        self.is_writable = False  # mapped, with disk space behind the slots
        self.allocated = 0  # entries with smaller numbers have disk space
        self.reserved = 0  # entries with smaller numbers can be written; at most `allocated`
        self._seconds = 0
        self._stored_ms = -1  # the store time of the last entry

    @classmethod
    def create(cls, path: Path, slot_count: int, capacity: int, *, allocates: bool = False) -> IndexFile:
        """Create an empty, writable file. Raises OSError, and leaves no file then; blocks.

        `allocates`: also reserve disk space for the first entries.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(path, "wb", opener=open_file) as stream:
                left = HEADER_BYTES + slot_count * SLOT_BYTES
                # The slots are written and not only reserved, so that their pages are in memory.
                while left > 0:
                    left -= stream.write(bytes(min(left, _WRITE_BYTES)))
                stream.truncate(index_file_bytes(slot_count, capacity))
            file = cls(path, slot_count, capacity)
            file.make_writable()
            if allocates:
                file.allocate()
        except OSError:
            path.unlink(missing_ok=True)
            raise
        return file

    def make_writable(self) -> None:
        """Reserve disk space for the slots, and map the file. Raises OSError; blocks."""
        if self.is_writable:
            return
        with naming_file(self.descriptor):
            os.posix_fallocate(self.descriptor, 0, self.entries_at)
        self._map = map_file(self.descriptor, self.size)
        self._words = memoryview(self._map).cast("I")
        self.is_writable = True
        if not self.is_empty:
            self.extend()

    def extend(self) -> None:
        """Reserve disk space for more entries, and let them be written. Raises OSError; blocks."""
        self.allocate()
        self.reserved = self.allocated

    def allocate(self) -> None:
        """Reserve disk space for more entries, which `grow` lets be written. Raises OSError; blocks."""
        first = max(self.allocated, 1)
        until = min(self.capacity, max(self.allocated, self.count) + ENTRY_STEP)
        begin, end = self.entries_at + first * ENTRY_BYTES, self.entries_at + until * ENTRY_BYTES
        with naming_file(self.descriptor):
            os.posix_fallocate(self.descriptor, begin, end - begin)
        self.allocated = until

    @property
    def lacks_space(self) -> bool:
        """Whether `allocate` should reserve more disk space soon."""
        return self.allocated < self.capacity and self.allocated - self.count <= ENTRY_STEP // 2

    def grow(self) -> bool:
        """Let more entries be written if they have disk space; False if none has. Does not block.

        The last half of a step is kept back: when it is needed, `lacks_space` asks for more.
        """
        kept_back = 0 if self.allocated >= self.capacity else ENTRY_STEP // 2
        limit = self.allocated - kept_back
        self.reserved = limit if limit > self.count else self.allocated
        return self.reserved > self.count

    def follow(self, before: IndexFile) -> None:
        """Begin where the file before this one ends, until the first entry comes."""
        self.begin_offset = self.end_offset = before.end_offset
        self.begin_timestamp_ms = self.end_timestamp_ms = before.end_timestamp_ms
        self.is_flushed = False
        self.write_header()

    def begin(self, physical_offset: int, store_timestamp_ms: int) -> None:
        """Reserve disk space for the first entries, which begin with this message. Raises OSError; blocks."""
        self.extend()
        self.begin_with(physical_offset, store_timestamp_ms)

    def begin_with(self, physical_offset: int, store_timestamp_ms: int) -> None:
        """Note that the entries, which have disk space, begin with this message. Does not block."""
        self.begin_offset = self.end_offset = physical_offset
        self.begin_timestamp_ms = self.end_timestamp_ms = store_timestamp_ms
        self._seconds, self._stored_ms = 0, store_timestamp_ms
        self.is_flushed = False
        self.write_header()

    def put(self, key_hash: int, physical_offset: int, store_timestamp_ms: int) -> bool:
        """Add an entry; False if no space is reserved: the file is full, or has to be begun or extended."""
        number = self.count
        if number >= self.reserved:
            return False
        mapped, words = self._map, self._words
        position = self.entries_at + number * ENTRY_BYTES
        if store_timestamp_ms != self._stored_ms:
            self._set_time(store_timestamp_ms)
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

    @property
    def space(self) -> int:
        """How many entries can be added at once."""
        return max(0, self.reserved - self.count)

    def put_many(self, hashes: Sequence[int], offsets: Sequence[int], times_ms: list[int] | int) -> None:
        """Add entries of different messages, for which there is `space`.

        The columns hold the hashes, the messages' log offsets and their store times, or one time for all.
        """
        words, slot_count, number, count = self._words, self.slot_count, self.count, len(hashes)
        # Words in the byte order of the file: of each entry's number, and of the previous entry of its slot.
        numbers = array("I", range(number, number + count))
        _to_big_endian(numbers)
        slots = [_HEADER_WORDS + key_hash % slot_count for key_hash in hashes]
        newest = dict(zip(slots, numbers, strict=True))
        if len(newest) == count:
            previous = [words[slot] for slot in slots]
            self.slots_used += previous.count(0)
        else:
            previous = self._previous_of_shared_slots(slots, numbers)
        # The entries first: after a crash, a slot must not lead to an entry that was not written.
        begin = self.entries_at + number * ENTRY_BYTES
        block = _packed(hashes, offsets, self._seconds_of(times_ms, count), previous)
        self._map[begin : begin + len(block)] = block
        for slot, own in newest.items():
            words[slot] = own
        self.count = number + count
        self.end_offset = offsets[-1]
        self.is_flushed = False
        if number % _HEADER_EVERY + count > _HEADER_EVERY:
            self.write_header()

    def _previous_of_shared_slots(self, slots: list[int], numbers: array[int]) -> list[int]:
        """Return the previous entry of each entry's slot, which can be one of these entries."""
        words = self._words
        newest: dict[int, int] = {}
        previous: list[int] = []
        for slot, own in zip(slots, numbers, strict=True):
            before = newest.get(slot, -1)
            if before < 0:
                before = words[slot]
                if not before:
                    self.slots_used += 1
            previous.append(before)
            newest[slot] = own
        return previous

    def _seconds_of(self, times_ms: list[int] | int, count: int) -> list[int]:
        """Return the times as entries hold them."""
        if isinstance(times_ms, int):
            if times_ms != self._stored_ms:
                self._set_time(times_ms)
            return [self._seconds] * count
        seconds: list[int] = []
        for time_ms in times_ms:
            if time_ms != self._stored_ms:
                self._set_time(time_ms)
            seconds.append(self._seconds)
        return seconds

    def put_block(self, key_hash: int, places: bytes, store_timestamp_ms: int) -> int:
        """Add entries of one hash, and return for how many there was space.

        `places`: the messages' consume queue entries, 20 bytes each, which begin with the physical offset.
        """
        count, added = len(places) // PLACE_BYTES, 0
        while added < count:
            space = min(self.reserved - self.count, _BLOCK_ENTRIES)
            if space <= 0:
                break
            block = places if count <= space else places[added * PLACE_BYTES : (added + space) * PLACE_BYTES]
            self._put_block(key_hash, block, store_timestamp_ms)
            added += len(block) // PLACE_BYTES
        return added

    def _put_block(self, key_hash: int, places: bytes, store_timestamp_ms: int) -> None:
        mapped = self._map
        number, length = self.count, len(places) // PLACE_BYTES
        if store_timestamp_ms != self._stored_ms:
            self._set_time(store_timestamp_ms)
        slot_at = HEADER_BYTES + key_hash % self.slot_count * SLOT_BYTES
        (previous,) = _INT.unpack_from(mapped, slot_at)
        first, last = offset_of(places, 0), offset_of(places, len(places) - PLACE_BYTES)
        low = (number - 1) & 0xFF
        if first >> 24 == last >> 24 and low + length <= 256:
            # The entries differ in three bytes of their offsets and one of the previous number. Filling
            # in these columns takes a third of the time.
            block = bytearray(ENTRY.pack(key_hash, first, self._seconds, number - 1) * length)
            block[9::20], block[10::20], block[11::20] = places[5::20], places[6::20], places[7::20]
            block[19::20] = _COUNT_UP[low : low + length]
            _pack_int_into(block, 16, previous)
        else:
            offsets = [offset_of(places, at) for at in range(0, len(places), PLACE_BYTES)]
            before = (previous, *range(number, number + length - 1))
            entries = zip(offsets, before, strict=True)
            block = bytearray().join([ENTRY.pack(key_hash, at, self._seconds, of) for at, of in entries])
        begin = self.entries_at + number * ENTRY_BYTES
        mapped[begin : begin + len(block)] = block
        _pack_int_into(mapped, slot_at, number + length - 1)
        if not previous:
            self.slots_used += 1
        self.count = number + length
        self.end_offset = last
        self.is_flushed = False
        if number % _HEADER_EVERY + length > _HEADER_EVERY:
            self.write_header()

    def _set_time(self, store_timestamp_ms: int) -> None:
        """Note the time of the next entry; the file ends with the latest one, also after a step back."""
        self._stored_ms = store_timestamp_ms
        self.end_timestamp_ms = max(self.end_timestamp_ms, store_timestamp_ms)
        seconds = (store_timestamp_ms - self.begin_timestamp_ms) // 1000
        self._seconds = min(max(seconds, 0), _MAX_SECONDS)

    def write_header(self) -> None:
        """Write the header, which tells how many entries there are."""
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
        """Take back the entries of messages from `physical_offset` on, and entries that are not counted."""
        mapped = self._map
        number = self.count
        while number < self.capacity and self.entry_bytes(number) != NO_ENTRY:
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
            entry_at = self.entries_at + number * ENTRY_BYTES
            mapped[entry_at : entry_at + ENTRY_BYTES] = NO_ENTRY
            kept = number
        self._end_with(kept)

    def _end_with(self, count: int) -> None:
        self.count = count
        if self.is_empty:
            self.allocated = self.reserved = self.slots_used = 0
            self.end_offset = self.begin_offset
            self.end_timestamp_ms = self.begin_timestamp_ms
        else:
            _, self.end_offset, self._seconds, _ = self.entry(count - 1)
            # Entries hold seconds only.
            latest_ms = self.begin_timestamp_ms + self._seconds * 1000 + 999
            self.end_timestamp_ms = min(self.end_timestamp_ms, latest_ms)
        self._stored_ms = -1
        self.is_flushed = False
        self.write_header()

    def flush(self) -> None:
        """Flush the file, while no thread writes to it; blocks. Raises OSError."""
        if self.is_flushed:
            return
        with naming_file(self.descriptor):
            if self.is_writable:
                self.write_header()
                self._map.flush()
            os.fsync(self.descriptor)
        self.is_flushed = True

    def seal(self) -> None:
        """Close the mapping: the file will not be written again soon."""
        self.allocated = self.reserved = 0
        if self.is_writable:
            self.is_writable = False
            self._words.release()
            self._map.close()

    def rename(self, path: Path) -> None:
        """Rename the file. Raises OSError."""
        self.path.rename(path)
        self.path = path

    def delete(self) -> None:
        """Remove the file. It remains readable while this object exists."""
        self.path.unlink(missing_ok=True)


def _packed(hashes: Sequence[int], offsets: Sequence[int], seconds: list[int], previous: list[int]) -> bytes:
    """Return entries; `previous` are words in the byte order of the file."""
    entries = array("I", bytes(ENTRY_BYTES * len(hashes)))
    column = array("I", hashes)
    _to_big_endian(column)
    entries[0::5] = column
    wide = array("Q", offsets)
    _to_big_endian(wide)
    halves = array("I", wide.tobytes())
    entries[1::5], entries[2::5] = halves[0::2], halves[1::2]
    column = array("I", seconds)
    _to_big_endian(column)
    entries[3::5] = column
    entries[_PREVIOUS_WORD::5] = array("I", previous)
    return entries.tobytes()


def _to_big_endian(values: array[int]) -> None:
    if sys.byteorder == "little":
        values.byteswap()


def offset_of(places: bytes, position: int) -> int:
    """Return the physical offset in the consume queue entry at `position`."""
    return int.from_bytes(places[position : position + 8], "big")
