"""The commit log: all messages of a broker in the order of their arrival, in files of fixed size.

(Apache RocketMQ 5.3.3, CommitLog and MappedFileQueue.)
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Final, Protocol

from ..errors import LogBusy, StoreDamaged
from .mapped_file import MappedFile, file_at, file_name, open_files
from .record import BLANK_BYTES, MIN_RECORD_BYTES, RecordSummary, pack_blank, parse_record, store_timestamp_at
from .space import LogSpace

_RESERVE_STEP_BYTES: Final = 32 * 1024 * 1024
# Space that is left to small appends while the disk is slow: at most this, and this part of a file. An append
# is small up to this part of the space.
_MOST_SPARE_BYTES: Final = 1024 * 1024
_SPARE_PART: Final = 8
_SMALL_PART: Final = 8


class Preallocator(Protocol):
    """Allocates space in threads (`LogPreallocator`). All methods return at once."""

    @property
    def is_running(self) -> bool:
        """Whether requests are answered."""

    def request(self, commit_log: CommitLog, file: MappedFile | None, until: int) -> None:
        """Allocate space behind the position `until` of the log's last file; None: the log has no file."""

    def refusal(self) -> OSError | LogBusy:
        """Return why there is no space: the error of the disk, or that the disk is slow."""


class CommitLog:
    """Appended to by one thread; any thread can read an appended record at once.

    One other thread preallocates (`prepare_next`), and one flushes.
    """

    __slots__ = (
        "_file_bytes",
        "_first_start",
        "_may_wait",
        "_next",
        "_preallocator",
        "_preparing",
        "_spare_bytes",
        "current",
        "entries_flushed_to",
        "files",
        "folder",
        "space",
    )

    def __init__(
        self,
        folder: Path,
        file_bytes: int,
        preallocator: Preallocator | None = None,
        *,
        may_wait: bool = True,
    ) -> None:
        """`preallocator` is asked when the appends come close to the end of the reserved space.

        `may_wait`: an append that finds no space allocates it, and waits for the disk. Otherwise it is
        refused while the preallocator runs.
        """
        self.folder = folder
        self.space = LogSpace()
        self._file_bytes = file_bytes
        self._spare_bytes = min(_MOST_SPARE_BYTES, file_bytes // _SPARE_PART)
        self._first_start = 0
        self._preallocator = preallocator
        self._may_wait = may_wait
        self._next: MappedFile | None = None  # the file after the current one, created in advance
        self._preparing = Lock()
        # The log offset up to which queue entries are on disk; kept by the flusher.
        self.entries_flushed_to = sys.maxsize
        self.files: list[MappedFile] = []
        self.current: MappedFile | None = None

    def load(self) -> None:
        """Open the existing files; recovery finds the end of the last one. Raises StoreDamaged, OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.files = open_files(
            self.folder,
            self._file_bytes,
            step_bytes=_RESERVE_STEP_BYTES,
            advice="set mappedFileSizeCommitLog to the size that this store was created with",
        )
        for before, after in pairwise(self.files):
            if after.start != before.start + before.size:
                missing = file_name(before.start + before.size)
                raise StoreDamaged(
                    f"{self.folder} lacks the file {missing} before {after.path.name}: put it back, or "
                    f"move the files up to {before.path.name} away to continue without their messages"
                )
        self._files_changed()

    @property
    def min_offset(self) -> int:
        """The offset where the first file begins."""
        return self._first_start

    @property
    def max_offset(self) -> int:
        """The offset of the next record."""
        return 0 if self.current is None else self.current.start + self.current.wrote

    @property
    def largest_record_bytes(self) -> int:
        """The size of the largest record that fits a file, with the blank that ends the file."""
        return self._file_bytes - BLANK_BYTES

    def file_for_append(self, size: int) -> MappedFile:
        """Return the file to which `size` bytes can be appended.

        `size` is at most `largest_record_bytes`. Raises OSError if the disk is full, and LogBusy if the log
        may not wait for the disk.
        """
        file = self.current
        if file is None or file.wrote + size + BLANK_BYTES > file.size:
            file = self._roll_over(file, size)
        until = file.wrote + size
        if until > file.preallocate_at:
            self._take_space(file, until)
        return file

    # --- bytes, for replication ---

    def get_data(self, offset: int, max_bytes: int) -> bytes | None:
        """Return bytes from `offset` on, at most to the end of their file; None if there are none.

        Raises OSError; blocks.
        """
        file = self.file_of(offset)
        if file is None or offset - file.start >= file.wrote:
            return None
        position = offset - file.start
        return file.read(position, min(file.wrote - position, max_bytes))

    def append_data(self, offset: int, records: bytes) -> None:
        """Append complete records of another log that begin at `offset`, where this log has to end.

        They have to fit the rest of one file. Raises ValueError if they do not fit or do not follow, OSError
        if the disk is full. Nothing is appended then.
        """
        if not self.files:
            self.drop_next()
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
        if until > file.preallocate_at:
            self._wait_for_space(file, until)
        file.append(records)

    def next_file_offset(self, offset: int) -> int:
        """Return the offset where the file after that of `offset` begins."""
        return offset - offset % self._file_bytes + self._file_bytes

    # --- records ---

    def file_of(self, offset: int) -> MappedFile | None:
        """Return the file that holds an offset."""
        return file_at(self.files, offset)

    def read(self, offset: int, size: int) -> bytes | None:
        """Return the bytes of one record, or of adjacent records of one file; None if they do not exist.

        Raises OSError; blocks.
        """
        file = self.file_of(offset)
        if file is None:
            return None
        position = offset - file.start
        if position + size > file.wrote:
            return None
        return file.read(position, size)

    def store_timestamp(self, offset: int) -> int:
        """Return a record's store time in ms; -1 if none begins at `offset`. Raises OSError; blocks."""
        file = self.file_of(offset)
        if file is None:
            return -1
        position = offset - file.start
        if not file.is_open or position + MIN_RECORD_BYTES > file.wrote:
            return -1
        return store_timestamp_at(file.read(position, MIN_RECORD_BYTES), 0)

    def record_at(self, offset: int) -> RecordSummary | None:
        """Return the valid record that begins at `offset`, with its CRC checked; None if there is none.

        Raises OSError; blocks.
        """
        return parse_record(self.raw_record(offset), 0, offset)

    def raw_record(self, offset: int) -> bytes:
        """Return the bytes of the record that begins at `offset`, valid or not; none if there cannot be one.

        Raises OSError; blocks.
        """
        file = self.file_of(offset)
        if file is None or not file.is_open:
            return b""
        position = offset - file.start
        size = int.from_bytes(file.read(position, 4), "big")
        if size < MIN_RECORD_BYTES or position + size > file.wrote:
            return b""
        return file.read(position, size)

    def record_boundaries(self, offset: int) -> tuple[int, int]:
        """Return where the record that has the byte `offset` begins, and where the one before it begins.

        The latter is -1 for the first record of a file. Raises OSError, ValueError for an offset outside the
        log; blocks.
        """
        file = self.file_of(offset)
        if file is None or offset - file.start >= file.wrote:
            raise ValueError(f"{offset} is not in the log, which ends at {self.max_offset}")
        before, begin, position = -1, 0, 0
        while position <= offset - file.start:
            before, begin = begin if position else -1, position
            size = int.from_bytes(file.read(position, 4), "big")
            if size < BLANK_BYTES:
                raise ValueError(f"no record begins at {file.start + position}")
            position += size
        return file.start + begin, file.start + before if before >= 0 else -1

    def cut(self, offset: int) -> None:
        """Make `offset` the end: remove later files, and clear the rest of its file."""
        while self.files and self.files[-1].start > offset:
            self.files.pop().delete()
        if self.files:
            last = self.files[-1]
            last.cut(offset - last.start)
        self._files_changed()

    # --- cleaning ---

    @property
    def oldest_file(self) -> Path | None:
        """The first file, if it may be deleted: it is not the current one, and all of it is flushed.

        The entries of its messages have to be flushed, too: without file and entries, a crash would lose
        their queue offsets.
        """
        first = self.files[0] if self.files else None
        if first is None or first is self.current or first.flushed < first.wrote:
            return None
        if first.start + first.size > self.entries_flushed_to:
            return None
        return first.path

    @property
    def oldest_waits_for_flush(self) -> bool:
        """Whether the first file may be deleted as soon as it and its messages' entries are flushed."""
        return len(self.files) > 1 and self.oldest_file is None

    def remove_oldest(self) -> None:
        """Let the log begin with the second file. Readers of the first file can go on reading it.

        The caller deletes the file itself.
        """
        # A new list: threads that use the old list still find the file.
        self.files = self.files[1:]
        self._files_changed()

    # --- flushing ---

    def flush(self) -> int:
        """Flush all appended records, and return the offset up to which the log is on disk.

        One thread at a time. Raises OSError; blocks.
        """
        for file in reversed(self._not_flushed()):
            file.flush()
        return self.flushed_offset

    @property
    def flushed_offset(self) -> int:
        """The offset up to which the log is on disk."""
        end = self.max_offset  # read first: an append may come between this and the files
        files = self._not_flushed()
        return files[-1].start + files[-1].flushed if files else end

    @property
    def unflushed_bytes(self) -> int:
        """Bytes that are not on disk yet."""
        return self.max_offset - self.flushed_offset

    def _not_flushed(self) -> list[MappedFile]:
        """The files with unflushed records, the last file first."""
        found: list[MappedFile] = []
        for file in reversed(self.files.copy()):
            if file.flushed < file.wrote:
                found.append(file)
            elif file is not self.current:
                break
        return found

    # --- preallocation ---

    @property
    def has_next(self) -> bool:
        """Whether the file after the current one exists."""
        return self._next is not None

    def prepare_next(self, file: MappedFile | None, allocate: Callable[[MappedFile], None]) -> None:
        """Create the file after `file`, with space from `allocate`, while `file` is written. Raises OSError.

        For the preallocating thread. None: create the first file.
        """
        with self._preparing:
            if self._next is not None or self.current is not file:
                return
            self._next = self._new_file(0 if file is None else file.start + file.size, allocate)

    def drop_next(self) -> None:
        """Remove the file that was created in advance and has not been used."""
        with self._preparing:
            if self._next is not None:
                self._next.delete()
                self._next.close()
                self._next = None

    def close(self) -> None:
        """Close the files."""
        self.drop_next()
        for file in self.files:
            file.close()
        self.files.clear()
        self._files_changed()

    # --- inside ---

    def _new_file(self, start: int, allocate: Callable[[MappedFile], None]) -> MappedFile:
        """Create a file with space from `allocate`; leave none if that fails. Raises OSError."""
        file = MappedFile(self.folder / file_name(start), self._file_bytes, step_bytes=_RESERVE_STEP_BYTES)
        # A file of that name may be left from a failed attempt, and its name may not be on disk either.
        file.mark_unflushed()
        try:
            allocate(file)
        except OSError:
            file.delete()
            raise
        return file

    def _roll_over(self, file: MappedFile | None, size: int) -> MappedFile:
        """Close `file` with a blank, and return the next one. Raises OSError, LogBusy."""
        if self._waits_for_disk:
            following = self._prepare_next(file, size)
        else:
            prepared = self._next
            end = 0 if file is None else file.wrote
            if prepared is None or (file is not None and min(end + BLANK_BYTES, file.size) > file.reserved):
                raise self._refusal(file, self._file_bytes)
            following = prepared
        if file is not None:
            position = file.wrote
            # Otherwise the file ends with its blank already: the broker stopped before the next one existed.
            if position < file.size:
                if position + BLANK_BYTES > file.reserved:
                    file.reserve(position + BLANK_BYTES)
                file.map[position : position + BLANK_BYTES] = pack_blank(file.size - position)
                file.wrote = file.size
        self._go_on_in(following)
        return following

    def _take_space(self, file: MappedFile, until: int) -> None:
        """Have space for the bytes before `until`, and request more. Raises OSError, LogBusy."""
        if self._waits_for_disk:
            self._wait_for_space(file, until)
            return
        preallocator = self._preallocator
        is_last = file.reserved < file.size or self._next is None
        takes_spare = is_last and until + self._spare_bytes > file.reserved
        is_small = (until - file.wrote) * _SMALL_PART <= self._spare_bytes
        if until > file.reserved or (takes_spare and not is_small):
            raise self._refusal(file, until)
        assert preallocator is not None
        preallocator.request(self, file, until)
        if takes_spare:
            self.space.is_short = isinstance(preallocator.refusal(), LogBusy)

    def _wait_for_space(self, file: MappedFile, until: int) -> None:
        """Allocate space for the bytes before `until` if there is none, and request more. Raises OSError."""
        if until > file.reserved:
            file.reserve(until)
        if self._preallocator is not None:
            self._preallocator.request(self, file, until)

    @property
    def _waits_for_disk(self) -> bool:
        return self._may_wait or self._preallocator is None or not self._preallocator.is_running

    def _refusal(self, file: MappedFile | None, until: int) -> OSError | LogBusy:
        """Request space, and return the error of an append that finds none."""
        assert self._preallocator is not None
        self._preallocator.request(self, file, until)
        refusal = self._preallocator.refusal()
        self.space.is_short = isinstance(refusal, LogBusy)
        return refusal

    def _prepare_next(self, file: MappedFile | None, size: int) -> MappedFile:
        """Return the next file with space for a record, created before a blank closes the current file.

        It stays in `_next` until it is the current file. Otherwise the preallocating thread would create it
        a second time, and write zeros over appended records.
        """
        with self._preparing:
            if self._next is None:
                start = 0 if file is None else file.start + file.size
                self._next = self._new_file(start, partial(_reserve, size))
            else:
                self._next.reserve(size)
            return self._next

    def _go_on_in(self, following: MappedFile) -> None:
        self.files.append(following)
        self._files_changed()
        self._next = None  # last of all: `prepare_next` looks at both

    def _roll(self, start: int, wrote: int = 0) -> MappedFile:
        file = self._new_file(start, partial(_reserve, wrote + BLANK_BYTES))
        file.wrote = file.flushed = wrote
        self.files.append(file)
        self._files_changed()
        return file

    def _files_changed(self) -> None:
        self._first_start = self.files[0].start if self.files else 0
        self.current = self.files[-1] if self.files else None


def _reserve(until: int, file: MappedFile) -> None:
    file.reserve(until)
