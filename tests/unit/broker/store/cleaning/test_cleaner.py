"""Deleting old files: which files, when, in which order, and their readers."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from rmq_broker.store.cleaning.cleaner import Cleaner
from rmq_broker.store.cleaning.disk_space import DiskLevel, DiskSpace
from rmq_broker.store.log.commit_log import CommitLog
from tests.support.broker_settings import broker_settings
from tests.support.clock import Clock
from tests.support.waiting import until
from tests.unit.broker.store.fake_disk import FakeDisk, Health

FILE_BYTES = 64 * 1024
HOUR_SECONDS = 3600


class Behind:
    """A queue, or the index."""

    def __init__(self, files: int = 0) -> None:
        self.files = files
        self.calls: list[int] = []
        self.begin = 0
        self.error: OSError | None = None

    def advance_min(self, log_begin: int) -> None:
        self.begin = log_begin

    def delete_before(self, log_begin: int) -> int:
        self.calls.append(log_begin)
        if self.error is not None:
            raise self.error
        return self.files


class Store:
    """A log of six files, flushed, the last one being written, with two queues and an index behind it."""

    def __init__(self, folder: Path, **keys: object) -> None:
        self.folder = folder
        self.settings = broker_settings(
            storePathCommitLog=str(folder),
            deleteCommitLogFilesInterval=0,
            deleteConsumeQueueFilesInterval=0,
            **keys,
        )
        self.clock = Clock()
        self.disk = FakeDisk()
        self.space = DiskSpace(self.settings, Health(), self.disk.statvfs)
        self.log = CommitLog(folder, FILE_BYTES)
        self.log.load()
        for _ in range(6):
            file = self.log.file_for_append(FILE_BYTES - 8)
            file.map[: FILE_BYTES - 8] = b"x" * (FILE_BYTES - 8)
            file.wrote = FILE_BYTES - 8
        self.log.flush()
        self.last_written(hours_ago=0)
        self.queues = [Behind(), Behind()]
        self.index = Behind()
        self.cleaner = Cleaner(
            self.log, self.queues, [self.index], self.space, self.settings, self.clock.clocks
        )
        self.statistics = self.cleaner.statistics

    def last_written(self, hours_ago: float) -> None:
        seconds = self.clock.now_ms / 1000 - hours_ago * HOUR_SECONDS
        for path in self.folder.iterdir():
            os.utime(path, (seconds, seconds))

    def at_hour(self, hour: int) -> None:
        while datetime.fromtimestamp(self.clock.now_ms / 1000).hour != hour:
            self.clock.pass_seconds(HOUR_SECONDS)

    async def look(self, times: int = 1) -> list[int]:
        """Run rounds, each when it is due; return the numbers of the remaining files."""
        for _ in range(times):
            self.clock.pass_seconds(self.settings.clean_resource_interval_ms / 1000)
            await self.cleaner.look()
            await self.cleaner.follow()
        return self.left()

    def left(self) -> list[int]:
        on_disk = sorted(int(path.name) // FILE_BYTES for path in self.folder.iterdir())
        assert on_disk == [file.start // FILE_BYTES for file in self.log.files]
        assert self.log.min_offset == on_disk[0] * FILE_BYTES
        return on_disk


ALL = [0, 1, 2, 3, 4, 5]


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 (links that may be gone when they are looked at)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path)
    yield store
    store.log.close()


# --- due files ---


async def test_files_that_are_not_expired_stay(store: Store) -> None:
    store.at_hour(4)
    assert await store.look(3) == ALL
    assert store.statistics.log_files_deleted == 0
    assert store.statistics.last_round_ms == store.clock.now_ms
    assert store.queues[0].calls == [], "what begins at 0 has nothing before it"


@pytest.mark.parametrize(
    ("hours_ago", "expected"), [(71.99, ALL), (72, [5])], ids=["not yet", "the one that is written stays"]
)
async def test_expired_files_are_deleted_at_the_hour(
    store: Store, hours_ago: float, expected: list[int]
) -> None:
    store.at_hour(4)
    store.last_written(hours_ago)
    await store.cleaner.look()
    assert store.left() == expected


async def test_expired_files_stay_at_another_hour(store: Store) -> None:
    store.at_hour(5)
    store.last_written(hours_ago=1000)
    assert await store.look(2) == ALL
    store.settings.delete_when = "04;05"
    assert await store.look() == [5]


async def test_the_first_file_that_is_not_expired_ends_a_round(store: Store) -> None:
    """A file in the middle is never deleted, at any age."""
    store.at_hour(4)
    store.last_written(hours_ago=100)
    now = store.clock.now_ms / 1000
    os.utime(store.log.files[2].path, (now, now))
    assert await store.look(2) == [2, 3, 4, 5]


async def test_above_the_clean_ratio_expired_files_are_deleted_at_any_hour(store: Store) -> None:
    store.at_hour(5)
    store.disk.percent = 80
    assert await store.look() == ALL, "young files are kept"
    store.last_written(hours_ago=100)
    assert await store.look() == [5]


async def test_above_the_forcible_ratio_the_oldest_files_are_deleted_at_any_age(store: Store) -> None:
    store.at_hour(5)
    store.disk.percent = 86
    assert await store.look() == [5]
    assert store.statistics.log_files_deleted == 5


async def test_forced_deletion_stops_once_there_is_space(store: Store) -> None:
    """Apache's broker deletes deleteFileBatchMax files even if the first ones freed enough."""
    store.at_hour(5)
    store.disk.percent = lambda: 73 + 3 * len(list(store.folder.iterdir()))
    assert await store.look() == [2, 3, 4, 5]
    assert store.space.level is DiskLevel.CLEAN and store.space.refusal is None


