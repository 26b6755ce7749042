"""A disk that fails: unflushed data does not count as durable, and derived data is rebuilt.

(A full disk: `test_disk_full.py`; unreadable pages: `test_read_errors.py`; the index:
`index/test_message_index.py`; the log: `flushing/test_flusher.py`; the JSON files of the broker, with power
cuts: `persistence/test_power_cut.py`.)
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from rmq_broker.store.durability import Durability
from rmq_broker.store.errors import StoreUnavailable
from rmq_broker.store.index.message_index import IndexPace
from rmq_broker.store.message_store import MessageStore
from rmq_broker.store.recovery.fine_checkpoint import FineCheckpoint, invalidate_written
from rmq_broker.store.recovery.stop_marker import StopKind
from rmq_broker.store_tool.verify import verify
from tests.support.flush_calls import FlushCall, intercepted_flushes
from tests.support.stores import (
    bodies,
    check_agreement,
    content_of,
    fill,
    log_file,
    new_store,
    opened,
    overwrite,
    put,
)
from tests.support.waiting import until

MESSAGES = 200
_EIO_OF_QUEUE = ".*Input/output error: '.*/consumequeue/"


class Disk:
    """Lets calls fail on files with a text in their path."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number = errno.EIO
        self.failing: dict[str, str] = {}  # by the call's name
        self.failures = 0
        for name in ("fsync", "fdatasync", "pwrite", "posix_fallocate", "ftruncate"):
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name)))

    def _watched(self, name: str, call: Callable[..., object]) -> Callable[..., object]:
        def watched(descriptor: int, *arguments: object) -> object:
            where = self.failing.get(name)
            if where is not None and where in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
                self.failures += 1
                raise OSError(self.number, os.strerror(self.number))
            return call(descriptor, *arguments)

        return watched


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    with monkeypatch.context() as patch:
        yield Disk(patch)


def started(root: Path, **keys: object) -> MessageStore:
    """A store that flushes every few milliseconds."""
    quick = {"flushIntervalCommitLog": 2, "flushIntervalConsumeQueue": 2, "flushCommitLogLeastPages": 0}
    store = new_store(root, **quick, **keys)  # type: ignore[arg-type]
    store.open()
    store.start()
    return store


def check_whole(root: Path, messages: int) -> None:
    """After a clean stop all messages exist, and log and queues agree."""
    assert check_agreement(root) == messages
    assert [finding for finding in verify(root).findings if finding.is_error] == []


def drop_unflushed_entries(root: Path, topic: str, kept: int) -> None:
    """Pages that the kernel could not write are dropped from memory, too."""
    (path,) = (root / "consumequeue" / topic / "0").iterdir()
    overwrite(path, kept * 20, bytes(path.stat().st_size - kept * 20))


# --- the log ---


