"""Where recovery begins to read the commit log, and how far the log was certainly written and flushed.

It depends on how the broker stopped:

- clean stop: the queues know the end of the log, so nothing is read.
- crash of the process: the machine still runs the boot that wrote the files, so everything that was written
  is in the page cache or on disk. Recovery reads the records newer than the queues' files, from the
  offset `written` of `rmq_checkpoint`.
- crash of the machine: recovery reads the records since the last flush, from the offset `flushed` of
  `rmq_checkpoint`.

If `rmq_checkpoint` is missing or does not fit the log, the times in `checkpoint` lead to records that are
certainly on disk. Apache's broker begins with the commit log file that the time falls into (RocketMQ 5.3.3,
CommitLog.recoverAbnormally); here the queues' entries lead to the record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ..log.commit_log import CommitLog
from ..log.record import RecordSummary, pack_blank
from ..queues.consume_queue import ConsumeQueue
from ..queues.consume_queues import ConsumeQueues
from ..queues.dispatcher import record_of
from .checkpoint import Checkpoint
from .fine_checkpoint import FineCheckpoint
from .stop_marker import StopKind

log = logging.getLogger("rmq.store.recovery")

# Number of most recently written queues in which a record to begin at is searched for.
_QUEUES_SEARCHED: Final = 16


@dataclass(frozen=True, slots=True)
class StartPoint:
    """Log offsets.

    begin        where reading begins
    certain_end  up to here everything was certainly written
    flushed_end  up to here log and entries are certainly on disk
    """

    begin: int
    certain_end: int
    flushed_end: int


def find_start_point(
    commit_log: CommitLog,
    queues: ConsumeQueues,
    checkpoint: Checkpoint,
    fine: FineCheckpoint,
    stop: StopKind,
) -> StartPoint:
    """Find out where to begin. Raises OSError; blocks."""
    newest = _newest_queues(commit_log, queues)
    queue_end = _confirmed_end(commit_log, newest)
    if stop is StopKind.CLEAN:
        end = max(queue_end, _newest_file(commit_log, lambda record: True))
        return StartPoint(queue_end, end, end)
    known = fine.written if stop is StopKind.PROCESS_KILLED else fine.flushed
    flushed_end = fine.flushed
    is_usable = known > 0 and _is_boundary(commit_log, newest, known)
    if not is_usable or not flushed_end:
        safe_ms = checkpoint.safe_timestamp_ms
        flushed_end = _newest_record(commit_log, newest, lambda record: record.store_timestamp_ms <= safe_ms)
    if not is_usable:
        known = flushed_end
        log.info("no usable rmq_checkpoint; recovery reads from the checkpoint's time offset=%d", known)
    certain_end = known
    if stop is StopKind.PROCESS_KILLED:
        # The records that queues know of, and those before a file's first record, had been written by then.
        certain_end = max(known, queue_end, _newest_file(commit_log, lambda record: True))
    return StartPoint(min(known, queue_end), certain_end, flushed_end)


def _is_boundary(commit_log: CommitLog, newest: list[ConsumeQueue], offset: int) -> bool:
    """Whether a record begins or ends at `offset`, as far as the log and the queues tell."""
    for file in commit_log.files:
        position = offset - file.start
        if position in (0, file.size):
            return True
        if 0 < position < file.size:
            blank = pack_blank(file.size - position)
            if commit_log.record_at(offset) is not None:
                return True
            if commit_log.read(offset, len(blank)) == blank:
                return True
            return any(_ends_at(commit_log, queue, offset) for queue in newest)
    return False


def _ends_at(commit_log: CommitLog, queue: ConsumeQueue, offset: int) -> bool:
    """Whether the queue's last record before the log offset ends there."""
    last = queue.last_entry()
    newest = queue.max_offset - 1
    if last is None or last[0] >= offset:
        newest = queue.first_from(offset) - 1
        last = queue.entry(newest)
    return (
        last is not None and last[0] + last[1] == offset and record_of(commit_log, queue, newest) is not None
    )


def _newest_queues(commit_log: CommitLog, queues: ConsumeQueues) -> list[ConsumeQueue]:
    """The queues with entries, the queue with the newest record first."""
    ends: list[tuple[int, ConsumeQueue]] = []
    limit = commit_log.files[-1].start + commit_log.files[-1].size if commit_log.files else 0
    for queue in queues:
        entry = queue.last_entry()
        if entry is not None and commit_log.min_offset <= entry[0] < limit:
            ends.append((entry[0], queue))
    ends.sort(key=lambda end: end[0], reverse=True)
    return [queue for _, queue in ends]


def _confirmed_end(commit_log: CommitLog, newest: list[ConsumeQueue]) -> int:
    """The end of the newest record that a queue has an entry of and that is in the log."""
    for queue in newest:
        record = record_of(commit_log, queue, queue.max_offset - 1)
        if record is not None:
            return record.physical_offset + record.size
    return commit_log.min_offset


def _newest_record(
    commit_log: CommitLog, newest: list[ConsumeQueue], is_old: Callable[[RecordSummary], bool]
) -> int:
    """The offset of the newest old record that the files' first records and the queues' entries lead to."""

    def place(queue: ConsumeQueue, offset: int) -> int | None:
        record = record_of(commit_log, queue, offset)
        return record.physical_offset if record is not None and is_old(record) else None

    found = _newest_file(commit_log, is_old)
    # Binary search for the first queue whose last record is old.
    low, high = 0, len(newest)
    while low < high:
        middle = (low + high) // 2
        physical_offset = place(newest[middle], newest[middle].max_offset - 1)
        if physical_offset is None:
            low = middle + 1
        else:
            found, high = max(found, physical_offset), middle
    # The busiest queues: binary search for the newest old record of each.
    for queue in newest[:_QUEUES_SEARCHED]:
        low, high = queue.min_offset, queue.max_offset
        while low < high:
            middle = (low + high) // 2
            physical_offset = place(queue, middle)
            if physical_offset is None:
                high = middle
            else:
                found, low = max(found, physical_offset), middle + 1
    return found


def _newest_file(commit_log: CommitLog, is_old: Callable[[RecordSummary], bool]) -> int:
    """The offset of the newest file whose first record is old."""
    for file in reversed(commit_log.files):
        first = commit_log.record_at(file.start)
        if first is not None and is_old(first):
            return file.start
    return commit_log.min_offset