async def test_forced_deletion_begins_before_the_next_round(store: Store) -> None:
    store.at_hour(5)
    store.settings.delete_file_batch_max = 2
    await store.look()
    store.disk.percent = 86
    await store.cleaner.look()
    assert store.left() == [2, 3, 4, 5]
    await store.cleaner.look()
    assert store.left() == [2, 3, 4, 5], "it is no reason to go faster than in rounds"
    store.disk.percent = 91
    await store.cleaner.look()
    assert store.left() == [4, 5]


async def test_forced_deletion_can_be_switched_off(store: Store) -> None:
    store.settings.clean_file_forcibly_enable = False
    store.at_hour(5)
    store.disk.percent = 95
    assert await store.look() == ALL
    store.last_written(hours_ago=100)
    assert await store.look() == [5]


async def test_a_round_deletes_a_limited_number_of_files(store: Store) -> None:
    store.at_hour(4)
    store.settings.delete_file_batch_max = 2
    store.last_written(hours_ago=100)
    assert await store.look() == [2, 3, 4, 5]
    await store.cleaner.look()
    assert store.left() == [2, 3, 4, 5], "the next round is not due yet"
    assert await store.look() == [4, 5]


async def test_unflushed_files_stay(store: Store) -> None:
    store.disk.percent = 95
    store.log.files[1].flushed -= 1
    assert await store.look() == [1, 2, 3, 4, 5]
    store.log.files[0].flushed += 1
    assert await store.look() == [5]


async def test_an_empty_log(tmp_path: Path) -> None:
    settings = broker_settings(storePathCommitLog=str(tmp_path))
    log, disk = CommitLog(tmp_path, FILE_BYTES), FakeDisk(99)
    await Cleaner(log, [], [], DiskSpace(settings, Health(), disk.statvfs), settings, Clock().clocks).look()
    assert log.oldest_file is None and log.min_offset == 0


# --- on request ---


async def test_a_request_deletes_all_expired_files(store: Store) -> None:
    """At any hour, without waiting for the next round, in as many batches as needed."""
    store.at_hour(5)
    store.settings.delete_file_batch_max = 2
    store.last_written(hours_ago=100)
    await store.cleaner.look()
    store.cleaner.delete_expired()
    for expected in ([2, 3, 4, 5], [4, 5], [5], [5]):
        await store.cleaner.look()
        assert store.left() == expected


async def test_a_request_waits_for_unflushed_files_for_a_while(store: Store) -> None:
    store.at_hour(5)
    store.last_written(hours_ago=100)
    store.log.files[0].flushed -= 1
    store.cleaner.delete_expired()
    assert await store.look(19) == ALL
    store.log.files[0].flushed += 1
    store.log.files[1].flushed -= 1
    assert await store.look() == [1, 2, 3, 4, 5]
    store.log.files[0].flushed += 1
    assert await store.look(20) == [1, 2, 3, 4, 5], "that was the last round of the request"


