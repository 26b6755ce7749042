"""Check of index files: headers, and whether slots and chains lead to all entries."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .directory import Directory, StoreState
from .findings import Report
from .index_columns import IndexColumns
from .index_files import IndexFile, index_paths
from .layout import INDEX_ENTRY

IndexEntry = tuple[int, int, int, int]
"""Hash, physical offset, seconds, number of the previous entry of the same slot."""


@dataclass(frozen=True, slots=True)
class IndexBlock:
    """Consecutive entries of one file, and the header's times to check theirs."""

    path: Path
    first: int  # number of the first entry
    packed: bytes  # the entries
    last: int  # number of the file's last entry
    begin_ms: int  # according to the header
    end_ms: int
    latest_seconds: int  # of the entries so far, counted from `begin_ms`
    before_ms: int  # end of the previous file; 0 without one
    is_doubtful: bool  # the machine crashed, and parts of the file may not have been flushed

    def __len__(self) -> int:
        return len(self.packed) // INDEX_ENTRY.size

    def entry(self, index: int) -> IndexEntry:
        """Return an entry."""
        entry: IndexEntry = INDEX_ENTRY.unpack_from(self.packed, index * INDEX_ENTRY.size)
        return entry

    def place(self, index: int) -> str:
        """Return the place of an entry, for people."""
        return f"{self.path} entry {self.first + index}"


class IndexFilesCheck:
    """All index files of a folder, each checked while it is read."""

    def __init__(self, directory: Directory, report: Report, slots: int | None) -> None:
        """`slots`: per file, None if unknown."""
        self.has_files = False
        self.has_damage = False  # whether a file cannot be read
        self._directory = directory
        self._report = report
        self._slots = slots

    def blocks(self) -> Iterator[IndexBlock]:
        """Yield all entries of all files, oldest first. Raises OSError."""
        paths, foreign = index_paths(self._directory.index)
        for path in foreign:
            self._report.note("index.foreign", str(path), "the name is not that of an index file")
        self.has_files = bool(paths)
        sizes = self._find_slots(paths)
        before_ms = 0
        for path in paths:
            file = self._open(path, sizes)
            if file is None:
                self.has_damage = True
                continue
            try:
                self._report.counts["index files"] += 1
                is_last = path == paths[-1] and self._directory.state is not StoreState.STOPPED
                check = _FileCheck(
                    file, self._report, before_ms, is_written=is_last, is_doubtful=self._is_doubtful(file)
                )
                yield from check.blocks()
                before_ms = file.header.end_ms
            finally:
                file.close()

    def _is_doubtful(self, file: IndexFile) -> bool:
        """Return whether a crash of the machine may have damaged the file; a broker recreates such a file."""
        if self._directory.state is not StoreState.MACHINE_CRASHED:
            return False
        checkpoint = self._directory.checkpoint
        return checkpoint is None or file.header.end_ms > checkpoint[2] or file.header.count <= 1

    def _find_slots(self, paths: list[Path]) -> dict[int, int]:
        """Return the number of slots by file size, from the newest file that shows it."""
        sizes: dict[int, int] = {}
        for path in reversed(paths):
            try:
                file = IndexFile(path)
            except (OSError, ValueError):
                continue
            try:
                if file.size not in sizes:
                    slots = self._slots or file.find_slots()
                    if slots is not None:
                        sizes[file.size] = slots
            finally:
                file.close()
        return sizes

    def _open(self, path: Path, sizes: dict[int, int]) -> IndexFile | None:
        """Open a file; None if it has no readable entries."""
        try:
            file = IndexFile(path)
        except ValueError as error:
            self._report.error("index.file", str(path), str(error))
            return None
        header = file.header
        # A file that was empty a moment ago may have entries now.
        slots = sizes.get(file.size) or self._slots or file.find_slots()
        if slots is not None:
            file.slots = slots
            if file.capacity > 0 and header.count <= file.capacity:
                return file
            self._report.error(
                "index.header",
                str(path),
                f"the {header.count - 1} entries of the header do not fit in the file",
            )
        elif header.count > 1:
            self._report.error(
                "index.header",
                str(path),
                "the entries of the header are not found; if you know the number of slots, give it with "
                "--index-slots",
            )
        file.close()
        return None


