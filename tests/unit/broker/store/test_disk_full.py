"""A full disk: messages are refused as a whole, and accepted again when there is space."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmq_broker.store.errors import StoreUnavailable
from rmq_broker.store.message_store import MessageStore
from tests.support.small_disk import small_disk
from tests.support.stores import (
    LOG_FILE_BYTES,
    bodies,
    check_agreement,
    fill,
    log_file,
    opened,
    put,
    put_batch,
)
from tests.support.waiting import until


class Disk:
    """Lets `posix_fallocate` and `pwrite` fail while it is full."""

    def __init__(self) -> None:
        self.is_full = False
        self.left = 0  # calls that still succeed
        self._fallocate, self._pwrite = os.posix_fallocate, os.pwrite

    def fallocate(self, descriptor: int, offset: int, length: int) -> None:
        self._take()
        self._fallocate(descriptor, offset, length)

    def pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        self._take()
        return self._pwrite(descriptor, data, offset)

    def _take(self) -> None:
        if self.is_full:
            if self.left <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.left -= 1


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(os, "posix_fallocate", disk.fallocate)
    monkeypatch.setattr(os, "pwrite", disk.pwrite)
    return disk


def state(store: MessageStore) -> tuple[int, dict[tuple[str, int], int]]:
    return store.commit_log.max_offset, {
        (q.topic, q.queue_id): q.max_offset for q in store.queues if q.max_offset
    }


def refused(store: MessageStore, attempt: Callable[[], object]) -> None:
    """The attempt raises with the reason, and changes nothing."""
    before = state(store)
    failed = store.appender.puts_failed
    with pytest.raises(StoreUnavailable, match=r"no room .* on the disk of .*: .*No space left on device"):
        attempt()
    assert state(store) == before
    assert store.appender.puts_failed == failed + 1


def test_the_first_message_of_a_store(tmp_path: Path, disk: Disk) -> None:
    store = opened(tmp_path)
    disk.is_full = True
    refused(store, lambda: put(store))
    refused(store, lambda: put_batch(store, [b"a", b"b"]))
    disk.is_full = False
    assert put(store) == (0, 0)
    store.close()
    assert check_agreement(tmp_path) == 1


def test_a_disk_full_for_the_next_file(tmp_path: Path, disk: Disk) -> None:
    """No blank is written before the next file exists, and none twice."""
    store = opened(tmp_path)
    first = b"x" * (LOG_FILE_BYTES - 400)
    put(store, first)
    disk.is_full = True
    for _ in range(3):
        refused(store, lambda: put(store, b"y" * 1000))
    assert len(list((tmp_path / "commitlog").iterdir())) == 1
    disk.left = 1
    put(store, b"")  # an append that needs no new file still succeeds
    disk.is_full = False
    assert put(store, b"y" * 1000) == (LOG_FILE_BYTES, 2)
    assert bodies(store) == [first, b"", b"y" * 1000]
    store.close()
    assert check_agreement(tmp_path) == 3


def test_a_disk_full_for_the_blank(tmp_path: Path, disk: Disk) -> None:
    store = opened(tmp_path)
    put(store, b"x" * (16 * 1024 - 97))  # exactly the reserved bytes
    assert store.commit_log.files[0].reserved == store.commit_log.max_offset
    disk.is_full = True
    disk.left = 1  # for the next file
    refused(store, lambda: put(store, b"y" * (LOG_FILE_BYTES - 200)))
    disk.is_full = False
    put(store, b"y" * (LOG_FILE_BYTES - 200))
    store.close()
    assert check_agreement(tmp_path) == 2


async def test_no_space_for_queue_entries(tmp_path: Path, disk: Disk) -> None:
    """Entries stay in memory, messages are refused until there is space, and nothing is lost or repeated."""
    store = opened(tmp_path, flushIntervalCommitLog=2, flushIntervalConsumeQueue=2)
    fill(store, 290)
    disk.is_full = True
    store.start()
    await until(lambda: store.unavailable_reason)
    with pytest.raises(StoreUnavailable, match=r"no queue entries can be written: .*No space left"):
        put(store, topic="Topic0")
    assert len(bodies(store, "Topic0")) == 290
    disk.is_full = False
    await until(lambda: store.unavailable_reason is None)
    assert put_batch(store, [b"x"] * 100, "Topic0")[1] == 290
    await store.stop()
    assert check_agreement(tmp_path) == 390


async def test_a_stop_without_space_for_queue_entries(tmp_path: Path, disk: Disk) -> None:
    """It is not a clean stop; the next start rebuilds the entries."""
    store = opened(tmp_path)
    fill(store, 290)
    disk.is_full = True
    with pytest.raises(OSError, match="No space left"):
        await store.stop()
    assert (tmp_path / "abort").exists()
    disk.is_full = False
    opened(tmp_path).close()
    assert check_agreement(tmp_path) == 290


@pytest.mark.parametrize("calls", range(6))
def test_a_stop_while_the_disk_is_full(tmp_path: Path, disk: Disk, calls: int) -> None:
    """The next start does not take a failed append for a message."""
    store = opened(tmp_path, log_file_bytes=1 << 20)
    fill(store, 290)
    disk.is_full, disk.left = True, calls
    batch = [b"x" * 1000] * 900
    with contextlib.suppress(StoreUnavailable):
        put_batch(store, batch, "Topic0")
    stored = store.max_offset("Topic0", 0)
    store.close()
    disk.is_full = False
    store = opened(tmp_path, log_file_bytes=1 << 20)
    assert store.max_offset("Topic0", 0) == stored
    assert put_batch(store, batch, "Topic0")[1] == stored
    store.close()
    assert check_agreement(tmp_path) == stored + 900


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EDQUOT, r"no room for the message on the disk of .*quota"),
        (errno.EMFILE, r"too many files are open; raise LimitNOFILE \(systemd\) or ulimit -n"),
        (errno.EIO, r"no file for the message can be made in .*: .*Input/output error"),
    ],
)
def test_other_reasons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str) -> None:
    store = opened(tmp_path)

    def fail(descriptor: int, offset: int, length: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", fail)
    with pytest.raises(StoreUnavailable, match=said):
        put(store)
    store.close()


# --- a real full disk ---


@pytest.fixture
def disk_folder(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB, where this process may mount one."""
    with small_disk(tmp_path / "disk", 1) as folder:
        yield folder


def test_a_small_disk_filled_completely(disk_folder: Path) -> None:
    root = disk_folder / "store"
    ballast = disk_folder / "ballast"
    ballast.write_bytes(bytes(300_000))
    store = opened(root)
    stored = 0
    with pytest.raises(StoreUnavailable, match="No space left on device"):
        while True:
            fill(store, 1, topics=1, size=500)
            stored += 1
    assert stored > 500
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            put(store, b"y" * 20_000, "Topic0")
    assert store.max_offset("Topic0", 0) == stored
    assert len(bodies(store, "Topic0")) == stored
    ballast.unlink()
    while stored < 900:
        fill(store, 1, topics=1, size=500)
        stored += 1
    log_files = len(list((root / "commitlog").iterdir()))
    store.close()
    assert log_files > 5 and log_file(root).stat().st_size == LOG_FILE_BYTES
    assert check_agreement(root) == stored
