"""The commit log: all messages of a broker, one behind the other, in files of fixed size.

(Apache RocketMQ 5.3.3, CommitLog and MappedFileQueue.)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Final

from ..errors import StoreDamaged
from .mapped_file import MappedFile, file_at, file_name, open_files
from .record import BLANK_BYTES, MIN_RECORD_BYTES, RecordSummary, pack_blank, parse_record, store_timestamp_at

_RESERVE_STEP_BYTES: Final = 32 * 1024 * 1024


# Called on the appending thread with the log and its last file; has to return at once.
Preallocate = Callable[["CommitLog", MappedFile], None]


class CommitLog:
    """Appended to by one thread; what has been appended can be read at once.

    The other threads: one makes room ahead (`prepare_next`), one flushes.
    """

    __slots__ = (
        "_file_bytes",
        "_first_start",
        "_next",
        "_preallocate",
        "_preparing",
        "current",
        "entries_flushed_to",
        "files",
        "folder",
    )

    def __init__(self, folder: Path, file_bytes: int, preallocate: Preallocate | None = None) -> None:
        """`preallocate` is called, often, when the appends come close to the end of the reserved space."""
        self.folder = folder
        self._file_bytes = file_bytes
        self._first_start = 0
        self._preallocate = preallocate
        self._next: MappedFile | None = None  # made ahead, behind the current one
        self._preparing = Lock()
        # Up to here queue entries are on the disk; kept by who flushes them.
        self.entries_flushed_to = sys.maxsize
        self.files: list[MappedFile] = []
        self.current: MappedFile | None = None

    def load(self) -> None:
        """Open the files that are there; recovery finds out where the last one ends. Raises StoreDamaged."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.files = open_files(
            self.folder,
            self._file_bytes,
            step_bytes=_RESERVE_STEP_BYTES,
            advice="set mappedFileSizeCommitLog to the size that this store was made with",
        )
        for before, after in pairwise(self.files):
            if after.start != before.start + before.size:
                missing = file_name(before.start + before.size)
                raise StoreDamaged(
                    f"{self.folder} lacks the file {missing} before {after.path.name}: put it back, or "
                    f"move the files up to {before.path.name} away to go on without their messages"
                )
        self._files_changed()

    @property
    def min_offset(self) -> int:
        """Where the first file begins."""
        return self._first_start

    @property
    def max_offset(self) -> int:
        """Where the next record goes."""
        return 0 if self.current is None else self.current.start + self.current.wrote

    @property
    def largest_record_bytes(self) -> int:
        """What fits a file, beside the blank that ends it."""
        return self._file_bytes - BLANK_BYTES

    def file_for_append(self, size: int) -> MappedFile:
        """The file that takes `size` bytes at its `wrote` position. Raises OSError where the disk is full.

        `size` is `largest_record_bytes` at most.
        """
        file = self.current
        if file is None:
            file = self._roll(0)
        elif file.wrote + size + BLANK_BYTES > file.size:
            next_file = self._prepare_next(file, size)
            position = file.wrote
            # A file that ends with its blank already: the broker stopped before the next one was there.
            if position < file.size:
                file.reserve(position + BLANK_BYTES)
                file.map[position : position + BLANK_BYTES] = pack_blank(file.size - position)
                file.wrote = file.size
            self._go_on_in(next_file)
            file = next_file
        until = file.wrote + size
        if until > file.preallocate_at:
            if until > file.reserved:
                file.reserve(until)
            if self._preallocate is not None:
                self._preallocate(self, file)
        return file

    # --- as bytes: what a master sends and a replica appends ---

    def get_data(self, offset: int, max_bytes: int) -> bytes | None:
        """What stands in the log from `offset` on, up to the end of its file; None where there is nothing."""
        file = self.file_of(offset)
        if file is None or offset - file.start >= file.wrote:
            return None
        position = offset - file.start
        return file.map[position : min(file.wrote, position + max_bytes)]

    def append_data(self, offset: int, records: bytes) -> None:
        """Append whole records that stand at `offset` in another log: this one has to end there.

        They fit the rest of one file. Raises ValueError where they do not, or do not follow; OSError where
        the disk is full; nothing was appended then.
        """
        if not self.files:
            self._roll(offset - offset % self._file_bytes, wrote=offset % self._file_bytes)
        file = self.current
        assert file is not None
        if offset != self.max_offset:
            raise ValueError(f"the log ends at {self.max_offset}, bytes of {offset} do not follow")
        if file.wrote == file.size:
            file = self._prepare_next(file, len(records))
            self._go_on_in(file)
        until = file.wrote + len(records)
        if until > file.size:
            raise ValueError(f"{len(records)} bytes do not fit the file of {offset}: it ends at {file.size}")
        file.reserve(until)
        file.append(records)

    def next_file_offset(self, offset: int) -> int:
        """Where the file behind that of `offset` begins."""
        return offset - offset % self._file_bytes + self._file_bytes

    # --- records ---

    def file_of(self, offset: int) -> MappedFile | None:
        """The file that an offset is in."""
        return file_at(self.files, offset)

    def read(self, offset: int, size: int) -> bytes | None:
        """The bytes of one record, or of several that stand one behind the other in one file."""
        file = self.file_of(offset)
        if file is None:
            return None
        position = offset - file.start
        if position + size > file.wrote:
            return None
        return file.map[position : position + size]

    def store_timestamp(self, offset: int) -> int:
        """When the record at `offset` was stored, in ms; -1 if it is not there. Raises OSError; blocks."""
        file = self.file_of(offset)
        if file is None:
            return -1
        position = offset - file.start
        if file.descriptor < 0 or position + MIN_RECORD_BYTES > file.wrote:
            return -1
        # Not through the mapping: a page that is not in memory would hold up all threads.
        return store_timestamp_at(os.pread(file.descriptor, MIN_RECORD_BYTES, position), 0)

    def record_at(self, offset: int) -> RecordSummary | None:
        """The record that begins at `offset`, if a sound one does; its body's CRC is checked."""
        file = self.file_of(offset)
        if file is None:
            return None
        return parse_record(file.map, offset - file.start, file.start)

    def cut(self, offset: int) -> None:
        """Make `offset` the end: later files are removed, the rest of its file becomes zero."""
        while self.files and self.files[-1].start > offset:
            self.files.pop().delete()
        if self.files:
            last = self.files[-1]
            last.cut(offset - last.start)
        self._files_changed()

    # --- cleaning ---

    @property
    def oldest_file(self) -> Path | None:
        """The first file, if it may be removed: it is not written to any more, and all of it is flushed.

        The entries of its messages as well: without file and entries nothing would tell of their offsets.
        """
        first = self.files[0] if self.files else None
        if first is None or first is self.current or first.flushed < first.wrote:
            return None
        if first.start + first.size > self.entries_flushed_to:
            return None
        return first.path

    @property
    def oldest_waits_for_flush(self) -> bool:
        """Whether the first file may be removed as soon as it and its messages' entries are on the disk."""
        return len(self.files) > 1 and self.oldest_file is None

    def remove_oldest(self) -> None:
        """Begin with the second file from now on; who reads the first one goes on reading it.

        The file itself is the caller's to delete.
        """
        # Another list: threads that look something up in the one before find what they look for.
        self.files = self.files[1:]
        self._files_changed()

    # --- on the disk ---

    def flush(self) -> int:
        """Write to the disk what was appended; blocks. Returns the offset up to which all is there.

        One thread at a time.
        """
        for file in reversed(self._not_flushed()):
            file.flush()
        return self.flushed_offset

    @property
    def flushed_offset(self) -> int:
        """Up to here all is on the disk."""
        end = self.max_offset  # asked first: there may be an append while the files are looked at
        files = self._not_flushed()
        return files[-1].start + files[-1].flushed if files else end

    @property
    def unflushed_bytes(self) -> int:
        """How much is not on the disk yet."""
        return self.max_offset - self.flushed_offset

    def _not_flushed(self) -> list[MappedFile]:
        """The files with news, the last one first: all others are behind them."""
        found: list[MappedFile] = []
        for file in reversed(self.files.copy()):
            if file.flushed < file.wrote:
                found.append(file)
            elif file is not self.current:
                break
        return found

    # --- room ahead ---

    def prepare_next(self, file: MappedFile, room: Callable[[MappedFile], None]) -> None:
        """Make the file behind `file`, with `room`, in a thread, while `file` is written. Raises OSError."""
        with self._preparing:
            if self._next is not None or self.current is not file:
                return
            self._next = self._new_file(file.start + file.size, room)

    def drop_next(self) -> None:
        """Remove the file that was made ahead and has not been needed."""
        with self._preparing:
            if self._next is not None:
                self._next.delete()
                self._next.close()
                self._next = None

    def close(self) -> None:
        """Let the files go."""
        self.drop_next()
        for file in self.files:
            file.close()
        self.files.clear()
        self._files_changed()

    # --- inside ---

    def _new_file(self, start: int, room: Callable[[MappedFile], None]) -> MappedFile:
        """A file with room in it, or none at all. Raises OSError."""
        file = MappedFile(self.folder / file_name(start), self._file_bytes, step_bytes=_RESERVE_STEP_BYTES)
        # One of that name may be left of an attempt that failed: its name may not be on the disk either.
        file.mark_unflushed()
        try:
            room(file)
        except OSError:
            file.delete()
            raise
        return file

    def _prepare_next(self, file: MappedFile, size: int) -> MappedFile:
        """The next file with room for a record, made before the current one is closed by a blank.

        Until it is the current one it stays `_next`: the thread that makes room would make it a second time,
        and write zeros over what is appended to it.
        """
        with self._preparing:
            if self._next is None:
                self._next = self._new_file(file.start + file.size, lambda new: new.reserve(size))
            else:
                self._next.reserve(size)
            return self._next

    def _go_on_in(self, following: MappedFile) -> None:
        self.files.append(following)
        self._files_changed()
        self._next = None  # last of all: `prepare_next` looks at both

    def _roll(self, start: int, wrote: int = 0) -> MappedFile:
        file = self._new_file(start, lambda new: new.reserve(wrote + BLANK_BYTES))
        file.wrote = file.flushed = wrote
        self.files.append(file)
        self._files_changed()
        return file

    def _files_changed(self) -> None:
        self._first_start = self.files[0].start if self.files else 0
        self.current = self.files[-1] if self.files else None
