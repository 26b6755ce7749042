"""The lock of a store's directory; that of other processes is tested with the store."""

from __future__ import annotations

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
