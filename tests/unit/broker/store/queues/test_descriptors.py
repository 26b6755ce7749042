"""Files kept open for all queues."""

from __future__ import annotations

import errno
import os
import resource
import threading
from pathlib import Path

import pytest

from rmq_broker.store.queues.descriptors import Descriptors, OpenFile, flush_file_system
from tests.support.stores import open_files_of_process


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    return path


def test_an_open_file_is_closed_with_its_last_reader(path: Path) -> None:
    shared = Descriptors(1)
    owner = object()
    file = shared.open((owner, 0), path)
    assert shared.get((owner, 0)) is shared.open((owner, 0), path) is file
    other = shared.open((owner, 1), path)
    assert shared.get((owner, 0)) is None  # the oldest was evicted
    assert file.read(0, 7) == b"content"
    before = open_files_of_process()
    del file
    assert open_files_of_process() == before - 1
    shared.forget(object())
    assert shared.get((owner, 1)) is other
    shared.forget(owner)
    assert len(shared) == 0


def test_the_least_recently_used_file_is_evicted(path: Path) -> None:
    shared = Descriptors(3)
    owner = object()
    for start in (0, 1, 2):
        shared.open((owner, start), path)
    assert shared.get((owner, 0)) is not None
    shared.open((owner, 3), path)
    assert [start for start in range(4) if shared.get((owner, start))] == [0, 2, 3]
    shared.discard((owner, 2))
    shared.discard((owner, 7))
    assert [start for start in range(4) if shared.get((owner, start))] == [0, 3]
    shared.close()
    assert len(shared) == 0


def test_without_descriptors_the_open_files_are_closed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Descriptors(10)
    owner = object()
    for start in range(3):
        shared.open((owner, start), path)

    open_file = os.open

    def fail(path: str | Path, *arguments: int) -> int:
        if len(shared):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return open_file(path, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", fail)
        assert shared.open((owner, 3), path).read(0, 7) == b"content"
    assert len(shared) == 1
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", fail)
        shared.close()
        shared.open((owner, 4), path)
    shared.close()


def test_a_share_of_the_processs_descriptors_is_used(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (40, 40))
    shared = Descriptors()
    owner = object()
    for start in range(30):
        shared.open((owner, start), path)
    assert len(shared) == 10
    shared.close()


def test_a_missing_file(tmp_path: Path) -> None:
    shared = Descriptors(3)
    with pytest.raises(FileNotFoundError):
        shared.open((self := object(), 0), tmp_path / "missing")
    assert shared.get((self, 0)) is None


def test_many_threads_and_few_files(tmp_path: Path) -> None:
    """Each thread reads its file, although files are opened and closed, and descriptors reused."""
    for number in range(20):
        (tmp_path / str(number)).write_bytes(b"%02d" % number)
    before = open_files_of_process()
    shared = Descriptors(3)
    owner = object()
    wrong: list[bytes] = []

    def read(seed: int) -> None:
        for step in range(500):
            number = (step * 7 + seed) % 20
            found = shared.open((owner, number), tmp_path / str(number)).read(0, 2)
            if found != b"%02d" % number:
                wrong.append(found)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(shared) == 3
    shared.close()
    assert open_files_of_process() == before


def test_a_file_that_cannot_be_opened_closes_nothing(tmp_path: Path) -> None:
    before = open_files_of_process()
    with pytest.raises(OSError, match="missing"):
        OpenFile(tmp_path / "missing")
    assert open_files_of_process() == before


def test_a_file_system_is_flushed(path: Path) -> None:
    assert flush_file_system(path.parent)
    assert not flush_file_system(path.parent / "missing")
