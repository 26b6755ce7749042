"""Reading of mostly empty files: holes and zeros are skipped, and all other bytes are found."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_broker.store_tool import mapped_file
from rmq_broker.store_tool.mapped_file import BLOCK_BYTES, data_blocks, data_extents, first_data, mapped

_PAGE = 4096
_SIZE = 40 * _PAGE


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _file(path: Path, content: dict[int, bytes], *, size: int = _SIZE, sparse: bool = True) -> Path:
    """Create a file with content by position, and zeros between: as holes, or as written zeros."""
    with path.open("wb") as stream:
        if not sparse:
            stream.write(bytes(size))
        stream.truncate(size)
        for position, part in content.items():
            stream.seek(position)
            stream.write(part)
    return path


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_file, "BLOCK_BYTES", _PAGE)
    monkeypatch.setattr(mapped_file, "_ZEROS", bytes(_PAGE))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("sparse", [True, False], ids=["holes", "written zeros"])
def test_only_blocks_with_data_are_yielded(tmp_path: Path, sparse: bool) -> None:
    path = _file(tmp_path / "file", {0: b"a", 9 * _PAGE + 5: b"b", _SIZE - 1: b"c"}, sparse=sparse)
    with _opened(path) as descriptor:
        found = list(data_blocks(descriptor, 0, _SIZE))
        assert found == [(0, _PAGE), (9 * _PAGE, 10 * _PAGE), (_SIZE - _PAGE, _SIZE)]
        assert list(data_blocks(descriptor, 1, 9 * _PAGE)) == []
        inside = list(data_blocks(descriptor, 9 * _PAGE + 5, 9 * _PAGE + 6))
        assert inside == [(9 * _PAGE + 5, 9 * _PAGE + 6)]


@pytest.mark.parametrize("sparse", [True, False], ids=["holes", "written zeros"])
def test_the_first_data_from_a_position_on(tmp_path: Path, sparse: bool) -> None:
    size = 3 * BLOCK_BYTES + 77
    content = {5: b"a", BLOCK_BYTES + 7: b"b", size - 1: b"c"}
    path = _file(tmp_path / "file", content, size=size, sparse=sparse)
    expected = {0: 5, 5: 5, 6: BLOCK_BYTES + 7, BLOCK_BYTES + 8: size - 1, size - 1: size - 1, size: None}
    assert {position: first_data(path, position) for position in expected} == expected
    assert first_data(_file(tmp_path / "empty", {}, sparse=sparse), 0) is None


@pytest.mark.usefixtures("small_blocks")
@given(
    parts=st.dictionaries(st.integers(0, _SIZE - 10), st.binary(min_size=1, max_size=9), max_size=5),
    begin=st.integers(0, _SIZE),
)
def test_every_byte_with_data_is_in_a_block(
    tmp_path_factory: pytest.TempPathFactory, parts: dict[int, bytes], begin: int
) -> None:
    path = _file(tmp_path_factory.mktemp("file") / "file", parts)
    content = path.read_bytes()
    with _opened(path) as descriptor:
        blocks = list(data_blocks(descriptor, begin, _SIZE))
    inside = {position for low, high in blocks for position in range(low, high)}
    assert inside >= {position for position in range(begin, _SIZE) if content[position]}
    assert all(any(content[low:high]) for low, high in blocks)
    expected = next((position for position in range(begin, _SIZE) if content[position]), None)
    assert first_data(path, begin) == expected


def test_holes_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a preallocated gigabyte, only the stored part is read."""
    path = _file(tmp_path / "file", {0: b"a"}, size=1 << 30)
    with _opened(path) as descriptor:
        stored = list(data_extents(descriptor, 0, 1 << 30))
    if stored == [(0, 1 << 30)]:
        pytest.skip("this file system does not tell where holes are")
    read = _counted_reads(monkeypatch)
    with mapped(path) as content:
        assert list(content.blocks(0, 1 << 30)) == stored
    assert sum(read) <= BLOCK_BYTES


def _counted_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    read: list[int] = []
    preadv: Callable[..., int] = os.preadv

    def counted(*arguments: object) -> int:
        read.append(preadv(*arguments))
        return read[-1]

    monkeypatch.setattr(os, "preadv", counted)
    return read


def test_a_file_system_that_does_not_know_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EINVAL, "no holes here")

    path = _file(tmp_path / "file", {3: b"a"})
    monkeypatch.setattr(os, "lseek", refuse)
    with _opened(path) as descriptor:
        assert list(data_extents(descriptor, 2, _SIZE)) == [(2, _SIZE)]
        assert list(data_blocks(descriptor, 2, _SIZE)) == [(2, _SIZE)]


def test_a_disk_error_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "the disk cannot be read")

    path = _file(tmp_path / "file", {3: b"a"})
    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(OSError, match="cannot be read"):
        first_data(path, 0)


def test_released_memory_can_still_be_read(tmp_path: Path) -> None:
    path = _file(tmp_path / "file", {0: b"a", 5 * _PAGE: b"b"}, sparse=False)
    with mapped(path) as content:
        assert content.data[5 * _PAGE] == ord("b")
        before = _resident_bytes(path)
        content.release(0, _SIZE)
        assert _resident_bytes(path) == 0 < before
        assert (content.data[0], content.data[5 * _PAGE]) == (ord("a"), ord("b"))
        content.release(10, 20)  # less than a page: nothing is released


def _resident_bytes(path: Path) -> int:
    """Return the resident memory of a mapped file in this process."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            inside = line.endswith(str(path))
        elif inside and line.startswith("Rss:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"{path} is not mapped")


def test_an_empty_file(tmp_path: Path) -> None:
    path = _file(tmp_path / "file", {}, size=0)
    with mapped(path) as content:
        assert content.data == b""
        assert list(content.blocks(0, 100)) == []
        content.release(0, 100)
