"""The commit log: all messages of a broker, one behind the other, in files of fixed size.

(Apache RocketMQ 5.3.3, CommitLog and MappedFileQueue.)
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Final

from .errors import StoreDamaged
from .mapped_file import MappedFile, file_name, open_files
from .record import (
    BLANK_BYTES,
    MIN_RECORD_BYTES,
    RecordSummary,
    pack_blank,
    parse_record,
    store_timestamp_at,
)

_RESERVE_STEP_BYTES: Final = 32 * 1024 * 1024


class CommitLog:
    """Appended to by one thread; what has been appended can be read at once."""

    __slots__ = ("_file_bytes", "_first_start", "_folder", "current", "files")

    def __init__(self, folder: Path, file_bytes: int) -> None:
        self._folder = folder
        self._file_bytes = file_bytes
        self._first_start = 0
        self.files: list[MappedFile] = []
        self.current: MappedFile | None = None

    def load(self) -> None:
        """Open the files that are there; recovery finds out where the last one ends. Raises StoreDamaged."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self.files = open_files(
            self._folder,
            self._file_bytes,
            step_bytes=_RESERVE_STEP_BYTES,
            advice="set mappedFileSizeCommitLog to the size that this store was made with",
        )
        for before, after in pairwise(self.files):
            if after.start != before.start + before.size:
                missing = file_name(before.start + before.size)
                raise StoreDamaged(
                    f"{self._folder} lacks the file {missing} before {after.path.name}: put it back, or "
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

    def room_for(self, size: int) -> MappedFile:
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
            self.files.append(next_file)
            self._files_changed()
            file = next_file
        until = file.wrote + size
        if until > file.reserved:
            file.reserve(until)
        return file

    def read(self, offset: int, size: int) -> bytes | None:
        """The bytes of one record, or of several that stand one behind the other in one file."""
        index = (offset - self._first_start) // self._file_bytes
        if not 0 <= index < len(self.files):
            return None
        file = self.files[index]
        position = offset - file.start
        if position + size > file.wrote:
            return None
        return file.map[position : position + size]

    def store_timestamp(self, offset: int) -> int:
        """When the record at `offset` was stored, in ms; -1 if it is not there."""
        index = (offset - self._first_start) // self._file_bytes
        if not 0 <= index < len(self.files):
            return -1
        file = self.files[index]
        position = offset - file.start
        if position + MIN_RECORD_BYTES > file.wrote:
            return -1
        return store_timestamp_at(file.map, position)

    def record_at(self, offset: int) -> RecordSummary | None:
        """The record that begins at `offset`, if a sound one does; its body's CRC is checked."""
        index = (offset - self._first_start) // self._file_bytes
        if not 0 <= index < len(self.files):
            return None
        file = self.files[index]
        return parse_record(file.map, offset - file.start, file.start)

    def cut(self, offset: int) -> None:
        """Make `offset` the end: later files are removed, the rest of its file becomes zero."""
        while self.files and self.files[-1].start > offset:
            self.files.pop().delete()
        if self.files:
            last = self.files[-1]
            last.cut(offset - last.start)
        self._files_changed()

    def flush(self) -> int:
        """Write to the disk what was appended; blocks. Returns the offset up to which all is there."""
        flushed = 0
        for file in list(self.files):
            if file.flushed < file.wrote or file is self.current:
                flushed = file.start + file.flush()
        return flushed

    @property
    def flushed_offset(self) -> int:
        """Up to here all is on the disk."""
        for file in self.files:
            if file.flushed < file.wrote:
                return file.start + file.flushed
        return self.max_offset

    def close(self) -> None:
        """Let the files go."""
        for file in self.files:
            file.close()
        self.files.clear()
        self._files_changed()

    def _open(self, path: Path) -> MappedFile:
        return MappedFile(path, self._file_bytes, step_bytes=_RESERVE_STEP_BYTES)

    def _prepare_next(self, file: MappedFile, size: int) -> MappedFile:
        """The next file with room for a record, made before the current one is closed by a blank."""
        following = self._open(self._folder / file_name(file.start + file.size))
        try:
            following.reserve(size)
        except OSError:
            following.delete()
            raise
        return following

    def _roll(self, start: int) -> MappedFile:
        file = self._open(self._folder / file_name(start))
        try:
            file.reserve(BLANK_BYTES)
        except OSError:
            file.delete()
            raise
        self.files.append(file)
        self._files_changed()
        return file

    def _files_changed(self) -> None:
        self._first_start = self.files[0].start if self.files else 0
        self.current = self.files[-1] if self.files else None
