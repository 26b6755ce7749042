"""The store as the rest of the broker sees it: put a message, get messages, ask about offsets."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rmq_remoting.daemon.atomic_file import replace_file

from .appending.appender import Appender
from .appending.bit_maps import RecordJudge
from .appending.replica import Replica
from .cleaning.disk_space import DiskUse
from .directory_lock import DirectoryLock
from .errors import StoreUnavailable
from .flushing.flusher import Flusher, Reached
from .flushing.group_commit import Durability, DurabilityListener, GroupCommit
from .index.index_files import IndexAnswer
from .index.message_index import MessageIndex
from .log.commit_log import CommitLog
from .log.log_records import LogRecords
from .log.preallocation import LogRoom
from .queues.consume_queue import ConsumeQueue
from .queues.consume_queues import ConsumeQueues
from .queues.extension import ExtUnit
from .reading.log_ranges import Backlogs, ColdLog
from .reading.property_filter import PropertyFilter
from .reading.reader import ColdRead, GetResult, Reader
from .recovery.checkpoint import Checkpoint
from .recovery.fine_checkpoint import distrust_written
from .recovery.queue_state import QueueMarks
from .recovery.recovery import RecoveryReport, StopKind, boot_id, recover
from .settings import FlushDiskType, PullSettings, QuerySettings, StoreSettings
from .write_health import WriteHealth

log = logging.getLogger("rmq.store")

# Reasons against accepting messages that are the store's own.
_CLOSED: Final = "closed"
_INDEX_RETRY_SECONDS: Final = 5.0


class MessageStore:
    """Owns the files of one store directory. What does not block belongs to the loop's thread."""

    def __init__(
        self,
        settings: StoreSettings,
        pull_settings: PullSettings,
        query_settings: QuerySettings,
        clock: Callable[[], float] = time.time,
        *,
        is_batch: Callable[[str], bool] = lambda topic: False,
    ) -> None:
        """`is_batch` tells which topics store batches as wholes (attribute `queue.type=BatchCQ`)."""
        root = settings.store_path_root_dir
        self._settings = settings
        self._is_batch = is_batch
        self._lock: DirectoryLock | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._room: LogRoom | None = None
        self._commits: GroupCommit | None = None
        self._fine_path = settings.fine_checkpoint_path
        self._abort_path = root / "abort"
        self._boot_path = root / "rmq_boot_id"
        self._marks = QueueMarks(root / "rmq_queues.json")
        self._checkpoint = Checkpoint()
        self.health = WriteHealth()
        self.health.refuse(_CLOSED, "the store is closed")
        self.commit_log = CommitLog(settings.commit_log_dir, settings.mapped_file_size_commit_log)
        self.judge = RecordJudge(self.commit_log)
        self.queues = ConsumeQueues(
            settings.consume_queue_dir,
            settings.consume_queue_file_bytes,
            is_batch=is_batch,
            batch_file_bytes=settings.batch_consume_queue_file_bytes,
            ext_file_bytes=settings.mapped_file_size_consume_queue_ext,
            judge=self.judge if settings.enable_consume_queue_ext else None,
        )
        self._replica: Replica | None = None
        self.records = LogRecords(self.commit_log, lambda: self.entries_end)
        self.index = MessageIndex(settings, query_settings, self.records, clock)
        self.appender = Appender(self.commit_log, self.index, self.health, clock)
        self.put = self.appender.put
        self.put_batch = self.appender.put_batch
        self.put_unit = self.appender.put_unit
        self.reader = Reader(self.commit_log, pull_settings)
        self.recovery: RecoveryReport | None = None
        self.all_is_flushed = False  # after `stop`: whether it left everything on the disk
        self._flusher = Flusher(
            self.commit_log,
            self.queues,
            self._checkpoint,
            settings,
            self.health,
            self._reached,
            lambda: self.index.flushed_timestamp_ms,
        )

    # --- life ---

    def open(self) -> None:
        """Lock the directory, load its files, recover. Raises StoreDamaged, OSError; blocks."""
        root = self._settings.store_path_root_dir
        root.mkdir(parents=True, exist_ok=True)
        self._lock = DirectoryLock(root)
        try:
            self._open(root)
        except BaseException:
            self.close()
            raise

    def _open(self, root: Path) -> None:
        stop = self._how_it_stopped()
        loaded = Checkpoint.load(self._settings.checkpoint_path)
        for name in loaded.__slots__:
            setattr(self._checkpoint, name, getattr(loaded, name))
        self.commit_log.load()
        self.queues.load()
        self._marks.load()
        lacks_entries = self._marks.lacks_entries(
            self.queues, self._checkpoint, after_clean_stop=stop is StopKind.CLEAN
        )
        self.recovery = recover(
            self.commit_log,
            self.queues,
            self._checkpoint,
            stop,
            fine_path=self._fine_path,
            deleted=self._marks.deleted,
            rebuild=lacks_entries,
            check_crc=self._settings.check_crc_on_recover,
            levels=self._settings.delay_levels,
        )
        self._marks.settle(self.commit_log.max_offset)
        self._flusher.opened(self.recovery.fine)
        self.appender.last_timestamp_ms = max(
            self._checkpoint.log_timestamp_ms, self.recovery.last_timestamp_ms
        )
        self.index.open(
            after_clean_stop=stop is StopKind.CLEAN,
            same_boot=stop is StopKind.PROCESS_KILLED,
            checkpoint_index_ms=self._checkpoint.index_timestamp_ms,
        )
        # On disk before the first message: after a power cut nobody may take what is there for whole.
        replace_file(self._boot_path, boot_id().encode())
        replace_file(self._abort_path, str(os.getpid()).encode())
        log.info(
            "store %s opened after a %s: log %d-%d, %d records read",
            root,
            stop.value,
            self.commit_log.min_offset,
            self.commit_log.max_offset,
            self.recovery.records_read,
        )
        self.health.allow(_CLOSED)

    def start(self) -> None:
        """Begin to flush, in the background or for each message, and to make room ahead in the log."""
        settings = self._settings
        is_sync = settings.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._room = LogRoom(self.commit_log, touch=not is_sync)
        self.commit_log.room_is_made_by(self._room.ask)
        if is_sync:
            self._commits = GroupCommit(
                self._flusher.flush_log,
                timeout_ms=lambda: settings.sync_flush_timeout_ms,
                on_flushed=self.appender.flushed,
            )
            self.appender.enter_when_flushed(self._commits.request)
        loop = asyncio.get_running_loop()
        self.index.put_behind_answers(loop.call_soon)
        self._tasks = [
            loop.create_task(self._run_flusher(), name="store-flush"),
            loop.create_task(self._run_index(), name="store-index"),
        ]

    async def stop(self) -> None:
        """Flush all, leave the directory as after a clean stop. Raises OSError where it cannot be flushed."""
        self.health.refuse(_CLOSED, "the store is closed")
        tasks = self._cancel_tasks()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._lock is None:
            return
        self.index.put_behind_answers(None)
        if self._commits is not None:
            await self._commits.stop()
        self._stop_making_room()
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._finish)
        finally:
            self.close()

    def close(self) -> None:
        """Let the files go without the marks of a clean stop."""
        self.health.refuse(_CLOSED, "the store is closed")
        self._cancel_tasks()
        if self._commits is not None:
            self.appender.enter_when_flushed(None)
            self._commits.close()
            self._commits = None
        self._stop_making_room()
        self._flusher.close()
        self.index.close()
        self.commit_log.close()
        self.queues.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _cancel_tasks(self) -> list[asyncio.Task[None]]:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        return tasks

    async def _run_flusher(self) -> None:
        """Flush; when that has failed, have the next start know even if this process is killed."""
        await self._flusher.run()
        if self._flusher.failure is not None:
            await asyncio.get_running_loop().run_in_executor(None, distrust_written, self._fine_path)

    async def _run_index(self) -> None:
        """Let the index catch up and make its files; what fails there hinders no message."""
        while True:
            try:
                await self.index.run()
            except Exception:
                log.exception("the index's background work failed, it begins again")
                await asyncio.sleep(_INDEX_RETRY_SECONDS)

    def _stop_making_room(self) -> None:
        if self._room is not None:
            self.commit_log.room_is_made_by(None)
            self._room.close()
            self._room = None

    def _reached(self) -> Reached:
        return Reached(self.appender.last_timestamp_ms, self.entries_end)

    def _how_it_stopped(self) -> StopKind:
        if not self._abort_path.exists():
            return StopKind.CLEAN
        boot = boot_id()
        if boot and _read_text(self._boot_path) == boot:
            return StopKind.PROCESS_KILLED
        return StopKind.MACHINE_CRASHED

    def _finish(self) -> None:
        if self._flusher.failure is not None:
            log.error("the store is left as after a crash: flushing failed: %s", self._flusher.failure)
            distrust_written(self._fine_path)
            return
        self.index.flush()
        self._flusher.flush()
        self.commit_log.drop_next()
        # Another broker may write here before this one does again: then it would say too little.
        self._fine_path.unlink(missing_ok=True)
        self._marks.stopped(self.queues, self._checkpoint, self.commit_log.min_offset)
        self._abort_path.unlink(missing_ok=True)
        self.all_is_flushed = True

    # --- writing ---

    @property
    def unavailable_reason(self) -> str | None:
        """Why nothing can be written, or None."""
        return self.health.refusal

    @property
    def flushes_each_message(self) -> bool:
        """Whether a message is to be on the disk before its sender hears of it."""
        return self._commits is not None

    @property
    def commits(self) -> GroupCommit | None:
        """Who waits for the disk; None with asynchronous flushing, and while the store is closed."""
        return self._commits

    def when_flushed(self, listener: DurabilityListener) -> None:
        """Call `listener` when the wait for the newest message's flush ends.

        Only with `flushes_each_message`. The call comes in a later iteration of the event loop, with what is
        known of the message on disk then.
        """
        assert self._commits is not None
        self._commits.when_flushed(self.commit_log.max_offset, listener)

    def flushed(self) -> asyncio.Future[Durability]:
        """Return a future of what `when_flushed` would tell; only with `flushes_each_message`."""
        future: asyncio.Future[Durability] = asyncio.get_running_loop().create_future()

        def complete(durability: Durability) -> None:
            if not future.done():
                future.set_result(durability)

        self.when_flushed(complete)
        return future

    def append_data(self, offset: int, data: bytes) -> None:
        """Append bytes that stand at `offset` in another broker's log, where this one has to end.

        Raises StoreUnavailable, ValueError, OSError.
        """
        if self.health.refusal is not None:
            raise StoreUnavailable(self.health.refusal)
        if self._replica is None:
            self._replica = Replica(
                self.commit_log,
                self.queues,
                self.index,
                self._arrived,
                self._settings.delay_levels,
            )
        self._replica.append(offset, data)

    @property
    def entries_end(self) -> int:
        """Up to here in the log every message is in its queue and in the index."""
        return self.appender.entries_end if self._replica is None else self._replica.entries_end

    # --- reading ---

    def get(
        self, topic: str, queue_id: int, offset: int, max_count: int, tags_codes: frozenset[int] | None
    ) -> GetResult:
        """Messages of a queue from `offset` on; waits for the disk where it has to."""
        return self.reader.get(self.queues.get(topic, queue_id), offset, max_count, tags_codes)

    def get_now(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        tags_codes: frozenset[int] | None,
        max_bytes: int = 0,
        properties: PropertyFilter | None = None,
    ) -> GetResult | ColdRead:
        """As `get`, without waiting for a disk: what is not in memory comes back as a read for a thread.

        `max_bytes`: what the client says it takes, 0 where it says nothing. `properties`: a filter besides
        the tags.
        """
        queue = self.queues.get(topic, queue_id)
        return self.reader.get_now(queue, offset, max_count, tags_codes, max_bytes, properties)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The first offset of a queue; 0 where nothing has been stored yet."""
        queue = self.queues.get(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def reported_min_offset(self, topic: str, queue_id: int) -> int:
        """What clients are told to be the first offset: -1 where a topic of batches has nothing yet."""
        queue = self.queues.get(topic, queue_id)
        if queue is None:
            return -1 if self._is_batch(topic) else 0
        return queue.reported_min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset that the next message of a queue gets."""
        queue = self.queues.get(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, upper: bool = False) -> int:
        """The first message stored at or after a time; `upper`: the last one stored at or before it.

        The end of the queue (lower) or its beginning (upper) where there is none.
        """
        queue = self.queues.get(topic, queue_id)
        if queue is None:
            return 0
        return queue.offset_by_time(timestamp_ms, self.commit_log.store_timestamp, upper=upper)

    def store_time_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """When a message was stored, in ms; -1 if it is not there."""
        queue = self.queues.get(topic, queue_id)
        return -1 if queue is None else self._store_time(queue, queue_offset)

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """When the first message of a queue was stored, in ms; -1 if it is empty."""
        queue = self.queues.get(topic, queue_id)
        return -1 if queue is None else self._store_time(queue, queue.min_offset)

    def is_in_memory(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether a message is young enough to be in memory still, by estimate."""
        queue = self.queues.get(topic, queue_id)
        entry = None if queue is None else queue.entry(queue_offset)
        return entry is not None and self.reader.is_recent(entry[0])

    def queue_entries(
        self, topic: str, queue_id: int, offset: int, max_count: int
    ) -> list[tuple[int, int, int]] | None:
        """Physical offset, size and tags code of messages from `offset` on; None: there is no such queue.

        Raises OSError; blocks.
        """
        queue = self.queues.get(topic, queue_id)
        if queue is None:
            return None
        return queue.entries(offset, max_count)

    def ext_unit(self, topic: str, queue_id: int, address: int) -> ExtUnit | None:
        """What stands at an address in a queue's extension files. Raises OSError; blocks."""
        queue = self.queues.get(topic, queue_id)
        return None if queue is None or queue.ext is None else queue.ext.unit(address)

    # --- looking up ---

    def query_by_key(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> IndexAnswer:
        """Where messages lie that may have the key, newest first; see MessageIndex.query."""
        return self.index.query(topic, key, max_count, begin_ms, end_ms)

    def record_now(self, physical_offset: int, *, entered: bool = True, known_size: int = 0) -> bytes | None:
        """As `record_at`, on the loop; without `entered` also of what is not on the disk and in a queue yet.

        `known_size`: of a record that is known to be there. Raises ColdData where it would have to wait for
        the disk, OSError.
        """
        if not 0 <= physical_offset < (self.entries_end if entered else self.commit_log.max_offset):
            return None
        return self.reader.record_now(physical_offset, known_size)

    def cold_log(self) -> ColdLog:
        """Return a reader of the commit log for one pass in a thread; its reads block."""
        return ColdLog(self.commit_log.files, Backlogs())

    def record_at(self, physical_offset: int) -> bytes | None:
        """The record that begins at a physical offset; None where no sound one does.

        Raises OSError; blocks.
        """
        return self.records.raw_record(physical_offset)

    @property
    def dispatch_behind_bytes(self) -> int:
        """How much of the log has no entries in its queues yet; the index is asked itself."""
        return self.commit_log.max_offset - self.entries_end

    def min_phy_offset(self) -> int:
        """Where the log begins."""
        return self.commit_log.min_offset

    def max_phy_offset(self) -> int:
        """Where the log ends."""
        return self.commit_log.max_offset

    def delete_topics(self, names: Sequence[str]) -> None:
        """Remove the queues of topics; their messages go with the log files. Raises OSError."""
        written_to = [name for name in names if self.queues.of_topic(name)]
        if written_to:
            self._marks.topics_deleted(written_to, self.commit_log.max_offset)
        for name in written_to:
            self.queues.delete_topic(name)

    def runtime_info(self) -> dict[str, str]:
        """What the admin tools show of a store (Apache RocketMQ 5.3.3, getRuntimeInfo of the store)."""
        used_ratio = DiskUse.of(self._settings.store_path_root_dir).ratio
        return {
            "commitLogMinOffset": str(self.commit_log.min_offset),
            "commitLogMaxOffset": str(self.commit_log.max_offset),
            "commitLogDiskRatio": f"{used_ratio:.4f}",
            f"commitLogDiskRatio_{self._settings.commit_log_dir}": f"{used_ratio:.4f}",
            "consumeQueueDiskRatio": f"{used_ratio:.4f}",
            "dispatchBehindBytes": str(self.dispatch_behind_bytes),
            "pageCacheLockTimeMills": "0",
            "earliestMessageTimeStamp": str(self.commit_log.store_timestamp(self.commit_log.min_offset)),
            "flushBehindBytes": str(self.commit_log.unflushed_bytes),
        }

    def _arrived(self, queue: ConsumeQueue) -> None:
        """Tell whoever is told of arrivals now."""
        self.appender.on_arrival(queue)

    def _store_time(self, queue: ConsumeQueue, offset: int) -> int:
        entry = queue.entry(offset)
        return -1 if entry is None else self.commit_log.store_timestamp(entry[0])


def _read_text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except FileNotFoundError:
        return ""
