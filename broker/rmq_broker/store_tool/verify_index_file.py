"""Index files in themselves: their headers, and that their slots and chains lead to all of their entries."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .directory import Directory, Left
from .findings import Report
from .index_files import IndexEntry, IndexFile, index_paths


@dataclass(frozen=True, slots=True)
class IndexBlock:
    """Entries of one file that follow each other, and what is needed to check their times."""

    path: Path
    first: int  # number of the first entry
    entries: list[IndexEntry]
    last: int  # number of the file's last entry
    begin_ms: int  # as the file's header says
    end_ms: int
    before_ms: int  # the end of the file before; 0 for none
    is_doubtful: bool  # the machine crashed, and nobody knows what of it reached the disk

    def place(self, index: int) -> str:
        """Where one of the entries stands, for people."""
        return f"{self.path} entry {self.first + index}"


class IndexFilesCheck:
    """All index files of a folder, each checked as it is read."""

    def __init__(self, directory: Directory, report: Report, slots: int | None) -> None:
        """`slots`: of each file, where it is known."""
        self.has_files = False
        self.has_damage = False  # a file cannot be read
        self._directory = directory
        self._report = report
        self._slots = slots

    def blocks(self) -> Iterator[IndexBlock]:
        """All entries of all files, oldest first. Raises OSError."""
        paths, foreign = index_paths(self._directory.index)
        for path in foreign:
            self._report.note("index.foreign", str(path), "it is not named as an index file")
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
                is_last = path == paths[-1] and self._directory.left is not Left.STOPPED
                check = _FileCheck(
                    file, self._report, before_ms, is_written=is_last, is_doubtful=self._is_doubtful(file)
                )
                yield from check.blocks()
                before_ms = file.header.end_ms
            finally:
                file.close()

    def _is_doubtful(self, file: IndexFile) -> bool:
        """Whether a crash of the machine may have taken a part of it: a broker makes such a file again."""
        if self._directory.left is not Left.MACHINE_CRASHED:
            return False
        checkpoint = self._directory.checkpoint
        return checkpoint is None or file.header.end_ms > checkpoint[2] or file.header.count <= 1

    def _find_slots(self, paths: list[Path]) -> dict[int, int]:
        """By file size, how many slots files have: the newest that tells it says it for all."""
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
        """None where it has no entries that can be looked at."""
        try:
            file = IndexFile(path)
        except ValueError as error:
            self._report.error("index.file", str(path), str(error))
            return None
        header = file.header
        # What was empty a moment ago may be written to now.
        slots = sizes.get(file.size) or self._slots or file.find_slots()
        if slots is not None:
            file.slots = slots
            if file.capacity > 0 and header.count <= file.capacity:
                return file
            self._report.error(
                "index.header", str(path), f"{header.count - 1} entries do not fit in the file"
            )
        elif header.count > 1:
            self._report.error(
                "index.header",
                str(path),
                "the entries that its header tells of are not there; where the number of slots is known, "
                "give it with --index-slots",
            )
        file.close()
        return None


class _FileCheck:
    """One file."""

    def __init__(
        self, file: IndexFile, report: Report, before_ms: int, *, is_written: bool, is_doubtful: bool
    ) -> None:
        """`is_written`: a broker was about to write to it."""
        self._file = file
        self._report = report
        self._before_ms = before_ms
        self._is_written = is_written
        self._is_doubtful = is_doubtful
        self._slots = array("i", bytes(4 * file.slots))
        self._used = 0

    def blocks(self) -> Iterator[IndexBlock]:
        """Its entries in order."""
        file, header = self._file, self._file.header
        last_offset = header.begin_offset
        for first, entries in file.blocks():
            self._follow_chains(first, entries)
            if first == 1 and entries[0][1] != header.begin_offset:
                self._wrong(
                    "index.header", "header", f"it begins with {header.begin_offset}, not {entries[0][1]}"
                )
            last_offset = entries[-1][1]
            yield IndexBlock(
                file.path,
                first,
                entries,
                file.entries,
                header.begin_ms,
                header.end_ms,
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
                self._wrong("index.wrong_entry", f"entry {number}", "it has a negative number in it")
                continue
            slot = hashed % slots_per_file
            newest = slots[slot]
            if before != newest:
                self._wrong(
                    "index.chain",
                    f"entry {number}",
                    f"it names {before} as the one before it in its slot, which is {newest}",
                )
            if newest == 0:
                used += 1
            slots[slot] = number
        self._used += used

    def _check_header(self, last_offset: int) -> None:
        header = self._file.header
        if header.end_offset != last_offset:
            self._behind("header", f"it ends with {header.end_offset}, not {last_offset}")
        if header.slots_used != self._used:
            self._behind("header", f"it says {header.slots_used} slots in use, there are {self._used}")

    def _check_slots(self) -> None:
        uncounted = 0
        for first, found in self._file.slot_blocks():
            wanted = self._slots[first : first + len(found)]
            if found != wanted:
                uncounted += self._compare_slots(first, found, wanted)
        if uncounted:
            self._behind("slots", f"{uncounted} slots name entries that the header does not count yet")

    def _compare_slots(self, first: int, found: array[int], wanted: array[int]) -> int:
        """Compare some slots; how many name entries that the header does not count yet."""
        # The header is written last, and not after each entry.
        uncounted, count = 0, self._file.header.count
        for slot, (value, newest) in enumerate(zip(found, wanted, strict=True), first):
            if value == newest:
                continue
            if self._is_written and count <= value < self._file.capacity:
                uncounted += 1
            else:
                self._wrong("index.slot", f"slot {slot}", f"it names entry {value}, the newest is {newest}")
        return uncounted

    def _behind(self, place: str, text: str) -> None:
        """Wrong, but in a file that was being written."""
        if self._is_written:
            self._report.unfinished("index.unfinished", f"{self._file.path} {place}", text)
        else:
            self._wrong("index.header", place, text)

    def _wrong(self, kind: str, place: str, text: str) -> None:
        tell = self._report.unfinished if self._is_doubtful else self._report.error
        tell(kind, f"{self._file.path} {place}", text)
