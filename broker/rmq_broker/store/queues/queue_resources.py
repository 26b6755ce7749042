"""Resources that all queues of a store share: open files, locks, lists of queues to write and to flush."""

from __future__ import annotations

import contextlib
from collections import deque
from pathlib import Path
from threading import Lock
from typing import Final, Protocol

from .descriptors import DEFAULT_DESCRIPTORS, Descriptors, OpenFile, flush_file_system

# From this number of files on, the whole file system is flushed in one call: each flush of a single file is a
# commit of the file system's journal.
_MANY_FILES: Final = 100
_MAX_TAIL_BYTES: Final = 16 * 1024
_TAIL_BYTES_OF_ALL: Final = 32 * 1024 * 1024


class WritableQueue(Protocol):
    """A queue with entries in memory, as the flusher sees it."""

    @property
    def unwritten_bytes(self) -> int:
        """Bytes of entries that are in memory alone."""

    def write_out(self) -> bool:
        """Write the entries to the files; False if they have to stay in memory for now.

        Raises OSError: they stay in memory, to be tried again.
        """

    def flush_files(self) -> None:
        """Wait until everything that was written is on disk. Raises OSError; blocks."""

    def flushed_with_all(self) -> None:
        """The whole file system has been flushed."""


class FlushableExtension(Protocol):
    """The extension files of one queue, as the flusher sees them."""

    def flush(self) -> None:
        """Wait until everything that was written is on disk. Raises OSError; blocks."""


class QueueResources:
    """Shared by the queues of a store, which are written and flushed by one thread at a time."""

    def __init__(self, descriptors: int = DEFAULT_DESCRIPTORS) -> None:
        self.descriptors = Descriptors(descriptors)
        # Held for copies in memory; no thread waits for a disk while it holds this lock.
        self.memory = Lock()
        # Held while a queue's files are written or cut; acquired before `memory`.
        self.files = Lock()
        self.unwritten: deque[WritableQueue] = deque()  # queues with entries that are not in their files
        self.to_flush: dict[WritableQueue, None] = {}  # queues whose files are not on disk
        self.ext_to_flush: dict[
            FlushableExtension, None
        ] = {}  # flushed before the entries that refer to them
        self.new_folders: set[Path] = set()
        # How many bytes of the written entries each queue keeps in memory, too.
        self.kept_bytes = _MAX_TAIL_BYTES
        self.reads_without_waiting = True

    def share_memory(self, queues: int) -> None:
        """Limit the sum of the memory that the queues keep, by their number."""
        self.kept_bytes = min(_MAX_TAIL_BYTES, _TAIL_BYTES_OF_ALL // max(queues, 1))

    def flush_files(self, folder: Path) -> None:
        """Wait until all that was written is on disk, new names included. Raises OSError; blocks."""
        for ext in list(self.ext_to_flush):
            self.ext_to_flush.pop(ext, None)
            try:
                ext.flush()
            except BaseException:
                self.ext_to_flush[ext] = None
                raise
        queues = list(self.to_flush)
        if len(queues) + len(self.new_folders) > _MANY_FILES and flush_file_system(folder):
            for queue in queues:
                queue.flushed_with_all()
            self.new_folders.clear()
        else:
            for queue in queues:
                queue.flush_files()
            self._flush_folders()
        for queue in queues:
            self.to_flush.pop(queue, None)

    def _flush_folders(self) -> None:
        for folder in sorted(self.new_folders, reverse=True):
            with contextlib.suppress(FileNotFoundError):  # a topic that has been deleted meanwhile
                OpenFile(folder).flush(metadata=True)
            self.new_folders.discard(folder)
