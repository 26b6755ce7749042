"""Atomic replacement of files."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from rmq_remoting.daemon.atomic_file import folder_locked, read_file_or_backup, replace_file
from tests.support.flush_calls import FlushCall, intercepted_flushes


def test_the_folder_and_the_file_are_created(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    replace_file(path, b"{}")
    assert path.read_bytes() == b"{}"
    assert [each.name for each in path.parent.iterdir()] == ["topics.json"]


def test_the_names_of_new_folders_are_flushed(tmp_path: Path) -> None:
    flushed: list[str] = []

    def note(call: FlushCall) -> bool:
        flushed.append(str(Path(call.path).relative_to(tmp_path)))
        return True

    with intercepted_flushes(note):
        replace_file(tmp_path / "store" / "config" / "topics.json", b"{}")
        assert flushed == [".", "store", "store/config/topics.json.tmp", "store/config"]
        flushed.clear()
        replace_file(tmp_path / "store" / "config" / "topics.json", b"{}")
        assert flushed == ["store/config/topics.json.tmp", "store/config"]


def test_a_folder_whose_name_could_not_be_flushed_is_created_again(tmp_path: Path) -> None:
    flushed: list[str] = []

    def fail_once(call: FlushCall) -> bool:
        flushed.append(call.path)
        if len(flushed) == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return True

    path = tmp_path / "config" / "topics.json"
    with intercepted_flushes(fail_once):
        with pytest.raises(OSError, match=rf"Input/output error: '{tmp_path}'"):
            replace_file(path, b"{}")
        replace_file(path, b"{}")
    assert flushed[:2] == [str(tmp_path)] * 2
    assert path.read_bytes() == b"{}"


def test_the_previous_content_is_kept_as_backup(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    for content in (b"1", b"2", b"3"):
        replace_file(path, content, keep_backup=True)
    assert path.read_bytes() == b"3"
    assert (tmp_path / "topics.json.bak").read_bytes() == b"2"


def test_access_rights_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "secret.properties"
    path.write_bytes(b"1")
    path.chmod(0o600)
    replace_file(path, b"2")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_failed_write_keeps_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    path.write_bytes(b"old")
    (tmp_path / "topics.json.tmp").mkdir()  # in the way of the new content
    with pytest.raises(OSError, match=r"topics\.json\.tmp"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("content", [b"new", bytes(100_000)])
def test_a_full_disk_is_named_and_nothing_of_the_new_content_stays(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "topics.json"
    path.write_bytes(b"old")
    (tmp_path / "topics.json.tmp").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        replace_file(path, content, keep_backup=True)
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("topics.json", b"old")]
    replace_file(path, content, keep_backup=True)
    assert path.read_bytes() == content


def test_the_backup_is_read_if_the_file_is_missing_or_empty(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    assert read_file_or_backup(path) is None
    (tmp_path / "topics.json.bak").write_bytes(b"backup")
    assert read_file_or_backup(path) == b"backup"
    path.write_bytes(b"")
    assert read_file_or_backup(path) == b"backup"
    path.write_bytes(b"content")
    assert read_file_or_backup(path) == b"content"


def test_a_folder_is_locked_for_one_at_a_time(tmp_path: Path) -> None:
    order: list[str] = []
    with folder_locked(tmp_path):
        other = threading.Thread(target=_lock_and_note, args=(tmp_path, order))
        other.start()
        order.append("first")
    other.join()

    assert order == ["first", "second"]


def _lock_and_note(folder: Path, order: list[str]) -> None:
    with folder_locked(folder):
        order.append("second")


def test_a_folder_that_is_missing_cannot_be_locked(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), folder_locked(tmp_path / "none"):
        pass
