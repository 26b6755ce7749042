"""The index files of a store: the last file takes the new entries.

Apache RocketMQ 5.3.3, IndexService.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from rmq_remoting.daemon.atomic_file import sync_folder

from ..errors import StoreDamaged
from .index_file import ENTRY_STEP, PLACE_BYTES, IndexFile, offset_of
from .keys import index_hash

log = logging.getLogger("rmq.store")

# Not a number, so that Apache's broker ignores it.
_SPARE_NAME: Final = "rmq_next"
_NAME_DIGITS: Final = 17
# The next file is created when this number of entries is left: more than half a second of one loop's appends.
_SPARE_AHEAD_ENTRIES: Final = 4 * ENTRY_STEP


@dataclass(frozen=True, slots=True)
class KeyQueryResult:
    """Physical offsets, newest first, and the offset and time of the last message in the index."""

    offsets: list[int]
    last_timestamp_ms: int
    last_offset: int


class IndexFiles:
    """Owns the files of one folder.

    One thread puts. `prepare` and `flush_full` run in another thread. Any thread may call `look_up`.
    """

    __slots__ = ("_capacity", "_clock", "_folder", "_may_wait", "_slot_count", "_spare", "files", "grew")

    def __init__(
        self,
        folder: Path,
        slot_count: int,
        capacity: int,
        clock: Callable[[], float],
        *,
        may_wait: bool = True,
    ) -> None:
        """`may_wait`: putting may wait for the disk. Otherwise it waits for `prepare`, as without a file."""
        self._may_wait = may_wait
        self._folder = folder
        self._slot_count = slot_count
        self._capacity = capacity
        self._clock = clock
        self._spare: IndexFile | None = None
        self.files: list[IndexFile] = []
        self.grew = False  # set when a file is begun or extended

    # --- opening ---

    def load(self, *, flushed_ms: int | None = None, drop_newer: bool = False) -> None:
        """Open the existing files. Raises OSError; blocks.

        `flushed_ms`, after an unclean stop: full files are on disk up to the first that ends at this time.
        With `drop_newer`, after a crash of the machine, the others are removed. A file that is damaged, or
        that the disk cannot read, is removed, too, and all files after it: they are rebuilt from the log, in
        its order.
        """
        (self._folder / _SPARE_NAME).unlink(missing_ok=True)
        paths, may_be_flushed = self._paths(), True
        for index, path in enumerate(paths):
            reason = ""
            try:
                file = IndexFile(path, self._slot_count, self._capacity)
                if flushed_ms is not None:
                    file.is_flushed = may_be_flushed and file.is_full and file.end_timestamp_ms <= flushed_ms
                    # Later files may end earlier, because the clock was set back.
                    may_be_flushed = file.is_flushed and file.end_timestamp_ms != flushed_ms
                if drop_newer and not file.is_flushed:
                    reason = "not all of it may have been on the disk when the machine stopped"
            except StoreDamaged as damage:
                reason = str(damage)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                reason = str(error)
            if reason:
                self._remove(paths[index:], reason)
                break
            self.files.append(file)

    def _paths(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        names = sorted(path.name for path in self._folder.iterdir())
        return [
            self._folder / name
            for name in names
            if len(name) == _NAME_DIGITS and name.isascii() and name.isdecimal()
        ]

    def _remove(self, paths: Sequence[Path], reason: str) -> None:
        names = ", ".join(path.name for path in paths)
        log.warning("index files removed files=%s cause=%s; rebuilt from the log", names, reason)
        # The last file first: a crash in between leaves no gap, which the next start would not notice.
        for path in reversed(paths):
            path.unlink(missing_ok=True)

    def flush_names(self) -> None:
        """Make the removal of files survive a power cut. Raises OSError; blocks."""
        if self._folder.is_dir():
            sync_folder(self._folder)

    def drop_from(self, name: str, reason: str) -> None:
        """Remove the file of this name and all later ones. Raises OSError."""
        dropped = [file for file in self.files if file.path.name >= name]
        if dropped:
            self._remove([file.path for file in dropped], reason)
            self.files = [file for file in self.files if file.path.name < name]

    def drop_unflushed(self, reason: str) -> None:
        """Remove the first file that may not be on disk, and all later ones. Raises OSError.

        After a failed flush it is unknown which pages are on disk, and a second fsync would not tell.
        """
        for file in self.files:
            if not file.is_flushed:
                self.drop_from(file.path.name, reason)
                return

    def cut(self, physical_offset: int) -> None:
        """Take back the entries of messages from `physical_offset` on. Raises OSError."""
        while self.files:
            last = self.files[-1]
            if last.is_full and not last.is_empty and last.end_offset < physical_offset:
                return
            try:
                last.make_writable()
                last.cut(physical_offset)
                if not last.is_empty:
                    return
            except OSError as error:
                log.warning("index file not repaired path=%s cause=%s; it is rebuilt", last.path, error)
            self.files.pop().delete()

    # --- putting ---

    @property
    def current(self) -> IndexFile | None:
        """The file that takes entries now; None if there is none."""
        last = self.files[-1] if self.files else None
        return last if last is not None and last.is_writable and not last.is_full else None

    @property
    def end_offset(self) -> int:
        """The log offset of the last message in the files; -1 for none."""
        return self.files[-1].end_offset if self.files else -1

    def put(self, hashes: Sequence[int], physical_offset: int, store_timestamp_ms: int) -> bool:
        """Add a message under all its keys, or not at all: False if the next file does not exist yet.

        Raises OSError if the disk is full.
        """
        added = 0
        try:
            for key_hash in hashes:
                while not self._put_entry(key_hash, physical_offset, store_timestamp_ms):
                    if not self._extend(physical_offset, store_timestamp_ms):
                        return False
                added += 1
        finally:
            if 0 < added < len(hashes):
                self.cut(physical_offset)
        return True

    def put_one(self, key_hash: int, physical_offset: int, store_timestamp_ms: int) -> bool:
        """Add a message under its only key: False if the next file does not exist yet.

        Raises OSError if the disk is full.
        """
        while not self._put_entry(key_hash, physical_offset, store_timestamp_ms):
            if not self._extend(physical_offset, store_timestamp_ms):
                return False
        return True

    def _put_entry(self, key_hash: int, physical_offset: int, store_timestamp_ms: int) -> bool:
        return bool(self.files) and self.files[-1].put(key_hash, physical_offset, store_timestamp_ms)

    def put_block(self, key_hash: int, places: bytes, store_timestamp_ms: int) -> int:
        """Add messages under one key; return how many, fewer if the next file does not exist yet.

        Raises OSError if the disk is full; the messages added before that stay.
        """
        added = 0
        while added < len(places):
            file = self.files[-1] if self.files else None
            if file is not None:
                added += file.put_block(key_hash, places[added:], store_timestamp_ms) * PLACE_BYTES
            if added < len(places) and not self._extend(offset_of(places, added), store_timestamp_ms):
                break
        return added // PLACE_BYTES

    def _extend(self, physical_offset: int, store_timestamp_ms: int) -> bool:
        file = self.current
        if file is None:
            file = self._take_spare()
            if file is None:
                return False
        if not self._may_wait:
            if not file.grow():
                return False
            if file.is_empty:
                file.begin_with(physical_offset, store_timestamp_ms)
        elif file.is_empty:
            file.begin(physical_offset, store_timestamp_ms)
        else:
            file.extend()
        self.grew = True
        return True

    def _take_spare(self) -> IndexFile | None:
        file = self._spare
        last = self.files[-1] if self.files else None
        if file is None or (last is not None and not last.is_full):
            return None
        if last is not None:
            if last.is_writable:
                last.write_header()
            file.follow(last)
        if self._may_wait:
            file.rename(self._folder / self._next_name())
        self._spare = None
        self.files.append(file)
        return file

    def _next_name(self) -> str:
        """The time, as with Apache's broker, but later than the last name even if the clock was set back."""
        now = datetime.fromtimestamp(self._clock())  # local time, as Apache's
        name = f"{now:%Y%m%d%H%M%S}{now.microsecond // 1000:03d}"
        named = [file.path.name for file in self.files if file.path.name != _SPARE_NAME]
        if named and name <= named[-1]:
            return str(int(named[-1]) + 1)
        return name

    def reopen_last(self) -> None:
        """Make the last file writable if it is not full. Raises OSError; blocks."""
        if self.files and not self.files[-1].is_full:
            self._make_writable(self.files[-1])

    # --- in another thread ---

    @property
    def has_unnamed(self) -> bool:
        """Whether the last file is not named by its time yet. A crash would drop it: it would be rebuilt."""
        return bool(self.files) and self.files[-1].path.name == _SPARE_NAME

    @property
    def needs_file(self) -> bool:
        """Whether `prepare` has work to do."""
        last = self.files[-1] if self.files else None
        if last is not None and not last.is_full and not last.is_writable:
            return True
        if last is not None and (self.has_unnamed or self._lacks_space(last)):
            return True
        left = 0 if last is None else last.capacity - last.count
        return self._spare is None and left <= _SPARE_AHEAD_ENTRIES

    def prepare(self) -> None:
        """Make the last file writable, extend it, or create the next one. Raises OSError; blocks."""
        self._name_last()
        last = self.files[-1] if self.files else None
        if last is not None and not last.is_full and not last.is_writable:
            self._make_writable(last)
        elif last is not None and self._lacks_space(last):
            last.allocate()
        elif self._spare is None:
            path = self._folder / _SPARE_NAME
            self._spare = IndexFile.create(
                path, self._slot_count, self._capacity, allocates=not self._may_wait
            )

    def _name_last(self) -> None:
        """Name the last file by its time if it was taken without a name. Raises OSError; blocks."""
        if self.has_unnamed:
            self.files[-1].rename(self._folder / self._next_name())

    def _make_writable(self, file: IndexFile) -> None:
        file.make_writable()
        if not self._may_wait:
            file.grow()

    def _lacks_space(self, file: IndexFile) -> bool:
        return not self._may_wait and file.is_writable and not file.is_full and file.lacks_space

    @property
    def needs_flush(self) -> bool:
        """Whether `flush_full` has work to do."""
        return any([file.is_full and not file.is_flushed for file in self.files])

    def flush_full(self) -> None:
        """Flush full files. Raises OSError; blocks."""
        self._flush([file for file in self.files if file.is_full and not file.is_flushed])

    def flush_all(self) -> None:
        """Flush all files. Raises OSError; blocks."""
        self._name_last()
        self._flush(list(self.files))

    def _flush(self, files: Sequence[IndexFile]) -> None:
        if not files:
            return
        for file in files:
            file.flush()
        sync_folder(self._folder)

    def seal_full(self) -> None:
        """Close the mappings of flushed full files; for the thread that puts, which uses them."""
        for file in self.files:
            if file.is_full and file.is_flushed:
                file.seal()

    @property
    def flushed_timestamp_ms(self) -> int:
        """The store time up to which messages are in full and flushed files; for the checkpoint."""
        time_ms = 0
        for file in list(self.files):
            if not file.is_full or not file.is_flushed:
                break
            time_ms = file.end_timestamp_ms
        return time_ms

    def write_header(self) -> None:
        """Write the header of the file that takes entries now."""
        if (current := self.current) is not None:
            current.write_header()

    def delete_before(self, log_begin: int) -> int:
        """Remove files whose messages were all deleted, never the last file; return how many.

        Raises OSError.
        """
        removed = 0
        while len(self.files) > 1 and self.files[0].end_offset < log_begin:
            self.files.pop(0).delete()
            removed += 1
        return removed

    def delete_all(self) -> None:
        """Remove all files. Raises OSError."""
        while self.files:
            self.files.pop().delete()

    def close(self) -> None:
        """Close the files. Without `flush_all` before, the last file may need repair."""
        if self._spare is not None:
            self._spare.seal()
            self._spare.delete()
            self._spare = None
        for file in self.files:
            file.seal()
        self.files = []

    # --- reading ---

    @property
    def size_bytes(self) -> int:
        """Bytes of all files, holes included."""
        return sum([file.size for file in list(self.files)])

    @property
    def entry_count(self) -> int:
        """Number of entries in all files."""
        return sum([file.count - 1 for file in list(self.files)])

    def look_up(self, topic: str, key: str, limit: int, begin_ms: int, end_ms: int) -> KeyQueryResult:
        """Look up messages of a topic by key, newest first, in a time range (both ends included)."""
        files = list(self.files)
        found: list[int] = []
        key_hash = index_hash(topic, key)
        for file in reversed(files):
            if file.overlaps(begin_ms, end_ms):
                file.look_up(key_hash, begin_ms, end_ms, limit, found)
            # A file that begins earlier is no reason to end: the clock may have been set back.
            if len(found) >= limit:
                break
        if not files:
            return KeyQueryResult(found, 0, 0)
        return KeyQueryResult(found, files[-1].end_timestamp_ms, files[-1].end_offset)
