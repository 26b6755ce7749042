"""The files of a commit log, and the records of each file."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from .layout import BLANK, MAGIC_BLANK, MAGIC_V1, BadRecord, Record, read_record
from .mapped_file import MappedFile, mapped

_NAME_DIGITS: Final = 20
_RECORD_MAGIC: Final = MAGIC_V1[:3]
_MAGIC_AT: Final = 4  # in a record and in a blank, behind the size
# After reading this much of a mapped file, its pages are released.
_RELEASE_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class NumberedFile:
    """A file whose name is the offset of its first byte."""

    path: Path
    start: int
    size: int

    @property
    def end(self) -> int:
        """Offset behind the last byte."""
        return self.start + self.size


@dataclass(slots=True)
class NumberedFiles:
    """The numbered files of a folder in order, with the irregularities among them."""

    files: list[NumberedFile]
    file_bytes: int  # the most frequent size; 0 without files
    gaps: list[tuple[NumberedFile, NumberedFile]] = field(
        default_factory=list
    )  # neighbours with missing bytes between them
    unusual_sizes: list[NumberedFile] = field(default_factory=list)
    foreign: list[Path] = field(default_factory=list)  # not named by an offset

    @property
    def start(self) -> int:
        """Offset of the first byte; 0 without files."""
        return self.files[0].start if self.files else 0

    @property
    def end(self) -> int:
        """Offset behind the last byte of the last file; 0 without files."""
        return self.files[-1].end if self.files else 0


def numbered_files(folder: Path) -> NumberedFiles:
    """List the files of a folder; none if the folder does not exist. Raises OSError."""
    files: list[NumberedFile] = []
    foreign: list[Path] = []
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except FileNotFoundError:
        return NumberedFiles([], 0)
    for entry in entries:
        name = entry.name
        if entry.is_file() and len(name) == _NAME_DIGITS and name.isascii() and name.isdecimal():
            files.append(NumberedFile(Path(entry.path), int(name), entry.stat().st_size))
        else:
            foreign.append(Path(entry.path))
    sizes = Counter(file.size for file in files)
    usual = max(sizes, key=lambda size: (sizes[size], size), default=0)
    return NumberedFiles(
        files,
        usual,
        [(a, b) for a, b in pairwise(files) if a.start + usual != b.start],
        [file for file in files if file.size != usual or (usual and file.start % usual)],
        foreign,
    )


@dataclass(frozen=True, slots=True)
class Problem:
    """Reason why the log has no valid record at an offset."""

    at: int
    kind: str
    text: str

    @property
    def is_empty(self) -> bool:
        """Whether there are only zeros, as behind the end of a log."""
        return self.kind == "log.empty"


class FileReader:
    """Reads the records of one mapped file in order."""

    def __init__(self, file: MappedFile, start: int) -> None:
        self._file = file
        self._data = file.data
        self._start = start
        self.position = 0
        self.is_full = False  # the blank record was reached: no record follows in the file
        self.problem: Problem | None = None

    def records(self, position: int, until: int) -> Iterator[Record]:
        """Yield the records that begin in a part of the file, up to the first invalid one (see `problem`)."""
        data, start = self._data, self._start
        self.problem, self.is_full = None, False
        self.position = position
        limit = len(data)
        release_at = position + _RELEASE_BYTES
        while self.position < until:
            if self.position >= release_at:
                self._file.release(release_at - _RELEASE_BYTES, self.position)
                release_at = self.position + _RELEASE_BYTES
            try:
                record = read_record(data, self.position, start)
            except BadRecord as bad:
                if self.position + BLANK.size > limit or self._is_blank(self.position):
                    self.is_full = True
                else:
                    self.problem = self._problem(bad)
                return
            self.position += record.size
            yield record

    def end_at(self, position: int) -> None:
        """Note that the records up to a position, where the part ends, were read otherwise."""
        self.position, self.problem, self.is_full = position, None, False

    def next_valid(self, position: int, until: int) -> int | None:
        """Return the position of the next valid record or of the file's blank record, from `position` on.

        Raises OSError.
        """
        for begin, end in self._file.blocks(position + _MAGIC_AT, until + _MAGIC_AT):
            found = self._next_valid_in(begin - _MAGIC_AT, end - _MAGIC_AT)
            if found is not None:
                return found
            self._file.release(begin, end)
        return None

    def _next_valid_in(self, position: int, until: int) -> int | None:
        data = self._data
        record_at = self._find(_RECORD_MAGIC, position, until)
        blank_at = self._find(MAGIC_BLANK, position, until)
        while record_at is not None or blank_at is not None:
            if record_at is None or (blank_at is not None and blank_at < record_at):
                assert blank_at is not None
                if self._is_blank(blank_at):
                    return blank_at
                blank_at = self._find(MAGIC_BLANK, blank_at + 1, until)
                continue
            try:
                read_record(data, record_at, self._start)
            except BadRecord:
                record_at = self._find(_RECORD_MAGIC, record_at + 1, until)
            else:
                return record_at
        return None

    def _find(self, magic: bytes, position: int, until: int) -> int | None:
        """Return the position of the next record or blank with this magic number."""
        found = self._data.find(magic, position + _MAGIC_AT, until + _MAGIC_AT + len(magic) - 1)
        return None if found < 0 else found - _MAGIC_AT

    def _is_blank(self, position: int) -> bool:
        size, magic = BLANK.unpack_from(self._data, position)
        return bool(magic == MAGIC_BLANK and size == len(self._data) - position)

    def _problem(self, bad: BadRecord) -> Problem:
        at = self._start + self.position
        if not any(self._data[self.position : self.position + BLANK.size]):
            return Problem(at, "log.empty", "there are only zeros")
        return Problem(at, bad.kind, str(bad))


def record_at(log: NumberedFiles, offset: int) -> Record:
    """Read the record at an offset of the log. Raises BadRecord, OSError."""
    for file in log.files:
        if file.start <= offset < file.end:
            with mapped(file.path) as content:
                return read_record(content.data, offset - file.start, file.start)
    raise BadRecord("log.offset", f"the log has no file with offset {offset}")
