"""The store's collector: figures out of a store. (The page as a whole: `test_broker_metrics.py`.)"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq_broker.monitoring.store_metrics import StoreCollector
from rmq_broker.settings.broker import BrokerSettings
from rmq_broker.store.api import CleaningStatistics, ColdRead, DiskSpace, Durability, MessageStore
from rmq_remoting.daemon.exposition import Labels, Number
from tests.support.broker_settings import broker_settings
from tests.support.clock import START_MS
from tests.support.clock import Clock as ClockMs
from tests.support.cold_log import make_cold
from tests.support.stores import Clock, fill, hold_flushes, put
from tests.support.waiting import until
from tests.unit.broker.store.fake_disk import FakeDisk

_LOG_FILE_BYTES = 64 * 1024


class _Observed:
    """A store in a folder, on a disk that is as full as it is told to be."""

    def __init__(self, root: Path, **keys: object) -> None:
        settings: BrokerSettings = broker_settings(
            storePathRootDir=str(root),
            mappedFileSizeCommitLog=_LOG_FILE_BYTES,
            **({"maxHashSlotNum": 1000, "maxIndexNum": 5000} | keys),
        )
        self.clock = ClockMs()
        self.store = MessageStore(settings, settings, settings, Clock())
        self.filled = FakeDisk()
        self.disk = DiskSpace(settings, self.store.health, self.filled.statvfs)
        self.cleaning = CleaningStatistics()
        self.collector = StoreCollector(self.store, self.disk, self.cleaning, self.clock)

    def scrape(self) -> dict[str, dict[Labels, Number]]:
        """Name to labels to value."""
        found: dict[str, dict[Labels, Number]] = {}
        for family in self.collector.collect():
            assert family.name not in found
            assert (family.kind == "counter") == family.name.endswith("_total")
            found[family.name] = dict(family.series)  # type: ignore[arg-type]
        return found

    def value(self, name: str, *labels: str) -> Number:
        """One series; of Apache's, the one that there is."""
        return self.scrape()[name][("local", "disk") if name.startswith("rocketmq") else labels]


@pytest.fixture
def observed(tmp_path: Path) -> Iterator[_Observed]:
    observed = _Observed(tmp_path)
    observed.store.open()
    yield observed
    observed.store.close()


def test_flush_and_dispatch_lag(observed: _Observed) -> None:
    fill(observed.store, 10)
    end = observed.store.commit_log.max_offset
    assert observed.value("rocketmq_storage_size_bytes") == end
    assert observed.value("rocketmq_storage_flush_behind_bytes") == end
    assert observed.value("rocketmq_storage_dispatch_behind_bytes") == 0
    assert observed.value("rmq_store_queue_unwritten_bytes") == 10 * 20
    observed.store.queues.write_out()
    observed.store.commit_log.flush()
    assert observed.value("rocketmq_storage_flush_behind_bytes") == 0
    assert observed.value("rmq_store_queue_unwritten_bytes") == 0


def test_unflushed_messages_have_no_entries(observed: _Observed) -> None:
    hold_flushes(observed.store)
    fill(observed.store, 10)
    end = observed.store.commit_log.max_offset
    assert observed.value("rocketmq_storage_dispatch_behind_bytes") == end
    observed.store.appender.confirmed(end)
    assert observed.value("rocketmq_storage_dispatch_behind_bytes") == 0


def test_the_age_of_the_oldest_message(observed: _Observed) -> None:
    name = "rocketmq_storage_message_reserve_time_milliseconds"
    assert observed.scrape()[name] == {}
    for _ in range(3):
        put(observed.store, b"x" * 40_000)
    observed.clock.now_ms = START_MS + 1000
    first = observed.store.store_time_at("TopicA", 0, 0)
    assert observed.value(name) == START_MS + 1000 - first
    observed.store.commit_log.remove_oldest()
    second = observed.store.store_time_at("TopicA", 0, 1)
    assert second > first
    assert observed.value(name) == START_MS + 1000 - second


def test_refused_writes(observed: _Observed) -> None:
    assert observed.value("rmq_store_refuses_writes") == 0
    observed.store.health.refuse("flush", "flushing to the disk failed: EIO")
    assert observed.value("rmq_store_refuses_writes") == 1
    observed.store.health.allow("flush")
    observed.store.appender.puts_failed = 2
    assert observed.value("rmq_store_refuses_writes") == 0
    assert observed.value("rmq_store_puts_failed_total") == 2


