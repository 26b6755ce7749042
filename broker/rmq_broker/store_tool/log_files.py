"""The files of a commit log, for reading: which are there, and the records of each."""

from __future__ import annotations

import mmap
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from .layout import BLANK, MAGIC_BLANK, MAGIC_V1, BadRecord, Record, read_record

_NAME_DIGITS: Final = 20
_RECORD_MAGIC: Final = MAGIC_V1[:3]
_READ_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class NumberedFile:
    """A file that is named by the offset that it begins at."""

    path: Path
    start: int
    size: int

    @property
    def end(self) -> int:
        """The offset behind its last byte."""
        return self.start + self.size


@dataclass(slots=True)
class NumberedFiles:
    """Those of one folder in order, and what stands out among them."""

    files: list[NumberedFile]
    file_bytes: int  # the size that most of them have; 0 where there are none
    holes: list[tuple[NumberedFile, NumberedFile]] = field(
        default_factory=list
    )  # neighbours that do not touch
    odd_sizes: list[NumberedFile] = field(default_factory=list)
    foreign: list[Path] = field(default_factory=list)  # not named by an offset

    @property
    def start(self) -> int:
        """The first offset; 0 where there are no files."""
        return self.files[0].start if self.files else 0

    @property
    def end(self) -> int:
        """Behind the last byte of the last file."""
        return self.files[-1].end if self.files else 0


def numbered_files(folder: Path) -> NumberedFiles:
    """The files of a folder; empty where there is no such folder. Raises OSError where it cannot be read."""
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


@contextmanager
def mapped(file: NumberedFile) -> Iterator[mmap.mmap | bytes]:
    """The content of a file, for reading. Raises OSError."""
    with file.path.open("rb") as stream:
        if os.fstat(stream.fileno()).st_size == 0:
            yield b""
            return
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


def bring_in(file: NumberedFile, begin: int, end: int) -> None:
    """Read a part of a file once: an error of the disk is an OSError here, in a map it ends the process."""
    buffer = bytearray(_READ_BYTES)
    with file.path.open("rb", buffering=0) as stream:
        while begin < end:
            view = memoryview(buffer)[: min(_READ_BYTES, end - begin)]
            got = os.preadv(stream.fileno(), [view], begin)
            if got == 0:
                return
            begin += got


@dataclass(frozen=True, slots=True)
class Problem:
    """Why the log has no record at an offset."""

    at: int
    kind: str
    text: str

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing at all, as behind the end of a log."""
        return self.kind == "log.empty"


class FileReader:
    """Goes through the records of one mapped file."""

    def __init__(self, data: mmap.mmap | bytes, start: int) -> None:
        self._data = data
        self._start = start
        self.position = 0
        self.is_full = False  # a blank record was reached: the file has no more
        self.problem: Problem | None = None

    def records(self, position: int, until: int) -> Iterator[Record]:
        """Those that begin in a part of the file, up to the first that is not valid: see `problem` then."""
        data, start = self._data, self._start
        self.problem, self.is_full = None, False
        self.position = position
        limit = len(data)
        while self.position < until:
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

    def next_valid(self, position: int, until: int) -> int | None:
        """Where the first valid record, or the blank at the file's end, begins from `position` on."""
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
        """Where something with this magic begins, 4 bytes before it."""
        found = self._data.find(magic, position + 4, until + 4 + len(magic) - 1)
        return None if found < 0 else found - 4

    def _is_blank(self, position: int) -> bool:
        size, magic = BLANK.unpack_from(self._data, position)
        return bool(magic == MAGIC_BLANK and size == len(self._data) - position)

    def _problem(self, bad: BadRecord) -> Problem:
        at = self._start + self.position
        if not any(self._data[self.position : self.position + BLANK.size]):
            return Problem(at, "log.empty", "there is nothing")
        return Problem(at, bad.kind, str(bad))


def record_at(log: NumberedFiles, offset: int) -> Record:
    """The record at an offset of the log. Raises BadRecord, OSError."""
    for file in log.files:
        if file.start <= offset < file.end:
            with mapped(file) as data:
                return read_record(data, offset - file.start, file.start)
    raise BadRecord("log.offset", f"the log has nothing at {offset}")
