"""Writing the extension files of a consume queue; `extension.py` reads them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

from ..log.mapped_file import file_name, list_files
from .descriptors import OpenFile
from .extension import ADDRESS_OF_0, EXT_UNIT
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
    """Appends to the extension files of one queue; belongs to the thread that appends to the queue.

    Files of earlier runs are not continued, because their ends could be found only by reading them. Each run
    begins a new file, which Apache's broker takes for the next one (ConsumeQueueExt.recover).
    """

    def __init__(self, folder: Path, file_bytes: int, resources: QueueResources) -> None:
        self._folder = folder
        self._file_bytes = file_bytes
        self._resources = resources
        self._file: OpenFile | None = None
        self._start = -1
        self._wrote = 0
        self._unflushed: dict[OpenFile, None] = {}

    def append(self, tags_code: int, message: MessageBitMap) -> int | None:
        """Write a unit and return its address; None if it is too large. Raises OSError."""
        bit_map = message.bit_map
        size = EXT_UNIT.size + len(bit_map)
        if size > min(_MOST_UNIT_BYTES, self._file_bytes - _END_ROOM_BYTES):
            return None
        if self._file is None or size > self._file_bytes - self._wrote - _END_ROOM_BYTES:
            self._next_file()
        file = self._file
        assert file is not None
        unit = EXT_UNIT.pack(size, tags_code, message.store_timestamp_ms, len(bit_map)) + bit_map
        file.write(self._wrote, unit)
        self._note(file)
        position = self._start + self._wrote
        self._wrote += size
        return ADDRESS_OF_0 + position

    def flush(self) -> None:
        """Wait until everything that was written is on disk; for any thread. Raises OSError; blocks."""
        for file in list(self._unflushed):
            self._unflushed.pop(file, None)
            file.flush()

    def _next_file(self) -> None:
        if self._file is not None:
            self._file.write(self._wrote, _END)
            start = self._start + self._file_bytes
        else:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._resources.new_folders.update((self._folder, *list(self._folder.parents)[:3]))
            files = list_files(self._folder)
            start = int(files[-1].name) + self._file_bytes if files else 0
        file = OpenFile(self._folder / file_name(start), os.O_RDWR | os.O_CREAT)
        # Full size, without using disk space: Apache's broker refuses shorter files.
        file.resize(self._file_bytes)
        self._resources.new_folders.add(self._folder)
        self._file, self._start, self._wrote = file, start, 0

    def _note(self, file: OpenFile) -> None:
        self._unflushed[file] = None
        self._resources.ext_to_flush[self] = None
