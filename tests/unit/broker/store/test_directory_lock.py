"""The lock of a store's directory; that of other processes is tested with the store."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from rmq_broker.store.directory_lock import DirectoryLock
from rmq_broker.store.errors import StoreDamaged


def test_one_lock_at_a_time(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    with pytest.raises(StoreDamaged, match=str(tmp_path)):
        DirectoryLock(tmp_path)
    lock.release()
    DirectoryLock(tmp_path).release()


def test_a_folder_by_another_name_is_the_same_folder(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "link").symlink_to("store")
    lock = DirectoryLock(tmp_path / "store")
    with pytest.raises(StoreDamaged):
        DirectoryLock(tmp_path / "link")
    lock.release()


def test_two_folders(tmp_path: Path) -> None:
    locks = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        locks.append(DirectoryLock(tmp_path / name))
    for lock in locks:
        lock.release()


def test_the_content_of_the_lock_file_stays(tmp_path: Path) -> None:
    """Apache's broker writes a word into it."""
    (tmp_path / "lock").write_bytes(b"lock")
    DirectoryLock(tmp_path).release()
    assert (tmp_path / "lock").read_bytes() == b"lock"


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        DirectoryLock(tmp_path / "missing")


def test_two_stores_with_one_commit_log(tmp_path: Path) -> None:
    for name in ("a", "b", "log"):
        (tmp_path / name).mkdir()
    lock = DirectoryLock(tmp_path / "a", tmp_path / "log")
    with pytest.raises(StoreDamaged, match=r"log is in use by another broker; .* its own storePathCommitLog"):
        DirectoryLock(tmp_path / "b", tmp_path / "log")
    DirectoryLock(tmp_path / "b").release()
    lock.release()
    DirectoryLock(tmp_path / "b", tmp_path / "log").release()
    assert not list((tmp_path / "log").iterdir())


@pytest.mark.parametrize("number", [errno.EBADF, errno.ENOLCK])
def test_a_file_system_without_locks_for_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    lock = DirectoryLock(tmp_path, tmp_path)
    assert "commit log not locked" in caplog.text
    with pytest.raises(StoreDamaged):
        DirectoryLock(tmp_path)
    lock.release()


def test_a_folder_that_cannot_be_locked_leaves_no_lock_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", refuse)
        with pytest.raises(OSError, match="Input/output error"):
            DirectoryLock(tmp_path, tmp_path)
    DirectoryLock(tmp_path, tmp_path).release()
