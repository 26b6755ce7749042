"""Errors of open files, and reads that hide none."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rmq_remoting.daemon.atomic_file import replace_file, sync_folder
from rmq_remoting.daemon.file_errors import naming_file, read_at, read_file
from tests.support.unreadable_pages import PAGE_BYTES, UnreadablePages, unreadable_file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"a" * PAGE_BYTES + b"b" * PAGE_BYTES + b"c")
    return path


def test_a_read_is_short_only_at_the_end_of_the_file(path: Path) -> None:
    with path.open("rb") as file:
        assert read_at(file.fileno(), 2, PAGE_BYTES - 1) == b"ab"
        assert read_at(file.fileno(), 9, 2 * PAGE_BYTES - 1) == b"bc"
        assert read_at(file.fileno(), 9, 3 * PAGE_BYTES) == b""


@pytest.mark.parametrize("position", [0, PAGE_BYTES - 1, PAGE_BYTES, PAGE_BYTES + 100])
def test_a_read_fails_whichever_of_its_pages_is_unreadable(path: Path, position: int) -> None:
    disk = UnreadablePages()
    disk.add(path, PAGE_BYTES)
    with disk.installed(), path.open("rb") as file:
        with pytest.raises(OSError, match=rf"Input/output error: '{path}'"):
            read_at(file.fileno(), PAGE_BYTES + 1, position)
        assert read_at(file.fileno(), 9, 2 * PAGE_BYTES) == b"c"


def test_an_error_in_a_whole_file_names_it(path: Path) -> None:
    assert len(read_file(path)) == 2 * PAGE_BYTES + 1
    with unreadable_file(path), pytest.raises(OSError, match=rf"Input/output error: '{path}'"):
        read_file(path)
    with pytest.raises(FileNotFoundError):
        read_file(path.with_name("missing"))


def test_a_name_that_is_known_stays(path: Path) -> None:
    with path.open("rb") as file, pytest.raises(OSError, match="'another'"), naming_file(file.fileno()):
        raise OSError(errno.EIO, "Input/output error", "another")


def test_an_error_of_a_closed_file_stays_as_it_is() -> None:
    with pytest.raises(OSError, match=r"Bad file descriptor$"):
        read_at(1 << 20, 1, 0)


@pytest.mark.parametrize("name", ["file.tmp", ""])
def test_a_failed_flush_names_the_file_or_folder(
    path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=rf"Input/output error: '{path.parent / name}'"):
        if name:
            replace_file(path, b"new")
        else:
            sync_folder(path.parent)
