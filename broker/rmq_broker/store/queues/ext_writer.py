"""Consume queues whose entries have a bit map each, in extension files; `extension.py` reads those.

A bit map only spares work: it says whose filters cannot have taken a message. Where one is missing the
message itself is looked at, so that a message without one is entered as if there were no such files.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from ..log.mapped_file import file_name, list_files
from .consume_queue import PLACEHOLDER_SIZE, QUEUE_ENTRY, ConsumeQueue
from .descriptors import OpenFile, QueueSupport
from .extension import ADDRESS_OF_0, EXT_UNIT, ConsumeQueueExt

log = logging.getLogger("rmq.store")

# Stands where the units of a file end (ConsumeQueueExt.fullFillToEnd), and has to have room.
_END: Final = b"\xff\xff"
_END_ROOM_BYTES: Final = 4
_MOST_UNIT_BYTES: Final = 32767


class Judgement(NamedTuple):
    """Of one message: when it was stored, and the map of the filters that took it."""

    store_timestamp_ms: int
    bit_map: bytes


# Topic, physical offset and size of a message: what is known of it, None where nobody filters the topic.
Judge = Callable[[str, int, int], Judgement | None]


class ExtWriter:
    """Appends to the extension files of one queue; belongs to the thread that appends to the queue.

    What an earlier run has written is left alone: its end could only be found by reading it. A new run begins
    a new file, which Apache's broker takes for the next one (ConsumeQueueExt.recover).
    """

    def __init__(self, folder: Path, file_bytes: int, support: QueueSupport) -> None:
        self._folder = folder
        self._file_bytes = file_bytes
        self._support = support
        self._file: OpenFile | None = None
        self._start = -1
        self._wrote = 0
        self._unflushed: dict[OpenFile, None] = {}

    def append(self, tags_code: int, judgement: Judgement) -> int | None:
        """Write a unit; its address, None for one that is too large. Raises OSError."""
        bit_map = judgement.bit_map
        size = EXT_UNIT.size + len(bit_map)
        if size > min(_MOST_UNIT_BYTES, self._file_bytes - _END_ROOM_BYTES):
            return None
        if self._file is None or size > self._file_bytes - self._wrote - _END_ROOM_BYTES:
            self._next_file()
        file = self._file
        assert file is not None
        unit = EXT_UNIT.pack(size, tags_code, judgement.store_timestamp_ms, len(bit_map)) + bit_map
        os.pwrite(file.number, unit, self._wrote)
        self._note(file)
        position = self._start + self._wrote
        self._wrote += size
        return ADDRESS_OF_0 + position

    def flush(self) -> None:
        """Wait until what was written is on the disk. In any thread; raises OSError; blocks."""
        for file in list(self._unflushed):
            self._unflushed.pop(file, None)
            file.flush()

    def _next_file(self) -> None:
        if self._file is not None:
            os.pwrite(self._file.number, _END, self._wrote)
            start = self._start + self._file_bytes
        else:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._support.new_folders.update((self._folder, *list(self._folder.parents)[:3]))
            files = list_files(self._folder)
            start = int(files[-1].name) + self._file_bytes if files else 0
        file = OpenFile(self._folder / file_name(start), os.O_RDWR | os.O_CREAT)
        # Of full size, without taking room on the disk: Apache's broker refuses shorter ones.
        os.truncate(file.number, self._file_bytes)
        self._support.new_folders.add(self._folder)
        self._file, self._start, self._wrote = file, start, 0

    def _note(self, file: OpenFile) -> None:
        self._unflushed[file] = None
        self._support.ext_to_flush[self] = None


class ExtendedConsumeQueue(ConsumeQueue):
    """A queue that has each message judged before it is entered."""

    __slots__ = ("_ext_file_bytes", "_ext_folder", "_judge", "_writer")

    def __init__(
        self,
        folder: Path | str,
        topic: str,
        queue_id: int,
        file_bytes: int,
        support: QueueSupport,
        ext: tuple[Path, int, Judge],
    ) -> None:
        """`ext`: the folder of the queue's extension files, their size, and who judges."""
        super().__init__(folder, topic, queue_id, file_bytes, support)
        self._ext_folder, self._ext_file_bytes, self._judge = ext
        self._writer: ExtWriter | None = None

    def put(
        self, physical_offset: int, size: int, tags_code: int, store_timestamp_ms: int = 0, messages: int = 1
    ) -> None:
        """Append one entry."""
        code = self._extended(physical_offset, size, tags_code)
        super().put(physical_offset, size, code, store_timestamp_ms, messages)

    def put_many(self, entries: bytes) -> None:
        """Append entries that are packed one behind the other."""
        super().put_many(
            b"".join(
                [
                    QUEUE_ENTRY.pack(offset, size, self._extended(offset, size, tags_code))
                    for offset, size, tags_code in QUEUE_ENTRY.iter_unpack(entries)
                ]
            )
        )

    def delete(self) -> None:
        """Remove the files and their folder. Raises OSError."""
        self._writer = None
        super().delete()

    def _extended(self, physical_offset: int, size: int, tags_code: int) -> int:
        """What stands in the entry for the tags code: the address of a unit, where there is one."""
        if size == PLACEHOLDER_SIZE:
            return tags_code
        try:
            judgement = self._judge(self.topic, physical_offset, size)
        except Exception:  # the message stands in the log already: it is to be entered, whatever it is
            log.exception(
                "%s/%d: the message at %d gets no bit map", self.topic, self.queue_id, physical_offset
            )
            return tags_code
        if judgement is None:
            return tags_code
        if self._writer is None:
            self._writer = ExtWriter(self._ext_folder, self._ext_file_bytes, self._support)
        if self.ext is None:
            self.ext = ConsumeQueueExt(self._ext_folder, self._ext_file_bytes, self._support)
        try:
            address = self._writer.append(tags_code, judgement)
        except OSError as error:
            log.warning("%s/%d: a message gets no bit map: %s", self.topic, self.queue_id, error)
            return tags_code
        return tags_code if address is None else address
