"""Flushing: its extent, the checkpoint after it, and a store that cannot flush."""

from __future__ import annotations

import asyncio
import errno
import mmap
import os
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from rmq_broker.store.errors import StoreUnavailable
from rmq_broker.store.flushing.flusher import Flusher, FlushPosition
from rmq_broker.store.message_store import MessageStore
from rmq_broker.store.recovery.checkpoint import Checkpoint
from rmq_broker.store.recovery.stop_marker import StopKind
from tests.support.stores import Clock, check_agreement, fill, new_store, opened, put, put_batch
from tests.support.waiting import until


class Disk:
    """Counts the flushes of mapped files; a gate blocks them."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.flushes = 0
        self.waiting = 0
        self.gate = threading.Event()
        self.gate.set()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()

    class Map(mmap.mmap):
        def flush(self, offset: int = 0, size: int = 0) -> None:
            disk.waiting += 1
            disk.gate.wait(10)
            disk.waiting -= 1
            if disk.error is not None:
                raise disk.error
            disk.flushes += 1
            super().flush(offset, size)

    monkeypatch.setattr(mmap, "mmap", Map)
    return disk


def started(root: Path) -> MessageStore:
    """A store that flushes every few milliseconds."""
    store = new_store(root, flushIntervalCommitLog=2, flushIntervalConsumeQueue=2, flushCommitLogLeastPages=0)
    store.open()
    store.start()
    return store


def checkpoint_of(root: Path) -> Checkpoint:
    return Checkpoint.load(root / "checkpoint")


async def test_everything_is_flushed_in_the_background(tmp_path: Path) -> None:
    clock = Clock()
    store = new_store(tmp_path, clock=clock, flushIntervalCommitLog=2, flushIntervalConsumeQueue=4)
    store.open()
    store.start()
    fill(store, 1000, topics=3, size=200)
    last_ms = clock.now_ms
    await until(lambda: checkpoint_of(tmp_path).queue_timestamp_ms == last_ms)
    assert store.commit_log.flushed_offset == store.commit_log.max_offset
    assert checkpoint_of(tmp_path).log_timestamp_ms == last_ms
    store.close()


class _Calls:
    """A clock that counts its calls: each pass of a flusher looks at it."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> float:
        self.count += 1
        return time.monotonic()


