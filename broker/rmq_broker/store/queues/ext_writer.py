"""Writing the extension files of a consume queue; `extension.py` reads them."""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from ..log.mapped_file import file_name
from .descriptors import OpenFile
from .extension import ADDRESS_OF_0, EXT_UNIT, ConsumeQueueExt
from .queue_resources import QueueResources

# Marks the end of a file's units (ConsumeQueueExt.fullFillToEnd); space for it is kept free.
_END: Final = b"\xff\xff"
_END_ROOM_BYTES: Final = 4
_MOST_UNIT_BYTES: Final = 32767


class MessageBitMap(NamedTuple):
    """A message's store time, and the bit map of the filters that take it."""

    store_timestamp_ms: int
    bit_map: bytes


class ExtWriter:
    """Appends to the extension files of one queue.

    The thread that appends to the queue appends here, without waiting for the disk. The thread that writes
    the queue's entries writes the units before them.

    Files of earlier runs are not continued, because their ends could be found only by reading them. Each run
    begins a new file, which Apache's broker takes for the next one (ConsumeQueueExt.recover).
    """

    def __init__(self, ext: ConsumeQueueExt, file_bytes: int, resources: QueueResources, begin: int) -> None:
        """`begin`: the position of the first file that this run writes."""
        self._ext = ext
        self._file_bytes = file_bytes
        self._resources = resources
        self._start = begin  # of the file that takes the next unit
        self._used = 0  # bytes of it
        self._file: tuple[int, OpenFile] | None = None  # being written, with its position
        self._unflushed: dict[OpenFile, None] = {}

    def append(self, tags_code: int, message: MessageBitMap) -> int | None:
        """Add a unit and return its address; None if it is too large. Does not block."""
        bit_map = message.bit_map
        size = EXT_UNIT.size + len(bit_map)
        if size > min(_MOST_UNIT_BYTES, self._file_bytes - _END_ROOM_BYTES):
            return None
        unwritten = self._ext.unwritten
        if size > self._file_bytes - self._used - _END_ROOM_BYTES:
            unwritten[self._start + self._used] = _END
            self._start += self._file_bytes
            self._used = 0
        position = self._start + self._used
        unwritten[position] = (
            EXT_UNIT.pack(size, tags_code, message.store_timestamp_ms, len(bit_map)) + bit_map
        )
        self._used += size
        return ADDRESS_OF_0 + position

    def write_out(self) -> None:
        """Write all units into the files. Raises OSError: those not written stay in memory; blocks."""
        unwritten = self._ext.unwritten
        for position in list(unwritten):
            start = position - position % self._file_bytes
            self._file_at(start).write(position - start, unwritten[position])
            del unwritten[position]

    def flush(self) -> None:
        """Wait until everything that was written is on disk; for any thread. Raises OSError; blocks."""
        for file in list(self._unflushed):
            self._unflushed.pop(file, None)
            file.flush()

    def _file_at(self, start: int) -> OpenFile:
        """The file that begins at a position, which may have to be created; its next flush is noted."""
        if self._file is None or self._file[0] != start:
            folder = self._ext.folder
            folder.mkdir(parents=True, exist_ok=True)
            file = OpenFile(folder / file_name(start), os.O_RDWR | os.O_CREAT)
            # Full size, without using disk space: Apache's broker refuses shorter files.
            file.resize(self._file_bytes)
            self._resources.new_folders.update((folder, *list(folder.parents)[:3]))
            self._file = (start, file)
        file = self._file[1]
        self._unflushed[file] = None
        self._resources.ext_to_flush[self] = None
        return file
