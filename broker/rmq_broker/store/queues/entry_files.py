"""Entries of equal size in files of equal size, the newest of them in memory: the base of all consume queues.

Files are named by the position of their first byte and have their full size from the beginning (Apache
RocketMQ 5.3.3, MappedFileQueue). The flusher writes them with plain writes. An append only adds to a buffer:
it neither fails nor blocks, and an idle queue costs neither a mapping nor a descriptor. Entries that are not
in the files when the process dies are rebuilt from the commit log.
"""

from __future__ import annotations

import contextlib
import logging
import os
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, Final

from ..log.mapped_file import file_name, list_files
from .descriptors import OpenFile
from .entry_file import PLACEHOLDER_SIZE, Place, file_starts, place_of, truncate, used_part, wipe
from .queue_resources import QueueResources
from .topic_removal import TopicRemoval

log = logging.getLogger("rmq.store")

_WRITE_BYTES: Final = 1024 * 1024


class EntryFiles:
    """Positions are in bytes from the queue's beginning on.

    One thread appends and cuts, one other writes out and flushes, any thread reads.
    """

    entry_bytes: ClassVar[int]
    size_setting: ClassVar[str]

    __slots__ = (
        "_begin",
        "_file_bytes",
        "_first",
        "_flushed",
        "_folder",
        "_is_noted",
        "_is_retired",
        "_removal",
        "_resources",
        "_tail",
        "_tail_begin",
        "_token",
        "_written",
        "lost_files",
    )

    def __init__(self, folder: Path | str, file_bytes: int, resources: QueueResources | None = None) -> None:
        self.lost_files = False  # a file between others is missing: the queue has to be rebuilt
        self._folder = str(folder)  # there are many queues, and a Path takes five times as much memory
        self._file_bytes = file_bytes
        self._resources = QueueResources() if resources is None else resources
        self._begin = 0  # of the first file
        self._first: Place | None = None  # of the entry at position 0, once it is not in `_tail`
        self._tail = bytearray()  # the entries from `_tail_begin` on, written to files or not
        self._tail_begin = 0
        self._written = 0  # position up to which all entries are in the files
        self._flushed = 0  # position up to which all entries are on disk
        self._is_noted = False  # listed in `QueueResources.unwritten`
        self._is_retired = False  # the topic has been deleted
        self._removal: TopicRemoval | None = None  # of a deleted topic's files in the same folder
        self._token = object()

    def load(self) -> None:
        """Find the end of the entries in the files. Raises StoreDamaged, OSError; blocks."""
        starts = file_starts(Path(self._folder), self._file_bytes, self.size_setting)
        holes = [i for i, (a, b) in enumerate(pairwise(starts), 1) if b != a + self._file_bytes]
        if holes:
            log.error(
                "%s lacks the file before %s; the queue is rebuilt",
                self._folder,
                file_name(starts[holes[-1]]),
            )
            self.lost_files = True
            del starts[: holes[-1]]
        if not starts:
            return
        self._begin = starts[0]
        file = OpenFile(self._path(starts[-1]))
        used, newest = used_part(file, self.entry_bytes, self._file_bytes)
        while used == 0 and len(starts) > 1:
            self._remove_file(starts.pop())
            file = OpenFile(self._path(starts[-1]))
            used, newest = used_part(file, self.entry_bytes, self._file_bytes)
        end = starts[-1] + used
        self._set_end(end - len(newest), newest, end)
        self._flushed = end
        first = file.read(0, self.entry_bytes) if len(starts) == 1 and used else b""
        if starts[0] == 0:
            raw = first if len(starts) == 1 else OpenFile(self._path(0)).read(0, self.entry_bytes)
            self._first = place_of(raw) if raw else None
        self._loaded(first)

    # --- writing out ---

    @property
    def unwritten_bytes(self) -> int:
        """Bytes of entries in memory alone."""
        with self._resources.memory:
            return self._tail_begin + len(self._tail) - self._written

    def write_out(self) -> bool:
        """Write entries to the files; False if a deleted topic's files have to be removed first.

        Raises OSError: the entries stay in memory, to be tried again.
        """
        resources = self._resources
        with resources.files:
            if self._is_retired:
                self._is_noted = True  # messages that are being flushed may still be entered
                return True
            if self.has_removal:
                self._note_unwritten()
                return False
            self._is_noted = False  # listed in `QueueResources.unwritten`
            try:
                while (part := self._unwritten_part()) is not None:
                    resources.to_flush[self] = None
                    self._write_before_entries()
                    self._write(*part)
            except BaseException:
                self._note_unwritten()
                raise
            self._trim()
        return True

    def flush(self) -> None:
        """Write entries to the files, and wait until they are on disk. Raises OSError; blocks."""
        self.write_out()
        self._resources.flush_files(Path(self._folder))

    def flush_files(self) -> None:
        """Wait until the written entries are on disk. Raises OSError; blocks."""
        token, written = self._token, self._written
        start = max(self._flushed, self._begin)
        for file_start in range(start - start % self._file_bytes, written, self._file_bytes):
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                OpenFile(self._path(file_start)).flush()
        with self._resources.files:
            if token is self._token:
                self._flushed = max(written, self._flushed)

    def flushed_with_all(self) -> None:
        """The whole file system has been flushed."""
        self._flushed = self._written

    # --- correcting, in recovery ---

    def cut(self, log_end: int) -> None:
        """Drop the entries of messages that are not in the log before `log_end`.

        After a crash of the machine pages may be missing among the entries. Bytes that are no entry, and
        entries out of order, are dropped, too.
        """
        while (last := self._last_message()) is not None and not self._is_within(last, log_end):
            self._drop_last_entries(last, log_end)

    def reset_after_crash(self) -> None:
        """After a crash: clear the bytes behind the last entry, and have the next flush write everything."""
        with self._resources.files:
            in_file = self._written % self._file_bytes
            if in_file or self._written == self._begin:
                with contextlib.suppress(FileNotFoundError):
                    wipe(self._path(self._written - in_file), in_file, self._file_bytes)
            if self._written > self._begin:
                self._flushed = self._begin
                self._resources.to_flush[self] = None
                self._names_are_new()

    def write_again(self, log_offset: int) -> None:
        """Write the entries of messages from `log_offset` on into the files again. Raises OSError; blocks.

        The next flush includes them, because of `reset_after_crash`.
        """
        last = self._last_message()
        if last is None or self._place(last)[0] < log_offset:
            return
        position, end = self._first_position_from(log_offset), self._written
        with self._resources.files:
            while position < end:
                start = position - position % self._file_bytes
                until = min(end, start + self._file_bytes)
                OpenFile(self._path(start), os.O_RDWR).write_again(position - start, until - start)
                position = until

    # --- cleaning ---

    def delete_before(self, log_begin: int) -> int:
        """Let the queue begin with the first message that is still in the log; return how many files went.

        Files of earlier messages alone are removed, but never the last file. For any thread. Raises OSError.
        """
        self.advance_min(log_begin)
        removed = 0
        while self._begin + self._file_bytes <= min(self._min_position(), self._written - self.entry_bytes):
            start = self._begin
            self._begin = start + self._file_bytes
            self._remove_file(start)
            removed += 1
        return removed

    def advance_min(self, log_begin: int) -> None:
        """Raise `min_offset` to the first message that is still in the log."""
        raise NotImplementedError

    # --- life ---

    @property
    def has_removal(self) -> bool:
        """Whether the files of a deleted topic are still being removed from the queue's folder."""
        removal = self._removal
        if removal is None:
            return False
        if removal.is_done:
            self._removal = None
        return not removal.is_done

    def wait_for(self, removal: TopicRemoval) -> None:
        """Keep all entries in memory until the files of a deleted topic of this name are removed."""
        self._removal = removal

    def close(self) -> None:
        """Close the files; entries in memory alone are dropped."""
        self._resources.descriptors.forget(self._token)
        self._set_end(self._written, b"", self._written)

    def delete(self) -> None:
        """Remove the files and their folder. Raises OSError; blocks."""
        self._remove_all(0)
        folder = Path(self._folder)
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()

    # --- for the kinds of queues ---

    def _write_before_entries(self) -> None:
        """Write what the unwritten entries refer to. Raises OSError; blocks."""

    def _loaded(self, first: bytes) -> None:
        """The files have been loaded; `first`: the first entry, if it has been read."""
        raise NotImplementedError

    def _end_changed(self) -> None:
        """Entries at the end have been dropped."""
        raise NotImplementedError

    def _min_position(self) -> int:
        """The position of the queue's first entry."""
        raise NotImplementedError

    @property
    def _end(self) -> int:
        with self._resources.memory:
            return self._tail_begin + len(self._tail)

    def _note_unwritten(self) -> None:
        self._is_noted = True
        self._resources.unwritten.append(self)

    def _read(self, position: int, end: int) -> bytes:
        """Return the entries of a range, at most to the end of their file; fewer if not all exist.

        Raises OSError; blocks.
        """
        end = min(end, position - position % self._file_bytes + self._file_bytes)
        in_memory = self._read_memory(position, end)
        if in_memory is not None:
            return in_memory
        try:
            start, length = self._in_file(position, end)
            file = self._resources.descriptors.open((self._token, start), self._path(start))
        except FileNotFoundError:
            return b""  # removed meanwhile
        found = file.read(position - start, length)
        return found[: len(found) - len(found) % self.entry_bytes]

    def _read_now(self, position: int, end: int) -> bytes | None:
        """Read without blocking; None if the disk is needed."""
        end = min(end, position - position % self._file_bytes + self._file_bytes)
        in_memory = self._read_memory(position, end)
        if in_memory is not None:
            return in_memory
        resources = self._resources
        start, length = self._in_file(position, end)
        file = resources.descriptors.get((self._token, start))
        if file is None:
            return None
        if resources.reads_without_waiting:
            try:
                return file.read_without_waiting(position - start, length)
            except NotImplementedError:
                resources.reads_without_waiting = False
        return self._read(position, end)

    def _first_place(self) -> Place | None:
        """Offset and size of the first entry's record, if the queue begins at 0; does not block."""
        with self._resources.memory:
            if self._tail_begin == 0 and self._tail:
                return place_of(bytes(self._tail[: self.entry_bytes]))
            return self._first

    def _read_memory(self, position: int, end: int) -> bytes | None:
        with self._resources.memory:
            begin = self._tail_begin
            if position < begin:
                return None
            return bytes(self._tail[position - begin : max(position, end) - begin])

    def _in_file(self, position: int, end: int) -> tuple[int, int]:
        """Where the file of a position begins, and how many bytes of a range it holds."""
        start = position - position % self._file_bytes
        return start, max(0, min(end, self._written) - position)

    def _place(self, position: int) -> Place:
        """Offset and size of an entry's record; size 0 if there is no entry."""
        raw = self._read(position, position + self.entry_bytes)
        return place_of(raw) if raw else (0, 0)

    def _cut_to(self, position: int) -> None:
        """Drop the entries from `position` on; the first file stays: its name keeps the position."""
        with self._resources.files:
            if position >= self._written:
                with self._resources.memory:
                    del self._tail[position - self._tail_begin :]
            else:
                self._forget_open_files()
                start = max(self._begin, position - 1 - (position - 1) % self._file_bytes)
                for path in reversed(list_files(Path(self._folder))):
                    if int(path.name) > start:
                        path.unlink()
                if position < start + self._file_bytes:
                    truncate(self._path(start), position - start, self._file_bytes)
                self._flushed = min(self._flushed, position)
                if position == 0:
                    self._first = None
                self._take_end(position)
        self._end_changed()

    def _remove_all(self, position: int, tail: bytes = b"") -> None:
        """Remove all files; the queue begins in the file of `position`, with the entries `tail` before it."""
        with self._resources.files:
            self._forget_open_files()
            for path in list_files(Path(self._folder)):
                path.unlink(missing_ok=True)
            self._begin = self._flushed = position - position % self._file_bytes
            self._first = None
            self._set_end(self._begin, tail, self._begin)

    # --- inside ---

    def _path(self, start: int) -> str:
        return f"{self._folder}/{file_name(start)}"

    def _unwritten_part(self) -> tuple[int, bytearray] | None:
        """The next unwritten entries for one file, and their position."""
        with self._resources.memory:
            begin, position = self._tail_begin, self._written
            end = min(begin + len(self._tail), position - position % self._file_bytes + self._file_bytes)
            end = min(end, position + _WRITE_BYTES)
            return (position, self._tail[position - begin : end - begin]) if end > position else None

    def _write(self, position: int, content: bytearray) -> None:
        in_file = position % self._file_bytes
        path = self._path(position - in_file)
        file = self._open_to_write(path)
        if file.size_bytes < self._file_bytes:
            self._names_are_new()
            file.resize(self._file_bytes)
        file.write(in_file, content)
        self._written = position + len(content)

    def _names_are_new(self) -> None:
        """Names of files and folders may not be on disk."""
        folder = Path(self._folder)
        self._resources.new_folders.update((folder, *list(folder.parents)[:3]))

    def _open_to_write(self, path: str) -> OpenFile:
        try:
            return OpenFile(path, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:
            Path(self._folder).mkdir(parents=True, exist_ok=True)
            return OpenFile(path, os.O_RDWR | os.O_CREAT)

    def _trim(self) -> None:
        """Drop written entries from memory, but for the newest: consumers at the tail read no file."""
        resources = self._resources
        with resources.memory:
            excess = self._written - self._tail_begin - resources.kept_bytes
            if excess > 0:
                if self._tail_begin == 0:
                    self._first = place_of(bytes(self._tail[: self.entry_bytes]))
                self._tail_begin += excess
                del self._tail[:excess]

    def _take_end(self, position: int) -> None:
        """The files end here: load the last two entries, which are used first."""
        self._set_end(position, b"", position)
        begin = max(self._begin, position - 2 * self.entry_bytes)
        tail = b""
        while begin + len(tail) < position:
            part = self._read(begin + len(tail), position)
            if not part:
                tail, begin = b"", position
                break
            tail += part
        self._set_end(begin, tail, position)

    def _set_end(self, begin: int, tail: bytes, written: int) -> None:
        with self._resources.memory:
            self._tail_begin, self._tail, self._written = begin, bytearray(tail), written

    def _forget_open_files(self) -> None:
        self._resources.descriptors.forget(self._token)
        self._token = object()

    def _remove_file(self, start: int) -> None:
        Path(self._path(start)).unlink(missing_ok=True)
        self._resources.descriptors.discard((self._token, start))

    def _first_position_from(self, log_offset: int) -> int:
        """The position of the first entry of a message at `log_offset` or behind it, or of a gap before it.

        The entries are in order. Those of a gap have no place of their own.
        """
        unit = self.entry_bytes
        low, high = 0, (self._written - self._begin) // unit
        while low < high:
            middle = (low + high) // 2
            physical_offset, size = self._place(self._begin + middle * unit)
            if size != PLACEHOLDER_SIZE and physical_offset < log_offset:
                low = middle + 1
            else:
                high = middle
        return self._begin + low * unit

    def _last_message(self) -> int | None:
        """The position of the last entry that is no placeholder; None if there is none."""
        position = self._end - self.entry_bytes
        while position >= self._begin and self._place(position)[1] == PLACEHOLDER_SIZE:
            position -= self.entry_bytes
        return position if position >= self._begin else None

    def _is_within(self, position: int, log_end: int) -> bool:
        """Whether an entry is of a message before `log_end`, and in order after its predecessor."""
        physical_offset, size = self._place(position)
        if size <= 0 or physical_offset < 0 or physical_offset + size > log_end:
            return False
        if position == self._begin:
            return True
        before = self._place(position - self.entry_bytes)
        return before[1] > 0 and (before[0] < physical_offset or before[1] == PLACEHOLDER_SIZE)

    def _drop_last_entries(self, last: int, log_end: int) -> None:
        """Cut after the last entry within the log that is in the same file as `last`, which is dropped."""
        start = max(self._begin, last - last % self._file_bytes)
        low, high = 0, (last - start) // self.entry_bytes
        while low < high:
            middle = (low + high) // 2
            physical_offset, size = self._place(start + middle * self.entry_bytes)
            within = size > 0 and 0 <= physical_offset <= log_end - size
            if within or size == PLACEHOLDER_SIZE:
                low = middle + 1
            else:
                high = middle
        self._cut_to(start + low * self.entry_bytes)
