"""A mapped file: reserving, flushing, truncating, and folders of files."""

from __future__ import annotations

import errno
import gc
import mmap
import os
from itertools import pairwise
from pathlib import Path

import pytest

from rmq_broker.store.errors import StoreDamaged
from rmq_broker.store.log.mapped_file import MappedFile, file_name, list_files, open_files

SIZE = 256 * 1024
STEP = 64 * 1024


def new_file(folder: Path, start: int = 0) -> MappedFile:
    return MappedFile(folder / file_name(start), SIZE, step_bytes=STEP)


def open_all(folder: Path) -> list[MappedFile]:
    return open_files(folder, SIZE, step_bytes=STEP, advice="set someSetting")


def test_a_new_file_has_its_size_and_takes_no_space(tmp_path: Path) -> None:
    file = new_file(tmp_path, SIZE)
    assert (file.start, file.path.stat().st_size) == (SIZE, SIZE)
    assert file.path.stat().st_blocks == 0
    file.close()


def test_a_file_that_cannot_be_mapped_is_closed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number may belong to another file by the time that the object is collected."""
    numbers: list[int] = []

    def fail(descriptor: int, size: int) -> None:
        numbers.append(descriptor)
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    with monkeypatch.context() as patch:
        patch.setattr(mmap, "mmap", fail)
        with pytest.raises(OSError, match="Cannot allocate memory") as raised:
            MappedFile(tmp_path / file_name(0), SIZE, step_bytes=STEP)
    with (tmp_path / "other").open("w") as other:
        assert other.fileno() == numbers[0]
        del raised  # with the object, which its frames refer to
        gc.collect()
        os.fsync(other.fileno())


def test_space_is_reserved_in_growing_steps(tmp_path: Path) -> None:
    file = new_file(tmp_path)
    steps = [file.reserved]
    for position in range(0, SIZE, 1024):
        file.reserve(position + 1024)
        if file.reserved != steps[-1]:
            steps.append(file.reserved)
            assert file.path.stat().st_blocks * 512 >= file.reserved
        assert file.reserved >= position + 1024
    assert steps[:4] == [0, 16 * 1024, 32 * 1024, 64 * 1024]
    assert max(b - a for a, b in pairwise(steps)) == STEP
    assert steps[-1] == SIZE
    file.reserve(SIZE)
    file.close()


def test_reserving_keeps_the_content(tmp_path: Path) -> None:
    file = new_file(tmp_path)
    file.map[100:105] = b"hello"
    file.reserve(SIZE)
    assert file.map[100:105] == b"hello"
    file.close()


def test_flushing_covers_all_written_bytes(tmp_path: Path) -> None:
    file = new_file(tmp_path)
    for until in (10, 4096, 4097, 100_000, SIZE):
        file.wrote = until
        assert file.flush() == until == file.flushed
    assert file.flush() == SIZE
    file.close()


def test_truncated_bytes_are_zero(tmp_path: Path) -> None:
    file = new_file(tmp_path)
    file.reserve(SIZE)
    file.map[:] = b"x" * SIZE
    file.wrote = file.flushed = SIZE
    file.cut(5000)
    assert (file.wrote, file.flushed, file.reserved) == (5000, 5000, 5000)
    assert file.map[:] == b"x" * 5000 + bytes(SIZE - 5000)
    file.map[5000:5005] = b"again"
    file.close()
    assert (tmp_path / file_name(0)).read_bytes() == b"x" * 5000 + b"again" + bytes(SIZE - 5005)


def test_a_deleted_file_can_still_be_flushed(tmp_path: Path) -> None:
    """The flusher may be flushing it, and needs neither the name nor the folder."""
    folder = tmp_path / "queue"
    folder.mkdir()
    file = new_file(folder)
    file.map[:5] = b"hello"
    file.wrote = 5
    file.delete()
    folder.rmdir()
    assert file.flush() == 5
    assert not folder.exists()


def test_only_files_named_by_an_offset_are_listed(tmp_path: Path) -> None:
    for name in (file_name(2 * SIZE), file_name(0), "abc", "123", "٠" * 20, file_name(SIZE) + ".bak"):
        (tmp_path / name).touch()
    assert [path.name for path in list_files(tmp_path)] == [file_name(0), file_name(2 * SIZE)]
    assert list_files(tmp_path / "missing") == []


def test_opened_files_count_as_full_and_flushed(tmp_path: Path) -> None:
    for start in (0, SIZE):
        new_file(tmp_path, start).close()
    for file in open_all(tmp_path):
        assert (file.wrote, file.flushed, file.reserved) == (SIZE, SIZE, SIZE)
        file.close()


@pytest.mark.parametrize("found", [0, 1, 5000])
def test_a_short_last_file_is_extended(tmp_path: Path, found: int) -> None:
    """Stopped between the two steps of creating or truncating it."""
    new_file(tmp_path, 0).close()
    (tmp_path / file_name(SIZE)).write_bytes(b"x" * found)
    last = open_all(tmp_path)[-1]
    assert last.map[:] == b"x" * found + bytes(SIZE - found)
    assert last.path.stat().st_size == SIZE


@pytest.mark.parametrize(
    ("index", "size"), [(0, SIZE - 1), (0, 0), (0, SIZE + 1), (1, SIZE + 1), (1, 10 * SIZE)]
)
def test_files_of_another_size_are_refused(tmp_path: Path, index: int, size: int) -> None:
    """A wrong setting must not truncate a store's files."""
    for start in (0, SIZE):
        new_file(tmp_path, start).close()
    path = tmp_path / file_name(index * SIZE)
    os.truncate(path, size)
    with pytest.raises(
        StoreDamaged, match=rf"{path.name} has {size} bytes instead of {SIZE}: set someSetting"
    ):
        open_all(tmp_path)
    assert path.stat().st_size == size