async def test_an_idle_store_writes_nothing(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, calls = opened(tmp_path, flushIntervalCommitLog=2, flushIntervalConsumeQueue=2), _Calls()
    put(store)
    position = FlushPosition(store.last_timestamp_ms, store.entries_end)
    parts = (store.commit_log, store.queues, Checkpoint(), store.settings, store.health)
    flusher = Flusher(*parts, lambda: position, clock=calls)
    running = asyncio.create_task(flusher.run())
    await until(lambda: checkpoint_of(tmp_path).queue_timestamp_ms > 0)
    seen = calls.count
    await until(lambda: calls.count > seen + 5)
    flushes = disk.flushes
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    seen = calls.count
    await until(lambda: calls.count > seen + 10)
    assert (disk.flushes, synced) == (flushes, [])
    running.cancel()
    flusher.close()
    store.close()


async def test_a_failed_flush_ends_writing_for_good(tmp_path: Path, disk: Disk) -> None:
    """It is not tried again: the kernel may have dropped the pages, and reports that once only."""
    store = started(tmp_path)
    put(store)
    await until(lambda: checkpoint_of(tmp_path).queue_timestamp_ms > 0)
    before = checkpoint_of(tmp_path)
    disk.error = OSError(errno.EIO, os.strerror(errno.EIO))
    put(store)
    await until(lambda: store.unavailable_reason)
    disk.error = None
    flushes = disk.flushes
    for attempt in (put, lambda store: put_batch(store, [b"a"])):
        with pytest.raises(StoreUnavailable, match=r"flushing to the disk failed: .*Input/output error"):
            attempt(store)
    assert store.get("TopicA", 0, 0, 32, None).count == 2  # reading goes on
    with pytest.raises(OSError, match="an earlier flush failed"):
        store.flush()
    await store.stop()
    assert disk.flushes == flushes
    assert (tmp_path / "abort").exists()
    assert checkpoint_of(tmp_path) == before


async def test_after_a_failed_flush_the_next_start_checks(tmp_path: Path, disk: Disk) -> None:
    store = started(tmp_path)
    disk.error = OSError(errno.EIO, os.strerror(errno.EIO))
    put(store)
    await until(lambda: store.unavailable_reason)
    await store.stop()
    disk.error = None
    store = opened(tmp_path)
    assert store.recovery is not None and store.recovery.stop is StopKind.PROCESS_KILLED
    put(store)
    store.flush()
    store.close()
    assert check_agreement(tmp_path) == 2


async def test_any_error_that_ends_flushing_is_reported(tmp_path: Path, disk: Disk) -> None:
    store = started(tmp_path)
    disk.error = ValueError("mmap closed or invalid")
    put(store)
    await until(lambda: store.unavailable_reason)
    with pytest.raises(StoreUnavailable, match="mmap closed or invalid"):
        put(store)
    store.close()


async def test_a_stop_that_cannot_flush_is_not_a_clean_stop(tmp_path: Path, disk: Disk) -> None:
    store = opened(tmp_path)
    put(store)
    disk.error = OSError(errno.EIO, os.strerror(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        await store.stop()
    assert (tmp_path / "abort").exists()
    assert not (tmp_path / "rmq_queues.json").exists()
    disk.error = None
    opened(tmp_path).close()  # it is not locked any more


async def test_stop_waits_for_the_running_flush(tmp_path: Path, disk: Disk) -> None:
    store = started(tmp_path)
    disk.gate.clear()
    put(store)
    await until(lambda: disk.waiting)
    stopping = asyncio.ensure_future(store.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    assert store.commit_log.files  # the running flush keeps its files mapped
    disk.gate.set()
    await stopping
    assert store.unavailable_reason == "the store is closed"
    assert not (tmp_path / "abort").exists()
    assert check_agreement(tmp_path) == 1


async def test_a_topic_deleted_while_it_is_flushed(tmp_path: Path, disk: Disk) -> None:
    """The flush does not fail, and flushing continues."""
    store = started(tmp_path)
    disk.gate.clear()
    fill(store, 20, topics=5)
    await until(lambda: disk.waiting)
    store.delete_topics([f"Topic{number}" for number in range(5)]).result()
    disk.gate.set()
    put(store)
    await until(lambda: store.commit_log.flushed_offset == store.commit_log.max_offset)
    await until((tmp_path / "checkpoint").exists)
    assert store.unavailable_reason is None
    await store.stop()
    assert [path.name for path in (tmp_path / "consumequeue").iterdir()] == ["TopicA"]


def test_names_of_new_files_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[str] = set()
    monkeypatch.setattr(os, "fsync", lambda fd: synced.add(str(Path(f"/proc/self/fd/{fd}").readlink())))
    store = opened(tmp_path)
    put(store)
    synced.clear()
    store.flush()
    folders = ("commitlog", "consumequeue/TopicA/0", "consumequeue/TopicA", "consumequeue", "checkpoint")
    assert synced >= {str(tmp_path / folder) for folder in folders} | {str(tmp_path)}
    synced.clear()
    put(store)
    store.flush()
    assert synced == {str(tmp_path / name) for name in ("checkpoint", "rmq_checkpoint")}
    store.close()


def test_the_abort_file_is_durable_before_the_store_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink().name))
    opened(tmp_path).close()
    assert "abort.tmp" in synced and "rmq_boot_id.tmp" in synced
    assert synced[-1] == tmp_path.name


class _SlowQueues:
    """Queues that take a number of seconds to write; a clock shows them."""

    def __init__(self) -> None:
        self.now = self.takes = 0.0
        self.written: list[float] = []

    def clock(self) -> float:
        return self.now

    def write_out(self) -> bool:
        self.written.append(round(self.now, 3))
        self.now += self.takes
        return True


def test_queues_that_are_slow_to_write_are_written_less_often(tmp_path: Path) -> None:
    store, queues = opened(tmp_path), _SlowQueues()
    flusher = Flusher(
        store.commit_log,
        queues,  # type: ignore[arg-type]
        Checkpoint(),
        store.settings,
        store.health,
        lambda: FlushPosition(0, 0),
        clock=queues.clock,
    )

    def run(seconds: float) -> list[float]:
        queues.written.clear()
        end = queues.now + seconds
        while queues.now < end:
            flusher.flush_due(FlushPosition(0, 0))
            queues.now = round(queues.now + 0.5, 3)
        return list(queues.written)

    assert run(5) == [1, 2, 3, 4]
    queues.takes = 0.1  # two seconds between two writes
    assert all(2 < later - earlier < 2.7 for earlier, later in pairwise(run(20)[1:]))
    queues.takes = 100  # at most ten seconds
    first, second, *_ = run(300)
    assert second - (first + queues.takes) <= 10.5
    queues.takes = 0
    assert len(run(20)) > 5
    flusher.close()
    store.close()