@pytest.mark.parametrize("is_full", [False, True])
async def test_a_file_that_waits_for_its_flush_is_tried_again_soon(store: Store, is_full: bool) -> None:
    """On request, and if space is short; the next round would come in ten seconds."""
    store.at_hour(5)
    store.last_written(hours_ago=100)
    store.log.entries_flushed_to = FILE_BYTES - 1
    if is_full:
        store.disk.percent = 95
    else:
        await store.cleaner.look()
        store.cleaner.delete_expired()
    await store.cleaner.look()
    assert store.left() == ALL
    store.log.entries_flushed_to = 2 * FILE_BYTES
    await store.cleaner.look()
    assert store.left() == ALL, "it does not look without a pause"
    store.clock.pass_seconds(1)
    await store.cleaner.look()
    assert store.left() == [2, 3, 4, 5]


async def test_without_urgency_an_unflushed_file_is_left_to_the_next_round(store: Store) -> None:
    store.at_hour(4)
    store.last_written(hours_ago=100)
    store.log.entries_flushed_to = 0
    await store.cleaner.look()
    store.log.entries_flushed_to = 2 * FILE_BYTES
    store.clock.pass_seconds(9)
    await store.cleaner.look()
    assert store.left() == ALL
    assert await store.look() == [2, 3, 4, 5]


async def test_a_request_keeps_files_that_are_not_expired(store: Store) -> None:
    store.cleaner.delete_expired()
    await store.cleaner.look()
    assert store.left() == ALL


async def test_a_request_wakes_the_task_and_stop_ends_it(store: Store) -> None:
    store.at_hour(5)
    task = asyncio.create_task(store.cleaner.run())
    await until(lambda: store.statistics.last_round_ms > 0)
    store.last_written(hours_ago=100)
    store.settings.delete_file_batch_max = 1
    store.cleaner.delete_expired()
    await until(lambda: store.statistics.log_files_deleted == 5)
    await store.cleaner.stop()
    await task
    store.settings.file_reserved_hours = 0
    assert await store.look() == [5]


# --- readers ---


async def test_a_reader_of_a_deleted_file_can_go_on(store: Store) -> None:
    first = store.log.files[0]
    store.disk.percent = 95
    assert await store.look() == [5]
    assert first.map[:100] == b"x" * 100
    assert first.read(0, 100) == b"x" * 100
    assert store.log.read(0, 100) is None
    assert store.log.read(5 * FILE_BYTES, 100) == b"x" * 100


async def test_nothing_keeps_a_deleted_file_open(store: Store) -> None:
    before = open_descriptors()
    store.disk.percent = 95
    await store.look()
    # A descriptor of its own, and the mapping's.
    assert before - open_descriptors() == 5 * 2
    assert store.statistics.log_bytes_freed == 5 * FILE_BYTES


# --- failures ---


