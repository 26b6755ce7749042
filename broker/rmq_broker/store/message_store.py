"""The store as the rest of the broker sees it: put a message, get messages, ask about offsets."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rmq_remoting.daemon.atomic_file import replace_file

from ..config import PullSettings, StoreSettings
from .checkpoint import Checkpoint
from .commit_log import CommitLog
from .consume_queue import ConsumeQueue
from .consume_queues import ConsumeQueues
from .directory_lock import DirectoryLock
from .errors import MessageRejected, StoreUnavailable
from .flush import Flusher
from .queue_marks import QueueMarks
from .reader import GetResult, Reader
from .record import BatchItem, PackedBatch, RecordTemplate
from .recovery import RecoveryReport, StopKind, boot_id, recover

log = logging.getLogger("rmq.store")

# Read again after a crash of the process.
_TAIL_BYTES: Final = 8 * 1024 * 1024

Arrival = Callable[[ConsumeQueue], None]


@dataclass(slots=True)
class StoreStatistics:
    """Plain counters for metrics and runtime information."""

    messages_put: int = 0
    bytes_put: int = 0
    messages_got: int = 0
    bytes_got: int = 0
    puts_failed: int = 0


class MessageStore:
    """Owns the files of one store directory. Everything but `flush` belongs to the loop's thread."""

    def __init__(
        self,
        settings: StoreSettings,
        pull_settings: PullSettings,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._lock: DirectoryLock | None = None
        self._flush_task: asyncio.Task[None] | None = None
        self._checkpoint_path = settings.store_path_root_dir / "checkpoint"
        self._abort_path = settings.store_path_root_dir / "abort"
        self._boot_path = settings.store_path_root_dir / "rmq_boot_id"
        self._marks = QueueMarks(settings.store_path_root_dir / "rmq_queues.json")
        self._checkpoint = Checkpoint()
        self._accepts = False
        self.commit_log = CommitLog(settings.commit_log_dir, settings.mapped_file_size_commit_log)
        self.queues = ConsumeQueues(settings.consume_queue_dir, settings.consume_queue_file_bytes)
        self._largest_record_bytes = self.commit_log.largest_record_bytes
        self.reader = Reader(self.commit_log, pull_settings)
        self.statistics = StoreStatistics()
        self.recovery: RecoveryReport | None = None
        self.begin_timestamp_ms = int(clock() * 1000)
        self._flusher = Flusher(
            self.commit_log,
            self.queues,
            self._checkpoint,
            self._checkpoint_path,
            settings,
        )
        # Called with the queue after each append; set by whoever wakes consumers.
        self.on_arrival: Arrival = lambda queue: None

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
        loaded = Checkpoint.load(self._checkpoint_path)
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
            tail_bytes=max(_TAIL_BYTES, 2 * self._settings.max_message_size),
            deleted=self._marks.deleted,
            rebuild=lacks_entries,
            check_crc=self._settings.check_crc_on_recover,
        )
        self._flusher.last_timestamp_ms = max(
            self._checkpoint.log_timestamp_ms, self.recovery.last_timestamp_ms
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
        self._accepts = True

    def start(self) -> None:
        """Begin to flush in the background."""
        self._flush_task = asyncio.get_running_loop().create_task(self._flusher.run(), name="store-flush")

    async def stop(self) -> None:
        """Flush all, leave the directory as after a clean stop. Raises OSError where it cannot be flushed."""
        self._accepts = False
        if self._flush_task is not None:
            self._flush_task.cancel()
            await asyncio.gather(self._flush_task, return_exceptions=True)
            self._flush_task = None
        if self._lock is None:
            return
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._finish)
        finally:
            self.close()

    def close(self) -> None:
        """Let the files go without the marks of a clean stop."""
        self._accepts = False
        if self._flush_task is not None:
            self._flush_task.cancel()
            self._flush_task = None
        self._flusher.close()
        self.commit_log.close()
        self.queues.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

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
            return
        self._flusher.flush()
        self._marks.stopped(self.queues, self._checkpoint, self.commit_log.min_offset)
        self._abort_path.unlink(missing_ok=True)

    # --- writing ---

    @property
    def unavailable_reason(self) -> str | None:
        """Why nothing can be written, or None."""
        if self._flusher.failure is not None:
            return f"flushing to the disk failed: {self._flusher.failure}"
        return None if self._accepts else "the store is closed"

    def put(
        self,
        queue: ConsumeQueue,
        template: RecordTemplate,
        body: bytes,
        properties: bytes,
        *,
        tags_code: int,
        born_timestamp_ms: int,
        born_host: bytes,
    ) -> tuple[int, int]:
        """Append a message; returns its physical offset and its queue offset.

        Raises StoreUnavailable, MessageRejected.
        """
        size = template.fixed_bytes + len(body) + len(properties)
        if not self._accepts or self._flusher.failure is not None:
            raise StoreUnavailable(self.unavailable_reason)
        if size > self._largest_record_bytes:
            raise MessageRejected(self._too_large("message", size))
        try:
            queue.prepare(1)
            file = self.commit_log.room_for(size)
        except OSError as error:
            raise self._disk_error(error) from error
        position = file.wrote
        physical_offset = file.start + position
        queue_offset = queue.max_offset
        now_ms = int(self._clock() * 1000)
        file.map[position : position + size] = template.pack(
            size,
            body,
            properties,
            queue_offset=queue_offset,
            physical_offset=physical_offset,
            born_timestamp_ms=born_timestamp_ms,
            born_host=born_host,
            store_timestamp_ms=now_ms,
        )
        file.wrote = position + size
        queue.put(physical_offset, size, tags_code)
        self._flusher.last_timestamp_ms = now_ms
        statistics = self.statistics
        statistics.messages_put += 1
        statistics.bytes_put += size
        self.on_arrival(queue)
        return physical_offset, queue_offset

    def put_batch(
        self,
        queue: ConsumeQueue,
        template: RecordTemplate,
        items: Sequence[BatchItem],
        *,
        born_timestamp_ms: int,
        born_host: bytes,
    ) -> tuple[PackedBatch, int]:
        """Append messages one behind the other, all or none.

        Returns where each went, and the queue offset of the first. Raises StoreUnavailable, MessageRejected.
        """
        total = template.fixed_bytes * len(items) + sum([len(item[1]) + len(item[2]) for item in items])
        if not self._accepts or self._flusher.failure is not None:
            raise StoreUnavailable(self.unavailable_reason)
        if total > self._largest_record_bytes:
            raise MessageRejected(self._too_large("batch", total))
        try:
            queue.prepare(len(items))
            file = self.commit_log.room_for(total)
        except OSError as error:
            raise self._disk_error(error) from error
        begin = file.wrote
        first_queue_offset = queue.max_offset
        now_ms = int(self._clock() * 1000)
        packed = template.pack_batch(
            items,
            queue_offset=first_queue_offset,
            physical_offset=file.start + begin,
            born_timestamp_ms=born_timestamp_ms,
            born_host=born_host,
            store_timestamp_ms=now_ms,
        )
        file.map[begin : begin + total] = packed.records
        file.wrote = begin + total
        queue.put_many(packed.entries)
        self._flusher.last_timestamp_ms = now_ms
        self.statistics.messages_put += len(items)
        self.statistics.bytes_put += total
        self.on_arrival(queue)
        return packed, first_queue_offset

    def _too_large(self, what: str, size: int) -> str:
        return (
            f"the {what} takes {size} bytes in the store, more than fit a commit log file: "
            f"{self._largest_record_bytes} (mappedFileSizeCommitLog - 8)"
        )

    def _disk_error(self, error: OSError) -> StoreUnavailable:
        self.statistics.puts_failed += 1
        root = self._settings.store_path_root_dir
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StoreUnavailable(f"no room for the message on the disk of {root}: {error}")
        if error.errno in (errno.EMFILE, errno.ENFILE):
            return StoreUnavailable(f"too many files are open, each queue has one; raise ulimit -n: {error}")
        return StoreUnavailable(f"no file for the message can be made in {root}: {error}")

    # --- reading ---

    def get(
        self, topic: str, queue_id: int, offset: int, max_count: int, tags_codes: frozenset[int] | None
    ) -> GetResult:
        """Messages of a queue from `offset` on."""
        result = self.reader.get(self.queues.get(topic, queue_id), offset, max_count, tags_codes)
        self.statistics.messages_got += result.count
        self.statistics.bytes_got += len(result.body)
        return result

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The first offset of a queue; 0 where nothing has been stored yet."""
        queue = self.queues.get(topic, queue_id)
        return 0 if queue is None else queue.min_offset

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
        wanted = timestamp_ms + 1 if upper else timestamp_ms
        low, high = queue.min_offset, queue.max_offset
        while low < high:
            middle = (low + high) // 2
            if self._store_time(queue, middle) < wanted:
                low = middle + 1
            else:
                high = middle
        return max(queue.min_offset, low - 1) if upper else low

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

    def queues_of(self, topic: str) -> list[int]:
        """The queue ids of a topic that have been written to."""
        return sorted(id_ for id_, queue in list(self.queues.of_topic(topic).items()) if queue.max_offset)

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
        root = self._settings.store_path_root_dir
        disk = os.statvfs(root)
        # As `df`: what is reserved for root counts neither as used nor as there.
        used_blocks = disk.f_blocks - disk.f_bfree
        used_ratio = used_blocks / max(used_blocks + disk.f_bavail, 1)
        return {
            "commitLogMinOffset": str(self.commit_log.min_offset),
            "commitLogMaxOffset": str(self.commit_log.max_offset),
            "commitLogDiskRatio": f"{used_ratio:.4f}",
            f"commitLogDiskRatio_{self._settings.commit_log_dir}": f"{used_ratio:.4f}",
            "consumeQueueDiskRatio": f"{used_ratio:.4f}",
            "dispatchBehindBytes": "0",
            "pageCacheLockTimeMills": "0",
            "earliestMessageTimeStamp": str(self.commit_log.store_timestamp(self.commit_log.min_offset)),
            "flushBehindBytes": str(self.commit_log.max_offset - self.commit_log.flushed_offset),
        }

    def _store_time(self, queue: ConsumeQueue, offset: int) -> int:
        entry = queue.entry(offset)
        return -1 if entry is None else self.commit_log.store_timestamp(entry[0])


def _read_text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return ""
