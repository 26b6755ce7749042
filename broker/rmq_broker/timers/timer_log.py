"""The timer log: one entry for each message that waits, chained backwards to the one before of its second.

Files as Apache RocketMQ 5.3.3 writes them (TimerLog). Entries stand in the order in which the messages were
sent, in the queue of the timer topic. What is new is in memory until it is written out; what a killed process
had not written out is entered again out of that queue.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from rmq_remoting.daemon.atomic_file import sync_folder

from ..store.api import StoreDamaged, file_name, list_files

log = logging.getLogger("rmq.broker.timers")

# size, previous, magic, write time, delay, physical offset, message size, hash of the topic, reserved
_UNIT: Final = Struct(">iqiqiqiiq")
UNIT_BYTES: Final = _UNIT.size
_BLANK: Final = Struct(">iqi")
_BLANK_MAGIC: Final = (0xBBCCDDEE ^ (1880681586 + 8)) - (1 << 32)
_MAGIC_BITS: Final = 0xF

# Bits of a magic.
DEFAULT: Final = 1
ROLL: Final = 1 << 1
DELETE: Final = 1 << 2

NO_POSITION: Final = -1
# Apache leaves the last eight bytes 0 and does not read them. Their lowest bit says that POP's journal wrote
# the message, the others by how many ms its turn comes later than it says itself.
_OF_THE_JOURNAL: Final = 1

_BLOCK_BYTES: Final = 8192
_SCAN_BYTES: Final = 1 << 20
_COUNTED_BYTES: Final = 16_384 * UNIT_BYTES
_MOST_OPEN_FILES: Final = 32


class Unit(NamedTuple):
    """An entry: a message in the commit log, and the slot that it waits in.

    `previous` is where the entry before it in the same slot stands; -1: there is none. `later_ms`: what rolls
    waits for so much longer than its TIMER_OUT_MS, as that is of a wheel with longer seconds.
    """

    previous: int
    magic: int
    written_ms: int
    slot_ms: int
    physical_offset: int
    size: int
    topic_hash: int
    is_journal: bool = False
    later_ms: int = 0

    @property
    def rolls(self) -> bool:
        """Whether the message waits for longer than the wheel holds: it is entered again then."""
        return bool(self.magic & ROLL)

    @property
    def deletes(self) -> bool:
        """Whether it takes another message back."""
        return bool(self.magic & DELETE)

    @property
    def weight(self) -> int:
        """What it counts: one that takes back makes up for what it takes."""
        return -1 if self.deletes else 1

    @property
    def end(self) -> int:
        """Where its message ends in the commit log."""
        return self.physical_offset + self.size


class Weight(NamedTuple):
    """How many messages of one topic wait, and where in the commit log the newest of them stands."""

    waiting: int
    physical_offset: int


class TimerLog:
    """Appended to on the loop, written out and read in threads.

    Positions count bytes from the beginning of the very first file on.
    """

    def __init__(self, folder: Path, file_bytes: int) -> None:
        self.begin = 0
        self.written = 0  # up to here it is on the disk
        self._folder = folder
        self._use_file_size(file_bytes)
        # What is not written out, and where it begins: replaced as one, as threads look at it.
        self._tail: tuple[int, bytearray] = (0, bytearray())
        self._readers: dict[int, int] = {}  # descriptors by the beginning of their file
        self._block: tuple[int, bytes] = (0, b"")
        # What was found out about the first file, and where that begins.
        self._newest_of_file: tuple[int, int] = (-1, 0)

    @property
    def end(self) -> int:
        """Where the next entry goes, or, behind the last one of a file, the next file begins."""
        begin, tail = self._tail
        return begin + len(tail)

    def place(self) -> int:
        """Where the next entry will stand: what is left of a file that it does not fit into is blank."""
        begin, tail = self._tail
        position = begin + len(tail)
        room = self._file_bytes - position % self._file_bytes
        if room < UNIT_BYTES + _BLANK.size:
            tail += _BLANK.pack(room, 0, _BLANK_MAGIC) + bytes(room - _BLANK.size)
            position += room
        return position

    def append(
        self,
        previous: int,
        magic: int,
        written_ms: int,
        slot_ms: int,
        physical_offset: int,
        size: int,
        topic_hash: int,
        is_journal: bool,
        later_ms: int = 0,
    ) -> None:
        """Add an entry, of the values of a Unit, at its `place`."""
        self._tail[1].extend(
            _UNIT.pack(
                UNIT_BYTES,
                previous,
                magic,
                written_ms,
                slot_ms - written_ms,
                physical_offset,
                size,
                topic_hash,
                later_ms << 1 | (_OF_THE_JOURNAL if is_journal else 0),
            )
        )

    # --- writing out ---

    def unwritten(self) -> tuple[int, bytes]:
        """What is not written out yet, and where it begins."""
        begin, tail = self._tail
        return begin, bytes(tail)

    def write(self, begin: int, data: bytes) -> None:
        """Put it into the files, and wait until it is on the disk. Raises OSError; blocks."""
        view, at = memoryview(data), begin
        while view:
            start = at - at % self._file_bytes
            part = view[: start + self._file_bytes - at]
            self._write_part(start, at - start, part)
            view, at = view[len(part) :], at + len(part)

    def was_written(self, end: int) -> None:
        """Back on the loop: let go of what is in the files now."""
        begin, tail = self._tail
        self._tail = (end, tail[end - begin :])
        self.written = end

    def _write_part(self, start: int, position: int, part: memoryview) -> None:
        path = self._folder / file_name(start)
        is_new = not path.exists()
        if is_new:
            self._folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(descriptor).st_size < self._file_bytes:
                os.ftruncate(descriptor, self._file_bytes)
            while part:
                wrote = os.pwrite(descriptor, part, position)
                part, position = part[wrote:], position + wrote
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if is_new:
            sync_folder(self._folder)

    # --- reading, by one thread at a time ---

    def unit(self, position: int) -> Unit | None:
        """The entry at a position; None where none is. Raises OSError; blocks."""
        begin, tail = self._tail
        raw: bytes | bytearray = tail
        at = position - begin
        if at < 0:
            raw, at = self._block_with(position)
        if at < 0 or at + UNIT_BYTES > len(raw):
            return None
        return _unit_of(_UNIT.unpack_from(raw, at))

    def _block_with(self, position: int) -> tuple[bytes, int]:
        """Bytes of a file around a position, and where in them it is: chains go from the end to the front."""
        begin, block = self._block
        if not begin <= position <= begin + len(block) - UNIT_BYTES:
            start = position - position % self._file_bytes
            begin = max(start, position + UNIT_BYTES - _BLOCK_BYTES)
            size = position + UNIT_BYTES - begin
            # Nothing that may still change is kept: a file's last block grows.
            block = os.pread(self._reader(start), size, begin - start) if position >= self.begin else b""
            self._block = (begin, block)
        return block, position - begin

    def _reader(self, start: int) -> int:
        descriptor = self._readers.get(start)
        if descriptor is None:
            if len(self._readers) >= _MOST_OPEN_FILES:
                self.close()
            path = self._folder / file_name(start)
            descriptor = self._readers[start] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return descriptor

    def close(self) -> None:
        """Let the files go; they are opened again when they are read."""
        readers, self._readers = self._readers, {}
        for descriptor in readers.values():
            os.close(descriptor)

    # --- opening; blocks ---

    def _use_file_size(self, file_bytes: int) -> None:
        self._file_bytes = file_bytes
        self._entries_of_file = (file_bytes - _BLANK.size) // UNIT_BYTES

    def load(self) -> None:
        """Find the files; what they hold is found out by `scan`. Raises StoreDamaged, OSError.

        Files of another size are gone on with in theirs.
        """
        paths = list_files(self._folder)
        sizes = [path.stat().st_size for path in paths]
        if sizes and sizes[0] not in (0, self._file_bytes):
            log.info("%s goes on in files of %d bytes (mappedFileSizeTimerLog)", self._folder, sizes[0])
            self._use_file_size(sizes[0])
        for path, found in zip(paths, sizes, strict=True):
            is_last = path is paths[-1]
            if found > self._file_bytes or (found < self._file_bytes and not is_last):
                raise StoreDamaged(
                    f"{path} has {found} bytes, the file before it {sizes[0]}: move timerlog and timerwheel "
                    "away to have them made again, messages that have come already may come again then"
                )
        starts = [int(path.name) for path in paths]
        for index in range(len(starts) - 1, 0, -1):
            if starts[index - 1] + self._file_bytes != starts[index]:
                log.error("%s lacks the file before %s", self._folder, paths[index].name)
                starts = starts[index:]
                break
        self.begin = starts[0] if starts else 0
        self._end_at(starts[-1] + self._file_bytes if starts else 0)

    def scan(self, begin: int) -> Iterator[tuple[int, Unit]]:
        """The entries from `begin` on, each with its position, up to the first that is none.

        `begin` is where an entry stands, or the beginning of a file. Raises OSError.
        """
        file_bytes = self._file_bytes
        while begin < self.end:
            if not (yield from self._scan_file(begin)):
                return
            begin += file_bytes - begin % file_bytes

    def _scan_file(self, begin: int) -> Generator[tuple[int, Unit], None, bool]:
        """The entries of one file; whether the next file goes on."""
        start = begin - begin % self._file_bytes
        with (self._folder / file_name(start)).open("rb", buffering=_SCAN_BYTES) as stream:
            stream.seek(begin - start)
            while True:
                raw = stream.read(UNIT_BYTES)
                if len(raw) >= _BLANK.size and _BLANK.unpack_from(raw)[2] == _BLANK_MAGIC:
                    return True
                unit = _unit_of(_UNIT.unpack(raw)) if len(raw) == UNIT_BYTES else None
                if unit is None:
                    return False
                yield begin, unit
                begin += UNIT_BYTES

    def weights_by_topic(self, first_positions: Mapping[int, int]) -> dict[int, Weight]:
        """What waits, by the hash of its topic. Raises OSError.

        `first_positions`: where the oldest entry of each slot in use stands. Before that there may be some of
        the slot that have been delivered.
        """
        weights: Counter[int] = Counter()
        places: dict[int, int] = {}
        first_of = first_positions.get
        for start in range(self.begin, self.written, self._file_bytes):
            end = min(start + self._entries_of_file * UNIT_BYTES, self.written)
            with (self._folder / file_name(start)).open("rb", buffering=0) as stream:
                for block in range(start, end, _COUNTED_BYTES):
                    raw = stream.read(min(_COUNTED_BYTES, end - block))
                    for index, values in enumerate(_UNIT.iter_unpack(raw)):
                        _, _, magic, written_ms, delay_ms, physical_offset, _, topic_hash, _ = values
                        first = first_of(written_ms + delay_ms)
                        if first is not None and block + index * UNIT_BYTES >= first:
                            weights[topic_hash] += -1 if magic & DELETE else 1
                            places[topic_hash] = physical_offset
        return {topic_hash: Weight(weight, places[topic_hash]) for topic_hash, weight in weights.items()}

    def cut(self, end: int) -> None:
        """Forget what is from `end` on. Raises OSError."""
        for path in list_files(self._folder):
            start = int(path.name)
            if start >= end and start > self.begin:
                path.unlink()
            elif start + self._file_bytes > end:
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                try:
                    # Beyond the end it is zero again: nothing old may look like an entry there.
                    os.ftruncate(descriptor, max(0, end - start))
                    os.ftruncate(descriptor, self._file_bytes)
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
        self._end_at(end)

    def last_before(self, end: int) -> Unit | None:
        """The entry that ends at a position, or before the blank there. Raises OSError."""
        if end % self._file_bytes == 0:
            end -= self._file_bytes - self._entries_of_file * UNIT_BYTES
        return self.unit(end - UNIT_BYTES) if end > self.begin else None

    def _end_at(self, end: int) -> None:
        self._tail = (end, bytearray())
        self._block = (0, b"")
        self.written = end

    # --- what is old ---

    def oldest_file_end(self) -> int | None:
        """Where the first file ends; None where it is the last."""
        end = self.begin + self._file_bytes
        return end if end <= self.written else None

    def last_of_oldest_file(self) -> Unit | None:
        """The last entry of the first file, once that is full. Raises OSError; blocks."""
        path = self._folder / file_name(self.begin)
        with path.open("rb", buffering=0) as stream:
            stream.seek((self._entries_of_file - 1) * UNIT_BYTES)
            raw = stream.read(UNIT_BYTES)
        return _unit_of(_UNIT.unpack(raw)) if len(raw) == UNIT_BYTES else None

    def newest_of_oldest_file(self) -> int:
        """Where the newest message of the first file stands in the commit log, once the file is full.

        It need not be that of the last entry: messages may be entered a second time. Raises OSError; blocks.
        """
        begin, newest = self._newest_of_file
        if begin != self.begin:
            begin = self.begin
            newest = max((unit.physical_offset for _, unit in self._scan_file(begin)), default=0)
            self._newest_of_file = (begin, newest)
        return newest

    def remove_oldest_file(self) -> None:
        """Delete the first file. Raises OSError; blocks."""
        start, self.begin = self.begin, self.begin + self._file_bytes
        (self._folder / file_name(start)).unlink(missing_ok=True)


def _unit_of(values: tuple[int, ...]) -> Unit | None:
    size, previous, magic, written_ms, delay_ms, physical_offset, message_bytes, topic_hash, reserved = values
    # Where a power cut has left an entry's first page without its second one, the end of it is zero.
    if size != UNIT_BYTES or magic & ~_MAGIC_BITS or message_bytes <= 0:
        return None
    return Unit(
        previous,
        magic,
        written_ms,
        written_ms + delay_ms,
        physical_offset,
        message_bytes,
        topic_hash,
        bool(reserved & _OF_THE_JOURNAL),
        reserved >> 1,
    )
