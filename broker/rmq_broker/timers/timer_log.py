"""The timer log: one entry for each waiting message, chained to the previous entry of the same slot.

The files are those of Apache RocketMQ 5.3.3 (TimerLog). Entries are in the order in which the messages were
stored in the timer topic's queue. New entries are in memory until they are written. Entries that a killed
process had not written are rebuilt from that queue.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from rmq_remoting.daemon.atomic_file import sync_folder
from rmq_remoting.daemon.descriptor_reserve import open_file
from rmq_remoting.daemon.file_errors import read_at

from ..store.api import StoreDamaged, file_name, list_files
from .log_unit import BLANK, BLANK_MAGIC, DELETE, OF_THE_JOURNAL, UNIT, UNIT_BYTES, Unit, unit_of

log = logging.getLogger("rmq.broker.timers")

_BLOCK_BYTES: Final = 8192
_COUNTED_BYTES: Final = 16_384 * UNIT_BYTES
_MAX_OPEN_FILES: Final = 32


class Weight(NamedTuple):
    """The number of waiting messages of a topic, and the newest one's physical offset."""

    waiting: int
    physical_offset: int


class TimerLog:
    """Appended to on the loop, written and read in threads.

    Positions count bytes from the beginning of the first file that ever existed.
    """

    def __init__(self, folder: Path, file_bytes: int) -> None:
        self.begin = 0
        self.written = 0  # the flushed end
        self.folder = folder
        self._use_file_size(file_bytes)
        # The position of the unwritten entries, and their bytes. Both are replaced together, because threads
        # read them.
        self._tail: tuple[int, bytearray] = (0, bytearray())
        self._readers: dict[int, int] = {}  # descriptors by the beginning of their file
        self._block: tuple[int, bytes] = (0, b"")
        # The begin of the first file, and the newest message that it has entries of.
        self._newest_of_file: tuple[int, int] = (-1, 0)

    @property
    def end(self) -> int:
        """The end of the entries: where the next entry goes, or the next file begins."""
        begin, tail = self._tail
        return begin + len(tail)

    def place(self) -> int:
        """Return the position of the next entry, after filling up a file that has no room for it."""
        begin, tail = self._tail
        position = begin + len(tail)
        room = self.file_bytes - position % self.file_bytes
        if room < UNIT_BYTES + BLANK.size:
            tail += BLANK.pack(room, 0, BLANK_MAGIC) + bytes(room - BLANK.size)
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
        """Append an entry with the values of a Unit, at the position that `place` returned."""
        self._tail[1].extend(
            UNIT.pack(
                UNIT_BYTES,
                previous,
                magic,
                written_ms,
                slot_ms - written_ms,
                physical_offset,
                size,
                topic_hash,
                later_ms << 1 | (OF_THE_JOURNAL if is_journal else 0),
            )
        )

    # --- writing ---

    def unwritten(self) -> tuple[int, bytes]:
        """Return the position of the unwritten entries, and their bytes."""
        begin, tail = self._tail
        return begin, bytes(tail)

    def write(self, begin: int, data: bytes) -> None:
        """Write entries into the files and flush them. Raises OSError; blocks."""
        view, at = memoryview(data), begin
        while view:
            start = at - at % self.file_bytes
            part = view[: start + self.file_bytes - at]
            self._write_part(start, at - start, part)
            view, at = view[len(part) :], at + len(part)

    def was_written(self, end: int) -> None:
        """Drop the entries before `end` from memory, now that they are flushed; to be called on the loop."""
        begin, tail = self._tail
        self._tail = (end, tail[end - begin :])
        self.written = end

    def _write_part(self, start: int, position: int, part: memoryview) -> None:
        path = self.folder / file_name(start)
        is_new = not path.exists()
        if is_new:
            self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = open_file(path, os.O_RDWR | os.O_CREAT)
        try:
            if os.fstat(descriptor).st_size < self.file_bytes:
                os.ftruncate(descriptor, self.file_bytes)
            while part:
                wrote = os.pwrite(descriptor, part, position)
                part, position = part[wrote:], position + wrote
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if is_new:
            sync_folder(self.folder)

    # --- reading, by one thread at a time ---

    def unit(self, position: int) -> Unit | None:
        """Read the entry at a position; None if there is none. Raises OSError; blocks."""
        begin, tail = self._tail
        raw: bytes | bytearray = tail
        at = position - begin
        if at < 0:
            raw, at = self._block_with(position)
        if at < 0 or at + UNIT_BYTES > len(raw):
            return None
        return unit_of(UNIT.unpack_from(raw, at))

    def _block_with(self, position: int) -> tuple[bytes, int]:
        """Read a block of a file that ends with the entry at a position; also return the position in it.

        Chains are followed backwards, so the block often has the next entry, too.
        """
        begin, block = self._block
        if not begin <= position <= begin + len(block) - UNIT_BYTES:
            start = position - position % self.file_bytes
            begin = max(start, position + UNIT_BYTES - _BLOCK_BYTES)
            size = position + UNIT_BYTES - begin
            # The block ends here because the bytes behind it may still change.
            block = read_at(self._reader(start), size, begin - start) if position >= self.begin else b""
            self._block = (begin, block)
        return block, position - begin

    def _reader(self, start: int) -> int:
        descriptor = self._readers.get(start)
        if descriptor is None:
            if len(self._readers) >= _MAX_OPEN_FILES:
                self.close()
            path = self.folder / file_name(start)
            descriptor = self._readers[start] = open_file(path, os.O_RDONLY)
        return descriptor

    def close(self) -> None:
        """Close the files; they are opened again when they are read."""
        readers, self._readers = self._readers, {}
        for descriptor in readers.values():
            os.close(descriptor)

    # --- opening; blocks ---

    def _use_file_size(self, file_bytes: int) -> None:
        self.file_bytes = file_bytes
        self._entries_of_file = (file_bytes - BLANK.size) // UNIT_BYTES

    def load(self) -> None:
        """Find the files, without reading their entries. Raises StoreDamaged, OSError.

        If they have another size than the setting the log continues in their size.
        """
        paths = list_files(self.folder)
        sizes = [path.stat().st_size for path in paths]
        if sizes and sizes[0] not in (0, self.file_bytes):
            log.info(
                "timer log continues in files of another size than mappedFileSizeTimerLog folder=%s bytes=%d",
                self.folder,
                sizes[0],
            )
            self._use_file_size(sizes[0])
        for path, found in zip(paths, sizes, strict=True):
            is_last = path is paths[-1]
            if found > self.file_bytes or (found < self.file_bytes and not is_last):
                raise StoreDamaged(
                    f"{path} has {found} bytes, the file before it {sizes[0]}: move timerlog and timerwheel "
                    "away, and the broker rebuilds them; delivered messages may be redelivered then"
                )
        starts = [int(path.name) for path in paths]
        for index in range(len(starts) - 1, 0, -1):
            if starts[index - 1] + self.file_bytes != starts[index]:
                log.error(
                    "timer log file missing, earlier files are ignored folder=%s missing_before=%s",
                    self.folder,
                    paths[index].name,
                )
                starts = starts[index:]
                break
        self.begin = starts[0] if starts else 0
        self._end_at(starts[-1] + self.file_bytes if starts else 0)

    def weights_by_topic(self, first_positions: Mapping[int, int]) -> dict[int, Weight]:
        """Count the waiting messages by the hash of their topic. Raises OSError.

        `first_positions`: the position of the oldest entry of each slot in use. Earlier entries with the time
        of such a slot are of delivered messages.
        """
        weights: Counter[int] = Counter()
        places: dict[int, int] = {}
        first_of = first_positions.get
        for start in range(self.begin, self.written, self.file_bytes):
            end = min(start + self._entries_of_file * UNIT_BYTES, self.written)
            with (self.folder / file_name(start)).open("rb", buffering=0) as stream:
                for block in range(start, end, _COUNTED_BYTES):
                    raw = stream.read(min(_COUNTED_BYTES, end - block))
                    for index, values in enumerate(UNIT.iter_unpack(raw)):
                        _, _, magic, written_ms, delay_ms, physical_offset, _, topic_hash, _ = values
                        first = first_of(written_ms + delay_ms)
                        if first is not None and block + index * UNIT_BYTES >= first:
                            weights[topic_hash] += -1 if magic & DELETE else 1
                            places[topic_hash] = physical_offset
        return {topic_hash: Weight(weight, places[topic_hash]) for topic_hash, weight in weights.items()}

    def cut(self, end: int) -> None:
        """Delete all entries from `end` on. Raises OSError."""
        for path in list_files(self.folder):
            start = int(path.name)
            if start >= end and start > self.begin:
                path.unlink()
            elif start + self.file_bytes > end:
                descriptor = open_file(path, os.O_RDWR)
                try:
                    # The bytes behind the end become zero, so that no old entry is left there.
                    os.ftruncate(descriptor, max(0, end - start))
                    os.ftruncate(descriptor, self.file_bytes)
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
        self._end_at(end)

    def last_before(self, end: int) -> Unit | None:
        """Return the entry that ends at a position, or before the padding there. Raises OSError."""
        if end % self.file_bytes == 0:
            end -= self.file_bytes - self._entries_of_file * UNIT_BYTES
        return self.unit(end - UNIT_BYTES) if end > self.begin else None

    def _end_at(self, end: int) -> None:
        self._tail = (end, bytearray())
        self._block = (0, b"")
        self.written = end

    # --- old files ---

    def oldest_file_end(self) -> int | None:
        """Return the end of the first file; None if it is also the last."""
        end = self.begin + self.file_bytes
        return end if end <= self.written else None

    def last_of_oldest_file(self) -> Unit | None:
        """Read the last entry of the first file, which has to be full. Raises OSError; blocks."""
        path = self.folder / file_name(self.begin)
        with path.open("rb", buffering=0) as stream:
            stream.seek((self._entries_of_file - 1) * UNIT_BYTES)
            raw = stream.read(UNIT_BYTES)
        return unit_of(UNIT.unpack(raw)) if len(raw) == UNIT_BYTES else None

    def newest_of_oldest_file(self) -> int:
        """Return the physical offset of the newest message in the first file, which has to be full.

        It may differ from that of the last entry, because messages may be entered again. Raises OSError;
        blocks.
        """
        begin, newest = self._newest_of_file
        if begin != self.begin:
            begin, newest = self.begin, 0
            with (self.folder / file_name(begin)).open("rb", buffering=0) as stream:
                while raw := stream.read(_COUNTED_BYTES):
                    newest = max(newest, _newest_in(raw))
            self._newest_of_file = (begin, newest)
        return newest

    def remove_oldest_file(self) -> None:
        """Delete the first file. Raises OSError; blocks."""
        start, self.begin = self.begin, self.begin + self.file_bytes
        (self.folder / file_name(start)).unlink(missing_ok=True)


def _newest_in(raw: bytes) -> int:
    """Return the largest physical offset of the valid entries in a block; 0 without one."""
    whole = len(raw) - len(raw) % UNIT_BYTES
    units = [unit_of(values) for values in UNIT.iter_unpack(raw[:whole])]
    return max([unit.physical_offset for unit in units if unit is not None], default=0)
