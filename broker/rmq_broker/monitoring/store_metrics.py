"""Metrics of the store.

Names are Apache's where it has one (RocketMQ 5.3.3, DefaultStoreMetricsManager), else they begin with
`rmq_store_`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from rmq_remoting.daemon.exposition import Family, counter, gauge

from ..store.api import ColdData, IndexState

if TYPE_CHECKING:
    from ..clock import ClockMs
    from ..store.api import CleaningStatistics, DiskSpace, MessageStore

_APACHES_LABELS: Final = ("storage_type", "storage_medium")
_APACHES_VALUES: Final = ("local", "disk")


class StoreCollector:
    """Size, flush lag, reads, index, disks and deleted files of the store."""

    def __init__(
        self, store: MessageStore, disk: DiskSpace, cleaning: CleaningStatistics, now_ms: ClockMs
    ) -> None:
        self._store = store
        self._disk = disk
        self._cleaning = cleaning
        self._now_ms = now_ms
        self._oldest = (-1, -1)  # begin of the log, and the store time of its first message
        self._reading_oldest: asyncio.Future[int] | None = None

    def collect(self) -> Iterable[Family]:
        """Return all metric families of the store."""
        yield from self._apaches()
        yield from self._writing()
        yield from self._flushing()
        yield from self._reading()
        yield from self._index()
        yield from self._disks()
        yield from self._cleaned()

    # --- metrics of Apache's broker ---

    def _apaches(self) -> Iterator[Family]:
        store = self._store
        size_bytes = store.max_phy_offset() - store.min_phy_offset()
        yield _apaches("rocketmq_storage_size_bytes", "Bytes of the commit log.", size_bytes)
        yield _apaches(
            "rocketmq_storage_flush_behind_bytes",
            "Bytes of the commit log that are not flushed yet.",
            store.unflushed_bytes,
        )
        yield _apaches(
            "rocketmq_storage_dispatch_behind_bytes",
            "Bytes of the commit log without entries in queues and index.",
            store.dispatch_behind_bytes,
        )
        stored_ms = self._oldest_ms()
        yield Family(
            "rocketmq_storage_message_reserve_time_milliseconds",
            "gauge",
            "Age of the oldest message in the commit log.",
            [(_APACHES_VALUES, max(0, self._now_ms() - stored_ms))] if stored_ms > 0 else (),
            _APACHES_LABELS,
        )

    def _oldest_ms(self) -> int:
        """Store time of the log's first message, read once for each file that the log begins with.

        0 while a thread reads it from the disk, for the next scrape.
        """
        begin, stored_ms = self._oldest
        if stored_ms <= 0 or begin != self._store.min_phy_offset():
            begin = self._store.min_phy_offset()
            try:
                stored_ms = self._store.store_timestamp_now(begin)
            except ColdData:
                self._read_oldest(begin)
                return 0
            self._oldest = (begin, stored_ms)
        return stored_ms

    def _read_oldest(self, begin: int) -> None:
        if self._reading_oldest is not None and not self._reading_oldest.done():
            return
        loop = asyncio.get_running_loop()
        self._reading_oldest = loop.run_in_executor(None, self._store.store_timestamp, begin)
        self._reading_oldest.add_done_callback(partial(self._oldest_read, begin))

    def _oldest_read(self, begin: int, reading: asyncio.Future[int]) -> None:
        if not reading.cancelled() and reading.exception() is None:
            self._oldest = (begin, reading.result())

    # --- writing ---

    def _writing(self) -> Iterator[Family]:
        store = self._store
        yield gauge(
            "rmq_store_refuses_writes",
            "1 while messages are refused; the log and the responses to sends tell the cause.",
            store.unavailable_reason is not None,
        )
        yield counter(
            "rmq_store_puts_failed_total",
            "Messages and batches that failed because the commit log had no room.",
            store.puts_failed,
        )
        yield gauge(
            "rmq_store_queue_unwritten_bytes",
            "Bytes of queue entries not written yet; after a crash they are rebuilt from the log.",
            store.queues.unwritten_bytes,
        )

    def _flushing(self) -> Iterator[Family]:
        """Metrics of synchronous flushing; 0 with asynchronous flushing."""
        statistics = self._store.commit_statistics
        yield gauge(
            "rmq_store_flush_waiting",
            "Sends that wait for a flush.",
            self._store.waiting_for_flush,
        )
        for name, meaning, value in (
            (
                "flush_groups",
                "Synchronous flushes; each answers all sends that wait for it.",
                statistics.flushes,
            ),
            ("flush_answered", "Sends answered after their flush.", statistics.answered),
            ("flush_timeouts", "Sends answered FLUSH_DISK_TIMEOUT.", statistics.timed_out),
            ("flush_failures", "Sends whose flush failed.", statistics.failed),
        ):
            yield counter(f"rmq_store_{name}_total", meaning, value)

    # --- reading ---

    def _reading(self) -> Iterator[Family]:
        statistics = self._store.read_statistics
        yield counter(
            "rmq_store_cold_reads_total",
            "Reads for consumers that had to read from disk.",
            statistics.cold_reads,
        )
        yield counter(
            "rmq_store_cold_read_bytes_total",
            "Bytes of the commit log read by them.",
            statistics.cold_bytes,
        )

    def _index(self) -> Iterator[Family]:
        statistics = self._store.index_statistics()
        yield Family(
            "rmq_store_index_state",
            "gauge",
            "1 for the current state of the index: off, catching up with the log, or live.",
            [((state.name.lower(),), state is statistics.state) for state in IndexState],
            ("state",),
        )
        # An index that is switched off lags by the whole log, which is no reason for an alarm.
        is_off = statistics.state is IndexState.OFF
        yield gauge(
            "rmq_store_index_behind_bytes",
            "Bytes of the commit log whose messages are not in the index yet.",
            0 if is_off else statistics.behind_bytes,
        )
        yield gauge(
            "rmq_store_index_failing", "1 while the index cannot be written.", statistics.failure is not None
        )
        yield gauge("rmq_store_index_files", "Index files.", statistics.files)
        yield gauge("rmq_store_index_entries", "Entries in the index files.", statistics.entries)
        yield gauge(
            "rmq_store_index_size_bytes", "Size of the index files, holes included.", statistics.size_bytes
        )

    # --- disks and cleaning ---

    def _disks(self) -> Iterator[Family]:
        disk = self._disk
        uses = [("log", disk.log_use), ("queues", disk.queue_use)]
        known = [((files,), use) for files, use in uses if use is not None]
        yield Family(
            "rmq_store_disk_used_ratio",
            "gauge",
            "Share of the disk that is in use, as `df` counts it.",
            [(labels, use.ratio) for labels, use in known],
            ("files",),
        )
        yield Family(
            "rmq_store_disk_available_bytes",
            "gauge",
            "Bytes available on the disk.",
            [(labels, use.available_bytes) for labels, use in known],
            ("files",),
        )
        yield gauge(
            "rmq_store_disk_level",
            "Reaction to the disk usage: 0 none, 1 expired files are deleted at any hour, 2 the oldest files "
            "are deleted whatever their age, 3 messages are refused.",
            int(disk.level),
        )
        yield counter(
            "rmq_store_disk_check_failures_total",
            "Failed queries of the disk usage.",
            disk.failures,
        )

    def _cleaned(self) -> Iterator[Family]:
        cleaning = self._cleaning
        yield Family(
            "rmq_store_files_deleted_total",
            "counter",
            "Files deleted because they had expired or the disk was full.",
            [
                (("log",), cleaning.log_files_deleted),
                (("queues",), cleaning.queue_files_deleted),
                (("index",), cleaning.index_files_deleted),
            ],
            ("files",),
        )
        yield counter(
            "rmq_store_log_freed_bytes_total",
            "Bytes of disk space freed by deleting commit log files.",
            cleaning.log_bytes_freed,
        )
        yield counter(
            "rmq_store_cleaning_failures_total", "Files that could not be deleted.", cleaning.failures
        )
        yield gauge(
            "rmq_store_cleaning_last_round_timestamp_seconds",
            "Time of the last round of deletion; 0 before the first.",
            cleaning.last_round_ms / 1000,
        )


def _apaches(name: str, meaning: str, value: int) -> Family:
    return Family(name, "gauge", meaning, [(_APACHES_VALUES, value)], _APACHES_LABELS)