async def test_sends_that_wait_for_a_flush(tmp_path: Path) -> None:
    observed = _Observed(tmp_path, flushDiskType="SYNC_FLUSH")
    observed.store.open()
    observed.store.start()
    put(observed.store)
    answer = observed.store.durable()
    assert observed.value("rmq_store_flush_waiting") == 1
    assert await asyncio.wait_for(answer, 30) is Durability.DURABLE
    values = observed.scrape()
    assert values["rmq_store_flush_waiting"] == {(): 0}
    assert values["rmq_store_flush_groups_total"] == values["rmq_store_flush_answered_total"] == {(): 1}
    commits = observed.store.commits
    assert commits is not None
    commits.statistics.timed_out, commits.statistics.failed = 4, 5
    assert observed.value("rmq_store_flush_timeouts_total") == 4
    assert observed.value("rmq_store_flush_failures_total") == 5
    await observed.store.stop()


async def test_cold_reads(observed: _Observed) -> None:
    put(observed.store, b"x" * 100)
    queue = observed.store.queues.get("TopicA", 0)
    assert queue is not None

    def cold(*_: object) -> int:
        raise BlockingIOError

    reader = observed.store.reader
    reader.warm.preadv = cold
    result = reader.get_now(queue, 0, 32, None)
    assert isinstance(result, ColdRead)
    size = len(reader.finish(result.run()).body)
    assert observed.value("rmq_store_cold_reads_total") == 1
    assert observed.value("rmq_store_cold_read_bytes_total") >= size


async def test_the_age_of_an_oldest_message_that_is_not_in_memory(observed: _Observed) -> None:
    """A thread reads it for a later scrape."""
    name = "rocketmq_storage_message_reserve_time_milliseconds"
    put(observed.store, b"x" * 100)
    observed.clock.now_ms = START_MS + 1000
    make_cold(observed.store)
    assert observed.scrape()[name] == {}
    await until(lambda: observed.scrape()[name] != {})
    assert observed.value(name) == START_MS + 1000 - observed.store.store_time_at("TopicA", 0, 0)


def test_the_index(observed: _Observed) -> None:
    put(observed.store, properties=b"KEYS\x01a b\x02")
    observed.store.index.catch_up()  # makes its first file
    values = observed.scrape()
    assert values["rmq_store_index_state"] == {("off",): 0, ("catching_up",): 0, ("live",): 1}
    assert values["rmq_store_index_entries"] == {(): 2}
    assert values["rmq_store_index_files"] == {(): 1}
    assert values["rmq_store_index_size_bytes"][()] > 0
    assert values["rmq_store_index_behind_bytes"] == {(): 0}
    observed.store.index.delete_all()
    observed.store.index.failure = "disk full"
    assert observed.value("rmq_store_index_state", "catching_up") == 1
    assert observed.value("rmq_store_index_behind_bytes") == observed.store.commit_log.max_offset
    assert observed.value("rmq_store_index_failing") == 1


def test_an_index_that_is_switched_off_has_no_lag(tmp_path: Path) -> None:
    observed = _Observed(tmp_path, messageIndexEnable=False)
    observed.store.open()
    put(observed.store)
    assert observed.value("rmq_store_index_state", "off") == 1
    assert observed.value("rmq_store_index_behind_bytes") == 0
    observed.store.close()


def test_disks(observed: _Observed) -> None:
    assert observed.scrape()["rmq_store_disk_used_ratio"] == {}, "nobody has looked yet"
    observed.filled.percent = 80
    observed.disk.check()
    assert observed.value("rmq_store_disk_used_ratio", "log") == pytest.approx(0.8)
    assert observed.value("rmq_store_disk_used_ratio", "queues") == pytest.approx(0.8)
    assert observed.value("rmq_store_disk_available_bytes", "log") > 0
    assert observed.value("rmq_store_disk_level") == 1
    assert observed.value("rmq_store_refuses_writes") == 0
    observed.filled.percent = 95
    observed.disk.check()
    observed.disk.failures = 3
    assert observed.value("rmq_store_disk_level") == 3
    assert observed.value("rmq_store_refuses_writes") == 1
    assert observed.value("rmq_store_disk_check_failures_total") == 3


def test_cleaning(observed: _Observed) -> None:
    cleaning = observed.cleaning
    cleaning.log_files_deleted, cleaning.queue_files_deleted, cleaning.index_files_deleted = 1, 2, 3
    cleaning.log_bytes_freed, cleaning.failures, cleaning.last_round_ms = 4096, 5, 1_700_000_000_500
    values = observed.scrape()
    assert values["rmq_store_files_deleted_total"] == {("log",): 1, ("queues",): 2, ("index",): 3}
    assert values["rmq_store_log_freed_bytes_total"] == {(): 4096}
    assert values["rmq_store_cleaning_failures_total"] == {(): 5}
    assert values["rmq_store_cleaning_last_round_timestamp_seconds"] == {(): 1_700_000_000.5}
