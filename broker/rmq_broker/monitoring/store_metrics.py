"""Metrics of the store.

Names are Apache's where it has one (RocketMQ 5.3.3, DefaultStoreMetricsManager), else they begin with
`rmq_store_`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from rmq_remoting.daemon.exposition import Family, counter, gauge

from ..store.api import CommitStatistics, IndexState

if TYPE_CHECKING:
    from ..clock import ClockMs
    from ..store.api import CleaningStatistics, DiskSpace, MessageStore

_APACHES_LABELS: Final = ("storage_type", "storage_medium")
_APACHES_VALUES: Final = ("local", "disk")


class StoreCollector:
    """How much is stored, what is behind, what is deleted, and whether messages are accepted."""

    def __init__(
        self, store: MessageStore, disk: DiskSpace, cleaning: CleaningStatistics, now_ms: ClockMs
    ) -> None:
        self._store = store
        self._disk = disk
        self._cleaning = cleaning
        self._now_ms = now_ms
        self._oldest = (-1, -1)  # where the log began, and when its first message was stored

    def collect(self) -> Iterable[Family]:
        """All families of the store."""
        yield from self._apaches()
        yield from self._writing()
        yield from self._flushing()
        yield from self._reading()
        yield from self._index()
        yield from self._disks()
        yield from self._cleaned()

    # --- what Apache's broker has too ---

    def _apaches(self) -> Iterator[Family]:
        store = self._store
        size_bytes = store.max_phy_offset() - store.min_phy_offset()
        yield _apaches("rocketmq_storage_size_bytes", "Bytes of the commit log.", size_bytes)
        yield _apaches(
            "rocketmq_storage_flush_behind_bytes",
            "Bytes of the commit log that are not on the disk yet.",
            store.commit_log.unflushed_bytes,
        )
        yield _apaches(
            "rocketmq_storage_dispatch_behind_bytes",
            "Bytes of the commit log without entries in queues and index.",
            store.dispatch_behind_bytes,
        )
        stored_ms = self._oldest_ms()
        if stored_ms > 0:
            yield _apaches(
                "rocketmq_storage_message_reserve_time_milliseconds",
                "Age of the oldest message in the commit log.",
                max(0, self._now_ms() - stored_ms),
            )

    def _oldest_ms(self) -> int:
        """When the log's first message was stored. Looked up once for each file that the log begins with."""
        begin, stored_ms = self._oldest
        if stored_ms <= 0 or begin != self._store.min_phy_offset():
            begin = self._store.min_phy_offset()
            stored_ms = self._store.commit_log.store_timestamp(begin)
            self._oldest = (begin, stored_ms)
        return stored_ms

    # --- writing ---

    def _writing(self) -> Iterator[Family]:
        store = self._store
        yield gauge(
            "rmq_store_refuses_writes",
            "1 while no messages are accepted; why, the log says, and the answer to a send.",
            store.health.refusal is not None,
        )
        yield counter(
            "rmq_store_puts_failed_total",
            "Messages and batches that found no room in the commit log.",
            store.appender.puts_failed,
        )
        yield gauge(
            "rmq_store_queue_unwritten_bytes",
            "Queue entries that are in memory alone, bytes; made again from the log after a crash.",
            store.queues.unwritten_bytes,
        )

    def _flushing(self) -> Iterator[Family]:
        """Synchronous flushing; all of it is 0 without."""
        commits = self._store.commits
        statistics = CommitStatistics() if commits is None else commits.statistics
        yield gauge(
            "rmq_store_flush_waiting",
            "Sends that wait for the disk.",
            0 if commits is None else commits.waiting,
        )
        for name, meaning, value in (
            ("flush_groups", "Flushes that were waited for; each answers all who wait.", statistics.flushes),
            ("flush_answered", "Sends answered once they were on the disk.", statistics.answered),
            ("flush_timeouts", "Sends answered FLUSH_DISK_TIMEOUT.", statistics.timed_out),
            ("flush_failures", "Sends whose flush failed.", statistics.failed),
        ):
            yield counter(f"rmq_store_{name}_total", meaning, value)

    # --- reading ---

    def _reading(self) -> Iterator[Family]:
        statistics = self._store.reader.statistics
        yield counter(
            "rmq_store_cold_reads_total",
            "Reads for consumers that had to wait for a disk.",
            statistics.cold_reads,
        )
        yield counter(
            "rmq_store_cold_read_bytes_total",
            "What those have read of the commit log.",
            statistics.cold_bytes,
        )

    def _index(self) -> Iterator[Family]:
        statistics = self._store.index.statistics()
        yield Family(
            "rmq_store_index_state",
            "gauge",
            "1 for the state that the index is in: off, catching up with the log, or live.",
            [((state.name.lower(),), state is statistics.state) for state in IndexState],
            ("state",),
        )
        # An index that is switched off is behind by all of the log: nothing to be alarmed at.
        is_off = statistics.state is IndexState.OFF
        yield gauge(
            "rmq_store_index_behind_bytes",
            "Bytes of the commit log whose messages are not found by key yet.",
            0 if is_off else statistics.behind_bytes,
        )
        yield gauge(
            "rmq_store_index_failing", "1 while the index cannot be written.", statistics.failure is not None
        )
        yield gauge("rmq_store_index_files", "Index files.", statistics.files)
        yield gauge("rmq_store_index_entries", "Entries in them.", statistics.entries)
        yield gauge("rmq_store_index_size_bytes", "Their size, holes included.", statistics.size_bytes)

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
            "What is left on the disk.",
            [(labels, use.available_bytes) for labels, use in known],
            ("files",),
        )
        yield gauge(
            "rmq_store_disk_level",
            "What follows from it: 0 nothing, 1 old files are deleted at any hour, 2 the oldest are whatever "
            "their age, 3 no messages are accepted.",
            int(disk.level),
        )
        yield counter(
            "rmq_store_disk_check_failures_total",
            "Times that the file system did not tell how full it is.",
            disk.failures,
        )

    def _cleaned(self) -> Iterator[Family]:
        cleaning = self._cleaning
        yield Family(
            "rmq_store_files_deleted_total",
            "counter",
            "Files deleted because their messages were old, or the disk was full.",
            [
                (("log",), cleaning.log_files_deleted),
                (("queues",), cleaning.queue_files_deleted),
                (("index",), cleaning.index_files_deleted),
            ],
            ("files",),
        )
        yield counter(
            "rmq_store_log_freed_bytes_total",
            "What the deleted files of the commit log had taken on the disk.",
            cleaning.log_bytes_freed,
        )
        yield counter(
            "rmq_store_cleaning_failures_total", "Files that could not be deleted.", cleaning.failures
        )
        yield gauge(
            "rmq_store_cleaning_last_round_timestamp_seconds",
            "When it was last looked for files to delete; 0 before the first time.",
            cleaning.last_round_ms / 1000,
        )


def _apaches(name: str, meaning: str, value: int) -> Family:
    return Family(name, "gauge", meaning, [(_APACHES_VALUES, value)], _APACHES_LABELS)