@pytest.mark.parametrize("mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_failed_flush_of_the_log_ends_writing(tmp_path: Path, mode: str) -> None:
    """Flushed messages stay. The kernel drops the pages of the others, and its next flush would succeed."""
    is_failing = False

    def handle(call: FlushCall) -> bool:
        if is_failing and "commitlog/0" in call.path:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return False

    with intercepted_flushes(handle):
        store = started(tmp_path, flushDiskType=mode)
        fill(store, 20)
        await until(lambda: _flushed(tmp_path) == store.max_phy_offset())
        is_failing = True
        lost, _ = put(store, b"undecided", "Topic0")
        if mode == "SYNC_FLUSH":
            assert await store.durable() is Durability.FLUSH_FAILED
        await until(lambda: store.unavailable_reason)
        is_failing = False
        with pytest.raises(
            StoreUnavailable,
            match=r"flushing to the disk failed: .*Input/output error: '.*commitlog/0{20}'",
        ):
            put(store)
        assert len(bodies(store, "Topic0", last=20)) == 20
        await store.stop()
    overwrite(log_file(tmp_path), lost, bytes(1000))
    store = opened(tmp_path)
    assert put(store, b"next", "Topic0")[1] == 20
    await store.stop()
    check_whole(tmp_path, 21)


# --- the index ---


@pytest.mark.parametrize("call", ["posix_fallocate", "fsync"])
async def test_an_index_that_cannot_be_written_refuses_no_message(
    tmp_path: Path, disk: Disk, call: str
) -> None:
    """It catches up when the disk can be written again."""
    store = started(tmp_path, maxIndexNum=50)
    store.index.pace = IndexPace(retry_seconds=0.01)
    put_keys(store, range(60))
    disk.failing[call] = "/index/"
    put_keys(store, range(60, 240))
    await until(lambda: store.index.failure)
    assert store.unavailable_reason is None
    assert re.search(r"Input/output error: '.*/index/", str(store.index.failure))
    disk.failing.clear()
    await until(lambda: store.index.failure is None and not store.index.statistics().behind_bytes)
    check_keys(store, 240)
    await store.stop()
    check_whole(tmp_path, 240)
    store = opened(tmp_path, maxIndexNum=50)
    check_keys(store, 240)
    await store.stop()


def put_keys(store: MessageStore, numbers: Iterable[int]) -> None:
    for number in numbers:
        put(store, b"", "Topic0", properties=b"KEYS\x01k%d\x02" % number)


def check_keys(store: MessageStore, count: int) -> None:
    """Each of these messages is found by its key."""
    for number in range(count):
        found = store.query_by_key("Topic0", f"k{number}", 32, 0, 1 << 60).offsets
        assert len(found) == 1, f"k{number}"


# --- small files ---


@pytest.mark.parametrize("name", ["abort", "rmq_boot_id"])
async def test_a_start_that_cannot_mark_the_directory_names_the_file(
    tmp_path: Path, disk: Disk, name: str
) -> None:
    """Otherwise the directory would look cleanly stopped after a power cut."""
    store = opened(tmp_path)
    fill(store, 20)
    await store.stop()
    disk.failing["fsync"] = name
    with pytest.raises(OSError, match=rf"Input/output error: '.*/{name}\.tmp'"):
        opened(tmp_path)
    disk.failing.clear()
    store = opened(tmp_path)
    assert put(store, b"next", "Topic0")[1] == 20
    await store.stop()
    check_whole(tmp_path, 21)


@pytest.mark.parametrize("is_repeated", [True, False], ids=["repeated", "retried"])
async def test_a_deletion_that_cannot_be_persisted_is_continued(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture, is_repeated: bool
) -> None:
    """Meanwhile consumers see no queue, and the entries of a recreated topic stay in memory."""
    store = opened(tmp_path)
    fill(store, 20, topics=2)
    store.queues.write_out()
    files = content_of(tmp_path / "consumequeue/Topic0/0")
    disk.failing["fsync"] = "rmq_queues.json"
    with pytest.raises(OSError, match=r"Input/output error: '.*/rmq_queues\.json\.tmp'"):
        store.delete_topics(["Topic0"]).result()
    assert store.queues.topics() == ["Topic1"]
    assert put(store, b"new", "Topic0")[1] == 0
    assert bodies(store, "Topic0") == [b"new"]
    assert not store.queues.write_out()
    assert content_of(tmp_path / "consumequeue/Topic0/0") == files
    disk.failing.clear()
    if is_repeated:
        store.delete_topics(["Unknown"]).result()
    else:
        store.deletions.retry()
    assert "files of deleted topics removed" in caplog.text
    assert store.queues.write_out()
    assert bodies(store, "Topic0") == [b"new"]
    store.close()
    store = opened(tmp_path)
    assert [store.max_offset(topic, 0) for topic in ("Topic0", "Topic1")] == [1, 10]
    await store.stop()


async def test_a_stop_that_cannot_persist_a_deletion_leaves_the_store_as_after_a_crash(
    tmp_path: Path, disk: Disk
) -> None:
    store = opened(tmp_path)
    fill(store, 20, topics=2)
    disk.failing["fsync"] = "rmq_queues.json"
    with pytest.raises(OSError, match="Input/output error"):
        store.delete_topics(["Topic0"]).result()
    put(store, b"new", "Topic0")
    with pytest.raises(OSError, match="Input/output error"):
        await store.stop()
    disk.failing.clear()
    store = opened(tmp_path)
    assert bodies(store, "Topic0") == [b"new"]
    await store.stop()


# --- queues ---


@pytest.mark.parametrize("call", ["pwrite", "ftruncate"])
async def test_entries_that_cannot_be_written_are_written_later(
    tmp_path: Path, disk: Disk, call: str
) -> None:
    """Entries stay in memory meanwhile: none is lost, but messages are refused."""
    disk.failing[call] = "consumequeue"
    store = started(tmp_path)
    fill(store, MESSAGES)
    await until(lambda: store.unavailable_reason)
    with pytest.raises(StoreUnavailable, match=rf"no queue entries can be written: {_EIO_OF_QUEUE}"):
        put(store)
    assert len(bodies(store, "Topic0")) == MESSAGES
    disk.failing.clear()
    await until(lambda: store.unavailable_reason is None)
    put(store, b"next", "Topic0")
    await store.stop()
    check_whole(tmp_path, MESSAGES + 1)


async def test_killed_while_entries_cannot_be_written(tmp_path: Path, disk: Disk) -> None:
    store = started(tmp_path)
    disk.failing["pwrite"] = "consumequeue"
    fill(store, MESSAGES, topics=2)
    await until(lambda: store.unavailable_reason)
    store.close()
    disk.failing.clear()
    store = opened(tmp_path)
    assert len(bodies(store, "Topic1")) == MESSAGES // 2
    await store.stop()
    check_whole(tmp_path, MESSAGES)


@pytest.mark.parametrize("is_stopped", [True, False])
async def test_entries_lost_by_a_failed_flush_are_rebuilt(
    tmp_path: Path, disk: Disk, is_stopped: bool
) -> None:
    """Although the machine has not stopped, and newer messages are in other queues.

    Entries that were written but not flushed may be missing from the files: no offset is assigned twice.
    """
    store = started(tmp_path)
    fill(store, 20, topics=2)
    await until(lambda: _flushed(tmp_path) == store.max_phy_offset())
    disk.failing["fdatasync"] = "consumequeue"
    fill(store, 80, topics=2)
    put(store, b"the newest", "Topic1")
    await until(lambda: store.unavailable_reason)
    with pytest.raises(StoreUnavailable, match=rf"flushing to the disk failed: {_EIO_OF_QUEUE}"):
        put(store)
    disk.failing.clear()
    if is_stopped:
        await store.stop()
    else:
        await until(lambda: _written(tmp_path) <= _flushed(tmp_path))
        store.close()
    drop_unflushed_entries(tmp_path, "Topic0", 10)
    store = opened(tmp_path)
    assert store.recovery is not None and store.recovery.stop is StopKind.PROCESS_KILLED
    assert put(store, b"next", "Topic0")[1] == 50
    assert len(bodies(store, "Topic0")) == 51
    await store.stop()
    check_whole(tmp_path, 102)


async def test_a_flush_that_failed_for_lack_of_space_is_final(tmp_path: Path, disk: Disk) -> None:
    """As on thin disks and NFS: the kernel drops the pages, and the next flush would succeed without them."""
    store = started(tmp_path)
    fill(store, 20)
    await until(lambda: _flushed(tmp_path) == store.max_phy_offset())
    flushed = _flushed(tmp_path)
    disk.number = errno.ENOSPC
    disk.failing["fdatasync"] = "consumequeue"
    put(store, b"last", "Topic0")
    await until(lambda: store.unavailable_reason)
    disk.failing.clear()
    await store.stop()
    assert _written(tmp_path) == _flushed(tmp_path) == flushed
    drop_unflushed_entries(tmp_path, "Topic0", 20)
    store = opened(tmp_path)
    assert put(store, b"next", "Topic0")[1] == 21
    await store.stop()
    check_whole(tmp_path, 22)


def test_written_is_lowered_to_flushed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "rmq_checkpoint"
    invalidate_written(path)
    assert not path.exists()
    FineCheckpoint(300, 200).save(path, durable=False)
    invalidate_written(path)
    assert FineCheckpoint.load(path) == FineCheckpoint(200, 200)
    path.unlink()
    path.mkdir()
    invalidate_written(path)
    assert "remove it before the next start" in caplog.text


# --- preallocation and checkpoints ---


@pytest.mark.parametrize("call", ["fsync", "pwrite", "posix_fallocate"])
async def test_a_failed_preallocation(tmp_path: Path, disk: Disk, call: str) -> None:
    """Messages are accepted while an append can allocate itself; no incomplete file stays."""
    store = started(tmp_path)
    fill(store, 1)
    disk.failing[call] = "commitlog/0"
    stored = 1
    try:
        while store.max_phy_offset() < 3 * 65536:
            put(store, b"x" * 500, "Topic0")
            stored += 1
        assert call != "posix_fallocate"
    except StoreUnavailable as error:
        assert call == "posix_fallocate" and "Input/output error: '" in str(error)
    assert store.unavailable_reason is None
    disk.failing.clear()
    assert put(store, b"next", "Topic0")[1] == stored
    await store.stop()
    check_whole(tmp_path, stored + 1)


@pytest.mark.parametrize("call", ["pwrite", "fsync"])
@pytest.mark.parametrize("name", ["/checkpoint", "rmq_checkpoint"])
async def test_checkpoints_that_cannot_be_written(
    tmp_path: Path, disk: Disk, call: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Checkpoints only make a start faster: messages are accepted, and the next checkpoint is written."""
    store = started(tmp_path)
    fill(store, 1)
    await until(lambda: _flushed(tmp_path) == store.max_phy_offset())
    disk.failing[call] = name
    fill(store, 1)
    await until(lambda: disk.failures > 5)
    fill(store, MESSAGES)
    assert store.unavailable_reason is None
    assert caplog.text.count("checkpoint not written") == 1
    disk.failing.clear()
    await until(lambda: _flushed(tmp_path) == store.max_phy_offset())
    assert "checkpoint written again" in caplog.text
    store.close()
    store = opened(tmp_path)
    await store.stop()
    check_whole(tmp_path, MESSAGES + 2)


def _flushed(root: Path) -> int:
    fine = FineCheckpoint.load(root / "rmq_checkpoint")
    return -1 if fine is None else fine.flushed


def _written(root: Path) -> int:
    fine = FineCheckpoint.load(root / "rmq_checkpoint")
    return -1 if fine is None else fine.written
