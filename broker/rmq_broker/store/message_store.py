"""The message store of one directory: append messages, read them, ask for offsets, flush and close.

It owns the files and their background work. Methods that do not block belong to the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final

from rmq_remoting.bounded_cache import BoundedCache
from rmq_remoting.daemon.atomic_file import make_folder

from .appending.appender import Appender, ArrivalListener
from .appending.bit_maps import BitMapCalculator, BitMapOf
from .appending.replica import Replica
from .cleaning.disk_space import DiskUse
from .directory_lock import DirectoryLock
from .durability import BothDurable, Durability, DurabilityListener
from .errors import StoreUnavailable
from .flushing.flusher import Flusher, FlushPosition
from .flushing.group_commit import CommitStatistics, GroupCommit
from .flushing.stopping import stop_commits
from .index.deferred_calls import CallSoon
from .index.index_files import KeyQueryResult
from .index.message_index import MessageIndex
from .index.state import IndexStatistics
from .log.commit_log import CommitLog
from .log.log_records import LogRecords
from .log.preallocation import LogPreallocator
from .queues.consume_queues import ConsumeQueues
from .reading.log_ranges import ColdLog
from .reading.queue_reads import QueueReads
from .reading.reader import Reader
from .recovery.checkpoint import Checkpoint
from .recovery.fine_checkpoint import invalidate_written
from .recovery.queue_state import QueueStateFile
from .recovery.recovery import RecoveryOptions, RecoveryReport, recover
from .recovery.stop_marker import StopKind, StopMarker
from .recovery.topic_deletions import TopicDeletions
from .recovery.truncation import Truncation, TruncationFile
from .replicas.epochs import EpochFile
from .replicas.held_reads import HeldReads
from .replicas.in_sync_set import InSyncReplicas
from .replicas.replica_set import ReplicaSet
from .settings import FlushDiskType, PullSettings, QuerySettings, ReplicationSettings, StoreSettings
from .write_health import WriteHealth

log = logging.getLogger("rmq.store")

# A cause of refusing messages.
_CLOSED: Final = "closed"
_REPLICA: Final = "replica"
_INDEX_RETRY_SECONDS: Final = 5.0
_DELETION_RETRY_SECONDS: Final = 5.0


class MessageStore(QueueReads):
    """Life: `open`, `start` in an event loop, and `stop`; `close` at any time leaves it as after a crash."""

    def __init__(
        self,
        settings: StoreSettings,
        pull_settings: PullSettings,
        query_settings: QuerySettings,
        clock: Callable[[], float] = time.time,
        *,
        replication: ReplicationSettings | None = None,
        is_batch: Callable[[str], bool] = lambda topic: False,
        bit_map_of: BitMapOf | None = None,
        call_soon: CallSoon | None = None,
        may_wait: bool = True,
    ) -> None:
        """`replication`: the role, and how many replicas sends wait for; None: a master without replicas.

        `is_batch` tells which topics store batches as wholes (attribute `queue.type=BatchCQ`).

        `bit_map_of` calculates the messages' bit maps of consumer filters for `consumequeue_ext`.
        `call_soon`, an event loop's, lets index entries be made after the answers to producers.
        `may_wait`: whether an append may wait for the disk. Otherwise it raises LogBusy, once started.
        """
        root = settings.store_path_root_dir
        is_sync = settings.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self.settings = settings
        self._may_wait = may_wait
        self._lock: DirectoryLock | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._fine_path = settings.fine_checkpoint_path
        self._stop_marker = StopMarker(root)
        self.queue_state = QueueStateFile(root / "rmq_queues.json")
        self.checkpoint = Checkpoint()
        self.health = WriteHealth()
        self.health.refuse(_CLOSED, "the store is closed")
        self._preallocator = LogPreallocator(touch=not is_sync)
        commit_log = CommitLog(
            settings.commit_log_dir,
            settings.mapped_file_size_commit_log,
            self._preallocator,
            may_wait=may_wait,
        )
        self.space = commit_log.space
        has_bit_maps = bit_map_of is not None and settings.enable_consume_queue_ext
        queues = ConsumeQueues(
            settings.consume_queue_dir,
            settings.consume_queue_file_bytes,
            is_batch=is_batch,
            batch_file_bytes=settings.batch_consume_queue_file_bytes,
            ext_file_bytes=settings.mapped_file_size_consume_queue_ext,
            bit_map_of=BitMapCalculator(commit_log, bit_map_of) if has_bit_maps and bit_map_of else None,
        )
        super().__init__(commit_log, queues, Reader(commit_log, pull_settings), is_batch)
        self.deletions = TopicDeletions(
            queues, self.queue_state, lambda: (commit_log.min_offset, commit_log.max_offset)
        )
        self._replica: Replica | None = None
        self._data_confirmed: int | None = None
        self.records = LogRecords(self.commit_log, lambda: self.entries_end)
        self.index = MessageIndex(settings, query_settings, self.records, clock, call_soon, may_wait=may_wait)
        self._flusher = Flusher(
            self.commit_log,
            self.queues,
            self.checkpoint,
            settings,
            self.health,
            self._flush_position,
            lambda: self.index.flushed_timestamp_ms,
        )
        # Messages that wait for a flush; None with asynchronous flushing.
        self.commits: GroupCommit | None = None
        # Whether sends are answered when their messages are on disk, or on replicas; once started.
        self.answers_when_durable = False
        replication = replication or ReplicationSettings()
        self.is_replica = replication.is_replica
        # With a controller: the epochs of the log. They decide nothing in the store.
        self.epochs: EpochFile | None = None
        kind = ReplicaSet
        if replication.enable_controller_mode:
            kind = InSyncReplicas
            self.epochs = EpochFile(replication.store_path_epoch_file or root / "epochFileCheckpoint")
        self.replicas = kind(replication, lambda: commit_log.max_offset, self.health, self._confirm)
        self._held_reads = HeldReads(self.replicas)
        self._truncation_file = TruncationFile(root)
        self.truncation: Truncation | None = None  # what the start has cut off
        self._flushed_end = 0  # with synchronous flushing: the end of the last flush
        if is_sync:
            self.commits = GroupCommit(
                self._flusher.flush_log,
                timeout_ms=lambda: settings.sync_flush_timeout_ms,
                on_flushed=self._log_flushed,
            )
        # Whether a message's entries wait until it is confirmed.
        defers_entries: Callable[[], bool] | None = None
        if self.commits is not None:
            defers_entries = self.commits.request
        elif replication.is_sync_master:
            defers_entries = self.replicas.appended
        self.appender = Appender(
            self.commit_log,
            self.index,
            self.health,
            clock,
            defers_entries,
            self._flusher.flush_log.entries_missing,
        )
        self.put = self.appender.put
        self.put_batch = self.appender.put_batch
        self.put_unit = self.appender.put_unit
        self.caches: tuple[BoundedCache[Any, Any], ...] = (*self.index.caches, *self.reader.caches)
        self.recovery: RecoveryReport | None = None
        self.all_is_flushed = False  # after `stop`: whether everything was flushed

    # --- life ---

    @property
    def stopped_cleanly(self) -> bool:
        """Whether the run before ended with a clean stop; known once the store is open."""
        return self.recovery is not None and self.recovery.stop is StopKind.CLEAN

    def open(self) -> None:
        """Lock the directory, load its files, recover. Raises StoreDamaged, OSError; blocks."""
        root = self.settings.store_path_root_dir
        make_folder(root)
        make_folder(self.settings.commit_log_dir)
        self._lock = DirectoryLock(root, self.settings.commit_log_dir)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        stop = self._stop_marker.stop_kind()
        loaded = Checkpoint.load(self.settings.checkpoint_path)
        for name in loaded.__slots__:
            setattr(self.checkpoint, name, getattr(loaded, name))
        self.commit_log.load()
        self.truncation = self._truncation_file.apply(
            self.commit_log, self._fine_path, after_clean_stop=stop is StopKind.CLEAN
        )
        self.queues.load()
        self.queue_state.load()
        if self.truncation is not None:
            stop = StopKind.MACHINE_CRASHED  # queues and index know more than the log
        is_clean = stop is StopKind.CLEAN
        lacks_entries = self.queue_state.lacks_entries(
            self.queues, self.checkpoint, after_clean_stop=is_clean
        )
        options = RecoveryOptions(
            fine_path=self._fine_path,
            deleted=self.queue_state.deleted,
            rebuild=lacks_entries,
            check_crc=self.settings.check_crc_on_recover,
            delay_levels=self.settings.delay_levels,
        )
        self.recovery = recover(self.commit_log, self.queues, self.checkpoint, stop, options)
        if self.commits is not None and not is_clean:
            self.commit_log.flush()  # consumers see only flushed messages
        self.queue_state.limit_deletions(self.commit_log.max_offset)
        self._flusher.opened(self.recovery.fine)
        if self.truncation is not None:
            self._lower_times()
        if self.epochs is not None:
            self.epochs.load(self.commit_log.min_offset, self.commit_log.max_offset)
            if self.truncation is not None:
                self.epochs.truncate(self.truncation.offset)
        self.appender.last_timestamp_ms = max(
            self.checkpoint.log_timestamp_ms, self.recovery.last_timestamp_ms
        )
        self.index.open(
            after_clean_stop=is_clean,
            same_boot=stop is StopKind.PROCESS_KILLED,
            checkpoint_index_ms=self.checkpoint.index_timestamp_ms,
        )
        self._lower_index_time()
        self._stop_marker.running()
        self._flushed_end = self.commit_log.flushed_offset
        if not self._may_wait:
            self._preallocator.allocate_first(self.commit_log)
        log.info(
            "store opened path=%s last_stop=%r log=%d-%d records_read=%d",
            self.settings.store_path_root_dir,
            stop.value,
            self.commit_log.min_offset,
            self.commit_log.max_offset,
            self.recovery.records_read,
        )
        if self.is_replica:
            self.health.refuse(_REPLICA, "this broker is a replica (brokerRole=SLAVE): send to its master")
        self.health.allow(_CLOSED)

    def _lower_times(self) -> None:
        """After a truncation: let the checkpoint count no message that was cut off. Raises OSError."""
        ends = [entry[0] for queue in self.queues if (entry := queue.last_entry()) is not None]
        newest_ms = self.commit_log.store_timestamp(max(ends)) if ends else 0
        checkpoint = self.checkpoint
        for name in ("log_timestamp_ms", "queue_timestamp_ms", "index_timestamp_ms"):
            setattr(checkpoint, name, min(getattr(checkpoint, name), newest_ms))
        checkpoint.save(self.settings.checkpoint_path)

    def _lower_index_time(self) -> None:
        """Let the checkpoint count no index file as flushed that is about to be rebuilt. Raises OSError.

        A rebuilt file ends at the same time as its predecessor.
        """
        flushed_ms = self.index.flushed_timestamp_ms
        if flushed_ms < self.checkpoint.index_timestamp_ms:
            self.checkpoint.index_timestamp_ms = flushed_ms
            self.checkpoint.save(self.settings.checkpoint_path)

    def start(self) -> None:
        """Begin to flush, in the background or for each message, and to preallocate the log."""
        loop = asyncio.get_running_loop()
        self._preallocator.start(partial(_call_on, loop, self.space.ready))
        if self.commits is not None:
            self.commits.start()
        self.replicas.start()
        end = self.commit_log.max_offset
        if self.is_replica and self.epochs is not None and end:
            self._held_reads.hold(end)
        else:
            self._held_reads.start(end)
        self.answers_when_durable = self.commits is not None or self.replicas.is_synchronous
        self._tasks = [
            loop.create_task(self._run_flusher(), name="store-flush"),
            loop.create_task(self._run_index(), name="store-index"),
            loop.create_task(self._retry_deletions(), name="store-deletions"),
        ]

    async def stop(self) -> None:
        """Flush everything and mark the directory as cleanly stopped. Raises OSError if a flush fails."""
        self.health.refuse(_CLOSED, "the store is closed")
        tasks = self._cancel_tasks()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._lock is None:
            return
        self.answers_when_durable = False
        if self.commits is not None:
            await stop_commits(self.commits)
        self.replicas.stop()
        self._confirm()
        loop = asyncio.get_running_loop()
        try:
            self.confirm_data(None)  # a clean stop leaves no record without its entries
            self.index.put_deferred()
            await loop.run_in_executor(None, self._preallocator.close)
            await loop.run_in_executor(None, self._finish)
        finally:
            self.close()

    def close(self) -> None:
        """Close the files without the marks of a clean stop."""
        self.health.refuse(_CLOSED, "the store is closed")
        self._cancel_tasks()
        self.answers_when_durable = False
        if self.commits is not None:
            self.commits.close()
        self.replicas.stop()
        self._preallocator.close()
        self.deletions.close()
        self._flusher.close()
        self.index.close()
        self.commit_log.close()
        self.queues.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _cancel_tasks(self) -> list[asyncio.Task[None]]:
        self._held_reads.stop()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        return tasks

    async def _run_flusher(self) -> None:
        """Flush. After a failure correct `rmq_checkpoint`, in case this process is killed."""
        await self._flusher.run()
        if self._flusher.failure is not None:
            await asyncio.get_running_loop().run_in_executor(None, invalidate_written, self._fine_path)

    async def _run_index(self) -> None:
        """Let the index catch up and create its files; messages are stored even if that fails."""
        while True:
            try:
                await self.index.run()
            except Exception:
                log.exception("index task failed; restarted in %.0f s", _INDEX_RETRY_SECONDS)
                await asyncio.sleep(_INDEX_RETRY_SECONDS)

    async def _retry_deletions(self) -> None:
        """Continue the deletion of topics after the disk has refused it."""
        while True:
            await asyncio.sleep(_DELETION_RETRY_SECONDS)
            if self.deletions.failure is not None:
                await asyncio.get_running_loop().run_in_executor(None, self.deletions.retry)

    def _log_flushed(self, offset: int) -> None:
        self._flushed_end = max(self._flushed_end, offset)
        if self.replicas.is_synchronous:
            self.replicas.appended()
        self._confirm()

    def _confirm(self) -> None:
        """Let consumers see the messages that are on disk, and on replicas, as far as both are asked for."""
        confirmed = self.replicas.confirmed_offset
        self._held_reads.confirmed(confirmed)
        if self.commits is not None:
            confirmed = min(confirmed, self._flushed_end)
        self.appender.confirmed(confirmed)

    def _flush_position(self) -> FlushPosition:
        return FlushPosition(self.appender.last_timestamp_ms, self.entries_end)

    def _finish(self) -> None:
        if self._flusher.failure is not None:
            log.error("store left as after a crash, because a flush failed cause=%s", self._flusher.failure)
            invalidate_written(self._fine_path)
            return
        self.deletions.finish()
        self.index.flush()
        self.flush()
        self.commit_log.drop_next()
        # Another broker may append here before this one does again; the file's offsets would be too low then.
        self._fine_path.unlink(missing_ok=True)
        self.queue_state.save_ends(self.queues, self.checkpoint, self.commit_log.min_offset)
        self._stop_marker.stopped()
        self.all_is_flushed = True

    # --- writing ---

    @property
    def unavailable_reason(self) -> str | None:
        """Why messages are refused; None if they are accepted."""
        return self.health.refusal

    def when_durable(self, listener: DurabilityListener) -> None:
        """Call `listener` when the wait for the newest message's flush, and for its replicas, ends.

        Only with `answers_when_durable`. The call comes in a later iteration of the event loop.
        """
        end = self.commit_log.max_offset
        if not self.replicas.is_synchronous:
            assert self.commits is not None
            self.commits.when_flushed(end, listener)
            return
        if self.commits is not None:
            listener = BothDurable(listener)
            self.commits.when_flushed(end, listener)
        self.replicas.when_replicated(end, listener)

    def durable(self) -> asyncio.Future[Durability]:
        """Return a future of what `when_durable` would tell; only with `answers_when_durable`."""
        future: asyncio.Future[Durability] = asyncio.get_running_loop().create_future()

        def complete(durability: Durability) -> None:
            if not future.done():
                future.set_result(durability)

        self.when_durable(complete)
        return future

    # --- replication ---

    @property
    def holds_reads(self) -> bool:
        """Whether consumers wait: after a start, until replicas have the end of the log."""
        return self._held_reads.are_held

    @property
    def has_released_reads(self) -> bool:
        """Whether consumers waited after the start, and wait no longer."""
        return self._held_reads.were_held and not self._held_reads.are_held

    def transferable(self, offset: int, max_bytes: int) -> bytes | None:
        """Return bytes of the log from `offset` on that replicas may have; None if there are none now.

        With synchronous flushing those are the flushed bytes: a power cut cannot leave a replica ahead of its
        master. At most to the end of a file. Raises OSError; blocks while the bytes are not in memory.
        """
        size = min(self.transferable_end - offset, max_bytes)
        return self.commit_log.get_data(offset, size) if size > 0 else None

    def log_bytes(self, offset: int, max_bytes: int) -> bytes | None:
        """Return bytes of the log from `offset` on, at most to the end of a file; None if there are none.

        Raises OSError; blocks.
        """
        return self.commit_log.get_data(offset, max_bytes)

    @property
    def transferable_end(self) -> int:
        """The log offset up to which replicas may have the log."""
        return self.commit_log.max_offset if self.commits is None else self._flushed_end

    def last_file_offset(self) -> int:
        """Return where the last file of the log begins; 0 without files."""
        return self.commit_log.files[-1].start if self.commit_log.files else 0

    def next_file_offset(self, offset: int) -> int:
        """Return the log offset at which the file after that of `offset` begins."""
        return self.commit_log.next_file_offset(offset)

    def request_truncation(self, offset: int) -> None:
        """Have the next start end the log at `offset`, where a record ends. Raises OSError; blocks."""
        self._truncation_file.request(offset, self.commit_log.max_offset)

    def when_flushed(self, listener: DurabilityListener) -> None:
        """Call `listener` when the log is flushed up to its present end; only with synchronous flushing."""
        assert self.commits is not None
        self.commits.when_flushed(self.commit_log.max_offset, listener)

    @property
    def flushes_synchronously(self) -> bool:
        """Whether the store has SYNC_FLUSH."""
        return self.commits is not None

    def record_boundaries(self, offset: int) -> tuple[int, int]:
        """Return where the record that has the byte `offset` begins, and where the one before it begins.

        The latter is -1 for the first record of a file. Raises OSError; blocks, up to seconds.
        """
        return self.commit_log.record_boundaries(offset)

    def flush(self) -> None:
        """Flush the log, the queues and the checkpoint now. Raises OSError; blocks."""
        self._flusher.flush()

    def flush_log(self) -> None:
        """Flush the log now. Raises OSError; blocks."""
        self._flusher.flush_log()

    def append_data(self, offset: int, data: bytes) -> None:
        """Append bytes that stand at `offset` of another broker's log, where this log has to end.

        Consumers see their messages after `enter_data`. Raises StoreUnavailable, ValueError, OSError.
        """
        refusal = self.health.refusal_besides(_REPLICA)
        if refusal is not None:
            raise StoreUnavailable(refusal)
        if self._replica is None:
            self._replica = Replica(
                self.commit_log,
                self.queues,
                self.index,
                self.appender.notify_arrival,
                self.settings.delay_levels,
            )
            self._replica.confirm(self._data_confirmed)
        self._replica.append(offset, data)

    def enter_data(self) -> None:
        """Make the entries of the appended messages that consumers may see. Raises OSError."""
        if self._replica is not None:
            self._replica.enter()

    def confirm_data(self, offset: int | None) -> None:
        """Let consumers see appended bytes up to `offset` only; None, the default: all. Raises OSError.

        It makes entries as `enter_data` does.
        """
        self._data_confirmed = offset
        if offset is not None:
            self._held_reads.confirmed(offset)
        if self._replica is not None:
            self._replica.confirm(offset)

    @property
    def entries_end(self) -> int:
        """The log offset up to which every message has its entries in its queue and in the index."""
        return self.appender.entries_end if self._replica is None else self._replica.entries_end

    @property
    def flushed_offset(self) -> int:
        """The log offset up to which the log is on disk."""
        return self.commit_log.flushed_offset

    def delete_topics(self, names: Sequence[str]) -> Future[None]:
        """Remove the queues of topics; their messages stay until their log files are deleted.

        Consumers see no queue from now on. The returned future is done when the deletion is durable and the
        files are removed, by a thread. It raises OSError if the disk refuses that; the deletion is continued
        later.
        """
        return self.deletions.delete(names)

    @property
    def last_timestamp_ms(self) -> int:
        """When the newest message was stored, in ms; 0 without a message."""
        return self.appender.last_timestamp_ms

    def add_arrival_listener(self, listener: ArrivalListener) -> None:
        """Call `listener` with the queue of each message or batch, after the listeners added before it."""
        self.appender.add_arrival_listener(listener)

    def remove_arrival_listener(self, listener: ArrivalListener) -> None:
        """Call `listener` no longer."""
        self.appender.remove_arrival_listener(listener)

    # --- reading records ---

    def query_by_key(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int
    ) -> KeyQueryResult:
        """Return where messages are that may have the key, newest first; see MessageIndex.query."""
        return self.index.query(topic, key, max_count, begin_ms, end_ms)

    def record_now(self, physical_offset: int, *, entered: bool = True, known_size: int = 0) -> bytes | None:
        """Return the record at a physical offset, as `record_at`, without blocking.

        `entered` off: also a record that is not flushed yet, and in no queue. `known_size`: the size of a
        record that is known to be there. Raises OSError, and ColdData if the record is not in memory.
        """
        if not 0 <= physical_offset < (self.entries_end if entered else self.commit_log.max_offset):
            return None
        return self.reader.record_now(physical_offset, known_size)

    def record_at(self, physical_offset: int) -> bytes | None:
        """Return the record that begins at a physical offset; None if no valid one does.

        Raises OSError; blocks.
        """
        return self.records.raw_record(physical_offset)

    def cold_log(self) -> ColdLog:
        """Return a reader of the commit log for one pass in a thread; its reads block."""
        return ColdLog(self.commit_log.files)

    # --- figures ---

    @property
    def unflushed_bytes(self) -> int:
        """How many bytes of the log are not on disk yet."""
        return self.commit_log.unflushed_bytes

    @property
    def puts_failed(self) -> int:
        """How many messages and batches failed because the log had no room."""
        return self.appender.puts_failed

    @property
    def waiting_for_flush(self) -> int:
        """How many listeners wait for a flush now; 0 with asynchronous flushing."""
        return 0 if self.commits is None else self.commits.waiting

    @property
    def commit_statistics(self) -> CommitStatistics:
        """Counters of synchronous flushes; all 0 with asynchronous flushing."""
        return CommitStatistics() if self.commits is None else self.commits.statistics

    def index_statistics(self) -> IndexStatistics:
        """Return the present state of the index."""
        return self.index.statistics()

    @property
    def dispatch_behind_bytes(self) -> int:
        """How many bytes of the log have no queue entries yet; the index has a figure of its own."""
        return self.commit_log.max_offset - self.entries_end

    def min_phy_offset(self) -> int:
        """Return where the log begins."""
        return self.commit_log.min_offset

    def max_phy_offset(self) -> int:
        """Return where the log ends."""
        return self.commit_log.max_offset

    def runtime_info(self) -> dict[str, str]:
        """Return the figures that admin tools show of a store (Apache RocketMQ 5.3.3, getRuntimeInfo)."""
        used_ratio = DiskUse.of(self.settings.store_path_root_dir).ratio
        return {
            "commitLogMinOffset": str(self.commit_log.min_offset),
            "commitLogMaxOffset": str(self.commit_log.max_offset),
            "commitLogDiskRatio": f"{used_ratio:.4f}",
            f"commitLogDiskRatio_{self.settings.commit_log_dir}": f"{used_ratio:.4f}",
            "consumeQueueDiskRatio": f"{used_ratio:.4f}",
            "dispatchBehindBytes": str(self.dispatch_behind_bytes),
            "pageCacheLockTimeMills": "0",
            "earliestMessageTimeStamp": str(self.commit_log.store_timestamp(self.commit_log.min_offset)),
            "flushBehindBytes": str(self.commit_log.unflushed_bytes),
            "getMessageEntireTimeMax": str(int(self.read_statistics.longest_read_seconds * 1000)),
        }


def _call_on(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    """Have the loop call a function; for any thread. A loop that is closed has no sends that wait."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function)
