"""Power cuts: a memory of flushed data, and the directory that a power cut leaves.

A `SyncedMemory` keeps, beside a directory, the data that each fsync, fdatasync and msync covered: ranges of
files, and the names in folders. It outlives a SIGKILL of the process that it watches. `cut_power` then makes
a directory of it: a random share of the unflushed changes (pages, sizes, names, removals) is on the disk, the
rest is as at its last flush. A file without a flush is empty or missing, a mapped page without one is zero.

A page that was written several times since its flush has any of its contents by chance, if the memory gets
the writes (`written`). A disk writes a page in sectors of 512 bytes: a page may be torn between two contents.

Names and sizes are kept in order, as by a file system with a journal (ext4, XFS): if a file named by its
offset exists, so do those before it, at their full size; a folder's flush covers the sizes of its files,
and a file's flush its name. With `strict_names` names wait for their folder's flush, as POSIX has it.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import random
from collections.abc import Sequence
from itertools import takewhile, zip_longest
from pathlib import Path
from struct import Struct
from typing import Final

from tests.support.flush_calls import FlushCall, WriteCall

_pwrite = os.pwrite  # not the one that reports the writes of the watched process
_CHUNK_BYTES: Final = 1 << 20
_PAGE_BYTES: Final = mmap.PAGESIZE
_SECTOR_BYTES: Final = 512
# Of the pages that get to the disk, these shares have an earlier content, or sectors of two contents.
_SHARE_EARLIER: Final = 0.2
_SHARE_TORN: Final = 0.2
# In a file of earlier contents: the content of the page at a position follows, if the end is -1; otherwise
# the pages from a position to this end were flushed.
_EARLIER: Final = Struct("<qq")

# Inode and whether it is a folder, by name.
_Names = dict[str, tuple[int, bool]]


class SyncedMemory:
    """The content of a directory on the disk, as opposed to the page cache.

    `folder` is outside of the directory, on the same file system. Everything in the directory when the
    memory is new counts as flushed.
    """

    def __init__(self, root: Path, folder: Path, *, strict_names: bool = False) -> None:
        self._root = root.resolve()
        self._strict_names = strict_names
        self._named: set[tuple[str, int]] = set()
        self._content, self._pins, self._earlier = folder / "content", folder / "pins", folder / "earlier"
        is_new = not folder.exists()
        for path in (self._content, self._pins, self._earlier):
            path.mkdir(parents=True, exist_ok=True)
        self._lost: dict[int, set[int]] = {}  # page numbers by inode
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._journal = os.open(folder / "names", flags, 0o644)
        if is_new:
            self._root.mkdir(parents=True, exist_ok=True)
            self._take_all(self._root)

    def close(self) -> None:
        """Close the descriptor; the memory stays."""
        os.close(self._journal)

    def flushed(self, call: FlushCall) -> None:
        """Note one flush: the present content of the file is on the disk when the call returns."""
        if call.is_folder:
            self._note_names(Path(call.path))
        elif self._is_inside(call.path):
            if not self._strict_names and (call.path, call.inode) not in self._named:
                self._note_way_to(Path(call.path), call.inode)
            if call.map is None:
                self.pin(call.descriptor)
                self._copy_whole(call.descriptor, call.inode)
            else:
                begin, end = call.begin, call.begin + call.size
                content = call.map[begin:end]
                # First, because the process may be killed between the two: no page may have a content from
                # before one that counts as flushed.
                if (self._earlier / str(call.inode)).exists():
                    self._note_earlier(call.inode, _EARLIER.pack(begin, end))
                self._write(call.inode, begin, content, len(call.map))

    def written(self, call: WriteCall) -> None:
        """Keep what pages hold before they are changed: it may be what got to the disk."""
        if not self._is_inside(call.path):
            return
        notes = []
        for at in range(0, len(call.content), _PAGE_BYTES):
            page = call.content[at : at + _PAGE_BYTES].ljust(_PAGE_BYTES, b"\0")
            if any(page):
                notes += [_EARLIER.pack(call.position + at, -1), page]
        if notes:
            self._note_earlier(call.inode, b"".join(notes))
        first = call.position // _PAGE_BYTES
        pages = range(first, first + max(1, -(-len(call.content) // _PAGE_BYTES)))
        self._lost.get(call.inode, set()).difference_update(pages)

    def lost(self, call: FlushCall) -> None:
        """Note a failed flush: later flushes skip its pages until they are written again, as on Linux."""
        if not self._is_inside(call.path):
            return
        if call.map is None:
            self.pin(call.descriptor)
            begin, content = 0, _whole_content(call.descriptor)
        else:
            begin, content = call.begin, call.map[call.begin : call.begin + call.size]
        flushed = self._content / str(call.inode)
        on_disk = flushed.read_bytes()[begin:] if flushed.exists() else b""
        self._lost.setdefault(call.inode, set()).update(
            (begin + at) // _PAGE_BYTES
            for at in range(0, len(content), _PAGE_BYTES)
            if content[at : at + _PAGE_BYTES] != on_disk[at : at + _PAGE_BYTES].ljust(_PAGE_BYTES, b"\0")
        )

    def pin(self, descriptor: int) -> None:
        """Keep a file as long as this memory, so that its inode number is not reused."""
        if not self._is_inside(os.readlink(f"/proc/self/fd/{descriptor}")):  # noqa: PTH115
            return
        pin = self._pins / str(os.fstat(descriptor).st_ino)
        if pin.exists():
            return
        # This system call follows links only if it gets a folder's descriptor.
        anywhere = os.open("/", os.O_RDONLY | os.O_CLOEXEC)
        try:
            with contextlib.suppress(FileExistsError, FileNotFoundError):
                os.link(f"/proc/self/fd/{descriptor}", pin, src_dir_fd=anywhere, follow_symlinks=True)
        finally:
            os.close(anywhere)

    def _is_inside(self, path: str) -> bool:
        return f"{path}/".startswith(f"{self._root}/")

    def _take_all(self, folder: Path) -> None:
        for path in folder.iterdir():
            if path.is_dir():
                self._take_all(path)
            else:
                with path.open("rb") as file:
                    self.pin(file.fileno())
                    self._copy_whole(file.fileno(), os.fstat(file.fileno()).st_ino)
        self._note_names(folder)

    def _note_names(self, folder: Path) -> None:
        if not self._is_inside(str(folder)):
            return
        names: _Names = {}
        with os.scandir(folder) as entries:
            for entry in entries:
                names[entry.name] = entry.inode(), entry.is_dir(follow_symlinks=False)
                if entry.is_file(follow_symlinks=False):
                    self._note_size(entry)
        line = json.dumps([str(folder.relative_to(self._root)), names])
        os.write(self._journal, line.encode() + b"\n")

    def _note_way_to(self, path: Path, inode: int) -> None:
        """The name of a file, and of the folders that it is in."""
        self._named.add((str(path), inode))
        is_folder = False
        try:
            while path != self._root:
                line = json.dumps(
                    [str(path.parent.relative_to(self._root)), {path.name: (inode, is_folder)}, "+"]
                )
                os.write(self._journal, line.encode() + b"\n")
                path, is_folder = path.parent, True
                inode = path.stat().st_ino
        except FileNotFoundError:
            return  # removed meanwhile

    def _note_earlier(self, inode: int, notes: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(f"{self._earlier}/{inode}", flags, 0o644)
        try:
            os.write(descriptor, notes)
        finally:
            os.close(descriptor)

    def _note_size(self, entry: os.DirEntry[str]) -> None:
        try:
            descriptor = os.open(entry.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # removed meanwhile
        try:
            status = os.fstat(descriptor)
            if status.st_ino == entry.inode():  # otherwise the file has been replaced meanwhile
                self.pin(descriptor)
                self._write(status.st_ino, 0, b"", status.st_size)
        finally:
            os.close(descriptor)

    def _copy_whole(self, descriptor: int, inode: int) -> None:
        (self._earlier / str(inode)).unlink(missing_ok=True)
        readable = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            size, position = os.fstat(readable).st_size, 0
            while position < size and (chunk := os.pread(readable, _CHUNK_BYTES, position)):
                self._write(inode, position, chunk, size)
                position += len(chunk)
        finally:
            os.close(readable)
        if size == 0:
            self._write(inode, 0, b"", 0)

    def _kept_parts(self, inode: int, position: int, content: bytes) -> list[tuple[int, bytes]]:
        """The parts of a flushed range that get to the disk, and their positions."""
        lost = self._lost.get(inode)
        if not lost:
            return [(position, content)]
        parts = []
        at = 0
        while at < len(content):
            page, inside = divmod(position + at, _PAGE_BYTES)
            until = min(len(content), at + _PAGE_BYTES - inside)
            if page not in lost:
                parts.append((position + at, content[at:until]))
            at = until
        return parts

    def _write(self, inode: int, position: int, content: bytes, size: int) -> None:
        descriptor = os.open(f"{self._content}/{inode}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            for at, part in self._kept_parts(inode, position, content):
                _pwrite(descriptor, part, at)
            if os.fstat(descriptor).st_size != size:
                os.ftruncate(descriptor, size)
        finally:
            os.close(descriptor)


def _whole_content(descriptor: int) -> bytes:
    """The content of a file, whose descriptor may be open for writing alone."""
    with open(f"/proc/self/fd/{descriptor}", "rb") as file:  # noqa: PTH123 (a link without a path's meaning)
        return file.read()


def cut_power(root: Path, memory: Path, to: Path, chance: random.Random, share_kept: float = 0.0) -> None:
    """Make the directory `to`: what a power cut leaves of `root`, whose process has ended.

    `share_kept`: the share of unflushed pages, sizes and names that is on the disk nevertheless.
    """
    _Cut(memory, chance, share_kept).folder(root, to, ".")


class _Cut:
    def __init__(self, memory: Path, chance: random.Random, share_kept: float) -> None:
        self._content, self._pins, self._earlier = memory / "content", memory / "pins", memory / "earlier"
        self._chance = chance
        self._share_kept = share_kept
        self._flushed = _flushed_names(memory / "names")

    def folder(self, current: Path | None, to: Path, relative: str) -> None:
        """One folder; `current` is its state at the power cut, if it existed."""
        to.mkdir(parents=True)
        flushed = self._flushed.get(relative, {})
        newest = _names_of(current)
        new = list(takewhile(lambda _: self._keeps(), sorted(newest.keys() - flushed.keys())))
        names = sorted([*flushed.keys(), *new])
        for name, following in zip_longest(names, names[1:]):
            now = newest.get(name)
            kept = now if name in new or self._keeps() else flushed[name]
            if kept is None:
                continue
            inode, is_folder = kept
            path = current / name if current is not None and kept == now else None
            if is_folder:
                self.folder(path, to / name, name if relative == "." else f"{relative}/{name}")
            else:
                # Of files that are created one after the other at full size, only the last may be shorter.
                size_kept = following is not None and name.isdecimal()
                (to / name).write_bytes(self._content_of(inode, path, size_kept or self._keeps()))

    def _content_of(self, inode: int, path: Path | None, size_kept: bool) -> bytes:
        flushed, pin = self._content / str(inode), self._pins / str(inode)
        before = flushed.read_bytes() if flushed.exists() else b""
        newest = pin if pin.exists() else path
        now = before if newest is None else newest.read_bytes()
        size = len(now) if size_kept else len(before)
        pages = bytearray(before[:size].ljust(size, b"\0"))
        earlier = _earlier_contents(self._earlier / str(inode))
        for page in range(0, min(size, len(now)), _PAGE_BYTES):
            end = min(page + _PAGE_BYTES, size, len(now))
            contents = [content[: end - page] for content in earlier.get(page, ())]
            if (contents or now[page:end] != before[page:end]) and self._keeps():
                oldest = bytes(pages[page:end])
                pages[page:end] = self._page_of([oldest, *contents, now[page:end]])
        return bytes(pages)

    def _page_of(self, contents: Sequence[bytes]) -> bytes:
        """One content of a page that has had these, the flushed one first, or sectors of two of them."""
        chance = 1.0 if self._share_kept == 1.0 else self._chance.random()
        if chance < _SHARE_EARLIER:
            return self._chance.choice(contents)
        if chance < _SHARE_EARLIER + _SHARE_TORN:
            one, other = self._chance.choice(contents), self._chance.choice(contents)
            sectors = range(0, len(one), _SECTOR_BYTES)
            return b"".join(self._chance.choice([one, other])[at : at + _SECTOR_BYTES] for at in sectors)
        return contents[-1]

    def _keeps(self) -> bool:
        return self._chance.random() < self._share_kept


def _earlier_contents(notes: Path) -> dict[int, list[bytes]]:
    """What the pages of a file held since their last flush, by position, the oldest first."""
    found: dict[int, list[bytes]] = {}
    content = notes.read_bytes() if notes.exists() else b""
    at = 0
    while at + _EARLIER.size <= len(content):
        position, end = _EARLIER.unpack_from(content, at)
        at += _EARLIER.size
        if end < 0:
            found.setdefault(position, []).append(content[at : at + _PAGE_BYTES].ljust(_PAGE_BYTES, b"\0"))
            at += _PAGE_BYTES
        else:
            for flushed in [each for each in found if position <= each < end]:
                del found[flushed]
    return found


def _flushed_names(journal: Path) -> dict[str, _Names]:
    """The names of each folder as of its last flush."""
    found: dict[str, _Names] = {}
    for line in journal.read_bytes().splitlines(keepends=True):
        if not line.endswith(b"\n"):
            break  # the process ended while it wrote this
        relative, names, *more = json.loads(line)
        if more:
            names = found.get(relative, {}) | names
        for name in found.get(relative, {}).keys() - names.keys():
            below = name if relative == "." else f"{relative}/{name}"
            for gone in [key for key in found if key == below or key.startswith(f"{below}/")]:
                del found[gone]
        found[relative] = {name: (inode, is_folder) for name, (inode, is_folder) in names.items()}
    return found


def _names_of(folder: Path | None) -> _Names:
    if folder is None:
        return {}
    with os.scandir(folder) as entries:
        return {e.name: (e.inode(), e.is_dir(follow_symlinks=False)) for e in entries}