class _FileCheck:
    """Check of one file."""

    def __init__(
        self, file: IndexFile, report: Report, before_ms: int, *, is_written: bool, is_doubtful: bool
    ) -> None:
        """`is_written`: a broker may have been writing to the file."""
        self._file = file
        self._report = report
        self._before_ms = before_ms
        self._is_written = is_written
        self._is_doubtful = is_doubtful
        self._slots = array("i", bytes(4 * file.slots))
        self._used = 0

    def blocks(self) -> Iterator[IndexBlock]:
        """Yield the entries in order, and check the file on the way."""
        file, header = self._file, self._file.header
        last_offset, latest_seconds = header.begin_offset, 0
        for first, packed in file.blocks():
            columns = IndexColumns(packed)
            latest_seconds = max(latest_seconds, columns.latest_seconds)
            used = None if columns.has_negative else columns.follow_chains(self._slots, first)
            if used is None:
                self._follow_chains(first, list(INDEX_ENTRY.iter_unpack(packed)))
            else:
                self._used += used
            first_offset = INDEX_ENTRY.unpack_from(packed)[1]
            if first == 1 and first_offset != header.begin_offset:
                self._wrong(
                    "index.header",
                    "header",
                    f"the first offset is {header.begin_offset}, that of the first entry {first_offset}",
                )
            last_offset = INDEX_ENTRY.unpack_from(packed, len(packed) - INDEX_ENTRY.size)[1]
            yield IndexBlock(
                file.path,
                first,
                packed,
                file.entries,
                header.begin_ms,
                header.end_ms,
                latest_seconds,
                self._before_ms,
                self._is_doubtful,
            )
        if file.entries:
            self._check_header(last_offset)
        self._check_slots()

    def _follow_chains(self, first: int, entries: list[IndexEntry]) -> None:
        slots, slots_per_file, used = self._slots, self._file.slots, 0
        for number, (hashed, offset, seconds, before) in enumerate(entries, first):
            if hashed < 0 or offset < 0 or seconds < 0:
                self._wrong("index.wrong_entry", f"entry {number}", "a field is negative")
                continue
            slot = hashed % slots_per_file
            newest = slots[slot]
            if before != newest:
                self._wrong(
                    "index.chain",
                    f"entry {number}",
                    f"the previous entry of the slot is {newest}, the entry says {before}",
                )
            if newest == 0:
                used += 1
            slots[slot] = number
        self._used += used

    def _check_header(self, last_offset: int) -> None:
        header = self._file.header
        if header.end_offset != last_offset:
            self._behind(
                "header", f"the last offset is {header.end_offset}, that of the last entry {last_offset}"
            )
        if header.slots_used != self._used:
            self._behind(
                "header", f"{header.slots_used} slots are in use by the header, {self._used} by the entries"
            )

    def _check_slots(self) -> None:
        uncounted = 0
        for first, found in self._file.slot_blocks():
            wanted = self._slots[first : first + len(found)]
            if found != wanted:
                uncounted += self._compare_slots(first, found, wanted)
        if uncounted:
            self._behind("slots", f"{uncounted} slots have entries that the header does not count yet")

    def _compare_slots(self, first: int, found: array[int], wanted: array[int]) -> int:
        """Compare some slots; return the number of slots whose entries the header does not count yet."""
        # The header is written last, and not after each entry.
        uncounted, count = 0, self._file.header.count
        for slot, (value, newest) in enumerate(zip(found, wanted, strict=True), first):
            if value == newest:
                continue
            if self._is_written and count <= value < self._file.capacity:
                uncounted += 1
            else:
                self._wrong(
                    "index.slot", f"slot {slot}", f"the slot has entry {value}, the newest is {newest}"
                )
        return uncounted

    def _behind(self, place: str, text: str) -> None:
        """Report a lag of the header: an error unless a broker was writing to the file."""
        if self._is_written:
            self._report.recoverable("index.unfinished", f"{self._file.path} {place}", text)
        else:
            self._wrong("index.header", place, text)

    def _wrong(self, kind: str, place: str, text: str) -> None:
        emit = self._report.recoverable if self._is_doubtful else self._report.error
        emit(kind, f"{self._file.path} {place}", text)
