"""Comparison of queues and log: every message has its entry, and every entry its message."""

from __future__ import annotations

from collections.abc import Iterator

from .compared_queue import ComparedQueue
from .directory import Directory, StoreState, queue_folders
from .expected import Expected, Run
from .findings import Report
from .layout import BATCH_UNIT, EXT_ADDRESS_LIMIT, PLACEHOLDER, QUEUE_ENTRY, BadRecord, Record
from .log_files import NumberedFiles, record_at
from .plain_records import QueueKey
from .queue_files import ExtensionFiles, QueueFiles

_PLACEHOLDER_SIZE = 0x7FFFFFFF


class QueueCheck:
    """Compares the expected entries of each part of the log, in order; then `finish`."""

    def __init__(self, directory: Directory, log: NumberedFiles, report: Report) -> None:
        self._directory = directory
        self._log = log
        self._report = report
        self._queues: dict[QueueKey, ComparedQueue] = {}
        # Messages before this log offset must have their entries in the files.
        self.certain_end = self._certain_end()

    def ends(self) -> dict[QueueKey, int]:
        """Return the offset behind the last message by queue, according to the log or else the files."""
        return {key: self._end_of(queue) for key, queue in self._queues.items()}

    def compare(self, expected: Expected) -> None:
        """Compare the entries of one part. Raises OSError."""
        for key, run in expected.runs:
            queue = self._queue(key, run)
            if run.is_light:
                if not queue.files.numbered.files:
                    continue
            else:
                self._check_offsets(key, queue, run)
            if run.is_batch:
                self._report.counts["queue entries"] += len(run.entries) // BATCH_UNIT.size
                queue.compare_batches(run, self._log.start)
            else:
                self._compare(queue, run)
            queue.next = run.next

    def finish(self, log_end: int) -> None:
        """Check the entries that the log did not mention, and report the findings. Raises OSError."""
        for key in self._folders():
            self._queue(key, None)
        self._report_misplaced()
        self._report.counts["queues"] = len(self._queues)
        for key, queue in sorted(self._queues.items()):
            self._report_files(queue)
            self._report_missing(key, queue)
            for text in queue.faults:
                self._report.error("queue.wrong_entry", place_of(key), text)
            if queue.fault_count > len(queue.faults):
                more = f"{queue.fault_count - len(queue.faults)} more entries are wrong"
                self._report.error("queue.wrong_entry", place_of(key), more)
            self._sweep(key, queue, log_end)
            self._check_end(key, queue)

    # --- comparing ---

    def _check_offsets(self, key: QueueKey, queue: ComparedQueue, run: Run) -> None:
        first_physical = int.from_bytes(run.entries[:8], "big")
        if queue.next is None:
            if run.first > 0 and self._log.start == 0 and not self._directory.deleted.get(key[0]):
                self._report.error(
                    "log.queue_offset",
                    f"log at {first_physical}",
                    f"the first message of {place_of(key)} has the queue offset {run.first}",
                )
            return
        if run.first == queue.next:
            return
        if run.first == 0:
            self._report.note(
                "log.queue_restart",
                f"log at {first_physical}",
                f"{place_of(key)} begins at 0 again after {queue.next} messages: the topic was deleted",
            )
            queue.restart()
            return
        problem = (
            f"messages {queue.next} to {run.first - 1} are missing before it"
            if run.first > queue.next
            else f"the queue offsets {run.first} to {min(queue.next, run.next) - 1} are used twice"
        )
        is_doubtful = (
            self._directory.state is StoreState.MACHINE_CRASHED and first_physical >= self.certain_end
        )
        emit = self._report.recoverable if is_doubtful else self._report.error
        emit(
            "log.queue_offset",
            f"log at {first_physical}",
            f"the message has the queue offset {run.first} in {place_of(key)}: {problem}",
        )

    def _compare(self, queue: ComparedQueue, run: Run) -> None:
        size = QUEUE_ENTRY.size
        count = len(run.entries) // size
        actual = queue.files.read(run.first, count)
        self._report.counts["queue entries"] += count
        queue.cover(run.first, run.first + count)
        if actual == run.entries:
            return
        for index in range(count):
            number = run.first + index
            wanted, found = (
                run.entries[index * size : (index + 1) * size],
                actual[index * size : (index + 1) * size],
            )
            if wanted == found:
                continue
            if found == PLACEHOLDER or not any(found):
                if not run.is_light:
                    queue.miss(number, number + 1, int.from_bytes(wanted[:8], "big"))
            elif not self._is_extended(queue, bytes(wanted), found):
                queue.fault(f"entry {number} {_described(found)}; the log's message {_described(wanted)}")

    def _is_extended(self, queue: ComparedQueue, wanted: bytes, found: bytes) -> bool:
        """Return whether an entry leads to the right tags code in the queue's extension files."""
        address = QUEUE_ENTRY.unpack(found)[2]
        if found[:12] != wanted[:12] or address > EXT_ADDRESS_LIMIT:
            return False
        physical_offset, _, code = QUEUE_ENTRY.unpack(wanted)
        self._report.counts["extension units"] += 1
        return queue.extension.unit(address) == (code, record_at(self._log, physical_offset).store_time_ms)

    # --- at the end ---

    def _report_misplaced(self) -> None:
        """Report queues of another type than their topic; Apache's broker does not start with them.

        Apache RocketMQ 5.3.3, ConsumeQueueStore.queueTypeShouldBe.
        """
        directory = self._directory
        configured, batches = directory.configured_topics, directory.configured_batch_topics
        for key in queue_folders(directory.queues):
            if key[0] in batches:
                text = f"the topic is of type BatchCQ: its queues belong in {directory.batch_queues.name}"
                self._report.error("queue.type", place_of(key), text)
        for key in queue_folders(directory.batch_queues):
            if configured is not None and key[0] in configured and key[0] not in batches:
                text = "the queue is one of batches, but the topic is not of type BatchCQ in topics.json"
                self._report.error("queue.type", place_of(key), text)

    def _report_files(self, queue: ComparedQueue) -> None:
        numbered = queue.files.numbered
        for before, after in numbered.gaps:
            self._report.error(
                "queue.files",
                str(after.path),
                f"it does not follow on {before.path.name}: a file is missing between them",
            )
        for file in numbered.unusual_sizes:
            # The last one may have been about to be made.
            is_new = file is numbered.files[-1] and self._directory.state is not StoreState.STOPPED
            emit = self._report.recoverable if is_new else self._report.error
            emit(
                "queue.files",
                str(file.path),
                f"the size is {file.size} bytes, other files have {numbered.file_bytes}",
            )
        if numbered.file_bytes % queue.files.entry_bytes:
            self._report.error(
                "queue.files",
                str(queue.files.folder),
                f"the file size {numbered.file_bytes} is not a multiple of {queue.files.entry_bytes}",
            )

    def _report_missing(self, key: QueueKey, queue: ComparedQueue) -> None:
        configured = self._directory.configured_topics
        if (
            queue.missing
            and not queue.files.numbered.files
            and configured is not None
            and key[0] not in configured
        ):
            count = sum(part.next - part.first for part in queue.missing)
            self._report.note(
                "queue.no_topic",
                place_of(key),
                f"{count} messages in the log, without queue and topic: the topic was deleted",
            )
            return
        for part in queue.missing:
            text = (
                f"{part.next - part.first} entries are missing, {part.first} to {part.next - 1} "
                f"(log at {part.first_physical} to {part.last_physical})"
            )
            if part.first_physical < self.certain_end:
                self._report.error("queue.missing", place_of(key), text)
            else:
                self._report.recoverable("queue.behind", place_of(key), text)
        if queue.missing_more:
            self._report.error(
                "queue.missing", place_of(key), f"{queue.missing_more} more entries are missing"
            )

    def _sweep(self, key: QueueKey, queue: ComparedQueue, log_end: int) -> None:
        """Check the entries that the log did not mention."""
        begin = queue.files.first
        for low, high in [*queue.covered, [queue.files.capacity_end] * 2]:
            if begin < low:
                for number, block in queue.files.blocks(begin, low):
                    self._sweep_block(key, queue, number, block, log_end)
            begin = max(begin, high)

    def _sweep_block(
        self, key: QueueKey, queue: ComparedQueue, number: int, block: bytes, log_end: int
    ) -> None:
        size = queue.files.entry_bytes
        live = self._directory.state in (StoreState.IN_USE, StoreState.MACHINE_CRASHED)
        for index in range(0, len(block), size):
            entry = block[index : index + size]
            if not any(entry) or entry == PLACEHOLDER:
                continue
            physical_offset, length, _ = QUEUE_ENTRY.unpack_from(entry)
            at = number + index // size
            text = f"entry {at} {_described(entry)}"
            if physical_offset >= 0 and length > 0 and physical_offset + length <= self._log.start:
                if queue.covered and at > queue.covered[0][0]:
                    self._report.error(
                        "queue.wrong_entry", place_of(key), f"{text}, which the log no longer has"
                    )
                continue
            if physical_offset >= log_end and length > 0:
                emit = self._report.recoverable if live else self._report.error
                emit("queue.ahead", place_of(key), f"{text}; the log ends at {log_end}")
                continue
            try:
                record = record_at(self._log, physical_offset)
                if queue.is_batch and self._is_late_unit(key, entry, record):
                    continue
                there = f"message {record.queue_offset} of {_name(record.topic)}/{record.queue_id}"
            except BadRecord as bad:
                there = f"no valid record ({bad})"
            self._report.error("queue.wrong_entry", place_of(key), f"{text}; there is {there}")

    def _is_late_unit(self, key: QueueKey, unit: bytes, record: Record) -> bool:
        """Return whether a running broker may have written a unit after the comparison of its record.

        A plain queue needs no such rule: also a missing entry has a number, which is its queue offset.
        """
        _, size, _, _, first, *_ = BATCH_UNIT.unpack(unit)
        place = (record.topic, record.queue_id, record.size, record.queue_offset)
        return self._directory.state is StoreState.IN_USE and place == (*key, size, first)

    def _check_end(self, key: QueueKey, queue: ComparedQueue) -> None:
        wanted = self._directory.queue_ends.get(key[0], {}).get(key[1], 0)
        end = self._end_of(queue)
        if end < wanted:
            self._report.error(
                "queue.short",
                place_of(key),
                f"the queue ends at {end}; at the last clean stop it ended at {wanted} (rmq_queues.json)",
            )

    # --- inside ---

    def _certain_end(self) -> int:
        state = self._directory.state
        if state is StoreState.STOPPED:
            return self._log.end
        if state is StoreState.MACHINE_CRASHED:
            return self._directory.flushed or 0
        if self._directory.is_ours or self._directory.written is not None:
            return self._directory.written or 0
        # Apache's broker adds all entries in the order of the log.
        ends = (self._newest_entry(key) for key in self._folders())
        return max(ends, default=0)

    def _newest_entry(self, key: QueueKey) -> int:
        """Return the log offset behind the message of a queue's last entry, according to the entry."""
        files = self._files(key)
        end = files.end_of_entries()
        if end == files.first:
            return 0
        physical_offset, size, _ = QUEUE_ENTRY.unpack_from(files.read(end - 1, 1))
        return int(physical_offset + size) if 0 < size < _PLACEHOLDER_SIZE else 0

    def _folders(self) -> Iterator[QueueKey]:
        """Yield every queue that has a folder."""
        yield from queue_folders(self._directory.queues)
        yield from queue_folders(self._directory.batch_queues)

    def _files(self, key: QueueKey) -> QueueFiles:
        return QueueFiles(self._directory.queue_folder(*key), is_batch=key[0] in self._directory.batch_topics)

    def _queue(self, key: QueueKey, run: Run | None) -> ComparedQueue:
        queue = self._queues.get(key)
        if queue is None:
            files = self._files(key)
            folder = self._directory.queue_extensions / files.folder.parent.name / files.folder.name
            queue = self._queues[key] = ComparedQueue(
                files,
                ExtensionFiles(folder),
                key[0] in self._directory.batch_topics,
                run is not None and run.is_light,
            )
        return queue

    def _end_of(self, queue: ComparedQueue) -> int:
        if queue.next is not None:
            return queue.next
        end = queue.files.end_of_entries()
        if queue.is_batch and end > queue.files.first:
            unit = BATCH_UNIT.unpack(queue.files.read(end - 1, 1))
            return int(unit[4] + unit[5])
        return 0 if queue.is_batch else end


def place_of(key: QueueKey) -> str:
    """Return the name of a queue for people."""
    return f"{_name(key[0])}/{key[1]}"


def _name(topic: bytes) -> str:
    return topic.decode("utf-8", "replace")


def _described(entry: bytes | bytearray) -> str:
    physical_offset, size, code = QUEUE_ENTRY.unpack_from(entry)
    return f"is of {size} bytes at {physical_offset}, tags code {code}"