async def test_a_file_that_cannot_be_deleted(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The file and all later ones stay in the log, and it is tried again later."""
    attempts: list[Path] = []
    unlink = Path.unlink

    def fail(path: Path, missing_ok: bool = False) -> None:
        attempts.append(path)
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    store.disk.percent = 95
    monkeypatch.setattr(Path, "unlink", fail)
    before = open_descriptors()
    assert await store.look(3) == ALL
    assert open_descriptors() == before
    assert len(attempts) == 1 and store.statistics.failures == 1
    assert "Operation not permitted" in caplog.text
    assert "tried again in 120 s" in caplog.text
    monkeypatch.setattr(Path, "unlink", unlink)
    store.clock.pass_seconds(120)
    assert await store.look() == [5]


async def test_a_file_deleted_by_another_program(store: Store) -> None:
    store.at_hour(4)
    store.last_written(hours_ago=100)
    store.log.files[0].path.unlink()
    assert await store.look() == [5]
    assert store.statistics.failures == 0


async def test_a_disk_that_cannot_be_freed_is_logged_once(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.disk.percent = 95
    await store.look(4)
    stuck = [record for record in caplog.records if "no commit log file can be deleted" in record.message]
    assert len(stuck) == 1 and stuck[0].levelno == logging.WARNING


# --- queues and index ---


async def test_queues_and_index_are_cleaned_once(store: Store) -> None:
    store.disk.percent = 95
    store.queues[1].files, store.index.files = 3, 2
    await store.look(3)
    assert [one.calls for one in (*store.queues, store.index)] == [[5 * FILE_BYTES]] * 3
    assert (store.statistics.queue_files_deleted, store.statistics.index_files_deleted) == (3, 2)


async def test_all_queues_raise_their_first_offset_before_a_file_is_deleted(store: Store) -> None:
    class First(Behind):
        def delete_before(self, log_begin: int) -> int:
            assert [queue.begin for queue in store.queues] == [log_begin] * 2
            return super().delete_before(log_begin)

    store.queues[0] = First(files=1)
    store.disk.percent = 95
    await store.look()
    assert store.statistics.queue_files_deleted == 1


async def test_references_left_by_the_last_run_are_dropped(tmp_path: Path) -> None:
    """The log begins later than 0 when the store is opened."""
    store = Store(tmp_path)
    store.log.remove_oldest()
    (tmp_path / f"{0:020d}").unlink()
    assert await store.look(2) == [1, 2, 3, 4, 5]
    assert store.queues[0].calls == [FILE_BYTES]
    store.log.close()


async def test_many_queues(store: Store) -> None:
    """More queues than one slice takes, some with files to delete, one that fails."""
    store.queues[:] = [Behind(number % 7 == 0) for number in range(70)]
    store.queues[50].error = OSError(errno.EIO, os.strerror(errno.EIO))
    store.disk.percent = 95
    await store.look(2)
    assert all(queue.calls == [5 * FILE_BYTES] for queue in store.queues)
    assert store.statistics.queue_files_deleted == sum(number % 7 == 0 for number in range(70))
    assert store.statistics.failures == 1
    store.queues[50].error = None
    store.clock.pass_seconds(120)
    await store.look(2)
    assert store.queues[50].calls == [5 * FILE_BYTES] * 2, "all are visited again, once"
    assert store.index.calls == [5 * FILE_BYTES] * 2


async def test_queues_can_be_cleaned_on_request(store: Store) -> None:
    store.disk.percent = 95
    await store.look()
    await store.cleaner.clean_queues()
    assert store.queues[0].calls == [5 * FILE_BYTES] * 2


# --- steps of the wall clock ---


@pytest.mark.parametrize("hours", [5, 24 * 365])
async def test_a_clock_that_jumps_forward_and_back_deletes_no_file(
    store: Store, hours: float, caplog: pytest.LogCaptureFixture
) -> None:
    store.at_hour(4)
    store.last_written(hours_ago=70)
    assert await store.look() == ALL
    store.clock.set_by(hours * HOUR_SECONDS)
    store.settings.delete_when = ";".join(f"{hour:02d}" for hour in range(24))
    assert await store.look(3) == ALL
    store.cleaner.delete_expired()
    assert await store.look(3) == ALL
    store.clock.set_by(-hours * HOUR_SECONDS)
    assert await store.look(3) == ALL
    assert [record.levelname for record in caplog.records if "wall clock was set" in record.message] == [
        "WARNING",
        "WARNING",
    ]
    store.clock.pass_seconds(2 * HOUR_SECONDS)
    assert await store.look() == [5], "72 hours have passed"


async def test_deletion_goes_on_after_a_step_back(store: Store) -> None:
    store.at_hour(5)
    store.disk.percent = 86
    store.settings.delete_file_batch_max = 1
    assert await store.look() == [1, 2, 3, 4, 5]
    store.clock.set_by(-5 * HOUR_SECONDS)
    assert await store.look() == [2, 3, 4, 5]


async def test_a_failed_deletion_is_retried_after_a_step_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    store.disk.percent = 95
    store.queues[0].error = OSError(errno.EIO, os.strerror(errno.EIO))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", fail)
        assert await store.look() == ALL
    store.clock.set_by(-5 * HOUR_SECONDS)
    store.clock.pass_seconds(120)
    assert await store.look() == [5]
    store.queues[0].error = None
    store.clock.set_by(-5 * HOUR_SECONDS)
    store.clock.pass_seconds(120)
    await store.look()
    assert store.queues[0].calls == [5 * FILE_BYTES] * 2
