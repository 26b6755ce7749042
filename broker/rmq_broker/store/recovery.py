"""Opening a directory: find where the log ends, and bring the queues in line with it.

How much of the log is read again depends on how the broker stopped:

- cleanly: nothing; the queues say how far they got, and that is where the log ends.
- the process alone (this is still the boot that wrote the files, so all that was appended is in the page
  cache or on the disk): the last few MiB, since the process may have died in the middle of writing a queue.
- the machine: all that is younger than the checkpoint, which says what is on the disk for certain (Apache
  RocketMQ 5.3.3, CommitLog.recoverAbnormally, begins with the file that the checkpoint falls into; here the
  queues' entries lead to the record).

From there on the queues are built again out of the log, and the log ends where the first record is not valid.
What is known to have been written before that is never cut off: damage there is logged and passed over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from .checkpoint import Checkpoint
from .commit_log import CommitLog
from .consume_queue import ConsumeQueue
from .consume_queues import ConsumeQueues
from .dispatch import Dispatcher, record_of
from .mapped_file import PAGE_BYTES, MappedFile
from .record import BLANK_BYTES, RecordSummary, ScanEnd, next_record, parse_record, scan_records

log = logging.getLogger("rmq.store.recovery")

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
# So many of the most recently written queues are asked for a record to begin at.
_QUEUES_ASKED: Final = 16


class StopKind(Enum):
    """How the broker that wrote a directory stopped."""

    CLEAN = "clean stop"
    PROCESS_KILLED = "crash of the process"
    MACHINE_CRASHED = "crash of the machine"


@dataclass(slots=True)
class RecoveryReport:
    """What recovery did."""

    stop: StopKind
    began_at: int
    log_end: int
    records_read: int
    last_timestamp_ms: int


def boot_id() -> str:
    """Changes with every boot of the machine; empty where the system does not tell."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def recover(
    commit_log: CommitLog,
    queues: ConsumeQueues,
    checkpoint: Checkpoint,
    stop: StopKind,
    *,
    tail_bytes: int,
    deleted: Mapping[str, int],
    rebuild: bool = False,
    check_crc: bool = True,
) -> RecoveryReport:
    """Find the log's end and bring the queues in line. Raises OSError where the disk is full.

    `tail_bytes`: so much of the log is read again after a crash of the process; more than a batch has.
    `deleted`: topics, and the log's end when each was deleted. `rebuild`: a queue is known to lack entries,
    all of the log is read.
    """
    if not commit_log.files:
        _begin_anew(queues)
    _finish_deletions(queues, deleted)
    start = _where_to_start(commit_log, queues, checkpoint, stop, tail_bytes)
    if rebuild or any(queue.lost_files for queue in queues):
        log.warning("queues lack entries: the whole commit log is read to build them again")
        start.begin = commit_log.min_offset
    dispatcher = Dispatcher(queues, commit_log, deleted, fill_gaps=False)
    _rebuild(commit_log, queues, start, stop, check_crc, dispatcher.dispatch)
    if dispatcher.gaps:
        start.begin = max(commit_log.min_offset, min(start.begin, *dispatcher.gaps.values()))
        log.warning("%d queues lack entries: reading again from %d", len(dispatcher.gaps), start.begin)
        dispatcher = Dispatcher(queues, commit_log, deleted, fill_gaps=True)
        _rebuild(commit_log, queues, start, stop, check_crc, dispatcher.dispatch)
    _settle(commit_log, queues, start.log_end)
    if stop is not StopKind.CLEAN:
        _distrust_files(commit_log, checkpoint)
    return RecoveryReport(stop, start.begin, start.log_end, start.records_read, start.last_timestamp_ms)


@dataclass(slots=True)
class _Progress:
    """Where reading begins and what is certain; filled with what reading found."""

    begin: int
    certain_end: int  # up to here everything was written for certain
    log_end: int = 0
    records_read: int = 0
    last_timestamp_ms: int = 0


# --- where to begin ---


def _where_to_start(
    commit_log: CommitLog, queues: ConsumeQueues, checkpoint: Checkpoint, stop: StopKind, tail_bytes: int
) -> _Progress:
    newest = _newest_queues(commit_log, queues)
    queue_end = _confirmed_end(commit_log, newest)
    if stop is StopKind.MACHINE_CRASHED:
        safe_ms = checkpoint.safe_timestamp_ms
        safe = _newest_record(commit_log, newest, lambda record: record.store_timestamp_ms <= safe_ms)
        return _Progress(begin=min(safe, queue_end), certain_end=safe)
    begin = queue_end
    if stop is StopKind.PROCESS_KILLED:
        wanted = queue_end - tail_bytes
        begin = _newest_record(commit_log, newest, lambda record: record.physical_offset <= wanted)
    last_file = _newest_file(commit_log, lambda record: True)
    return _Progress(begin=min(begin, queue_end), certain_end=max(queue_end, last_file))


def _newest_queues(commit_log: CommitLog, queues: ConsumeQueues) -> list[ConsumeQueue]:
    """The queues with entries, the one that knows the newest record first."""
    ends: list[tuple[int, ConsumeQueue]] = []
    limit = commit_log.files[-1].start + commit_log.files[-1].size if commit_log.files else 0
    for queue in queues:
        entry = queue.last_entry()
        if entry is not None and commit_log.min_offset <= entry[0] < limit:
            ends.append((entry[0], queue))
    ends.sort(key=lambda end: end[0], reverse=True)
    return [queue for _, queue in ends]


def _confirmed_end(commit_log: CommitLog, newest: list[ConsumeQueue]) -> int:
    """The end of the newest record that a queue knows of, and that is in the log."""
    for queue in newest:
        record = record_of(commit_log, queue, queue.max_offset - 1)
        if record is not None:
            return record.physical_offset + record.size
    return commit_log.min_offset


def _newest_record(
    commit_log: CommitLog, newest: list[ConsumeQueue], is_old: Callable[[RecordSummary], bool]
) -> int:
    """Where the newest record that is old enough begins, as far as files' and queues' entries lead there."""

    def place(queue: ConsumeQueue, offset: int) -> int | None:
        record = record_of(commit_log, queue, offset)
        return record.physical_offset if record is not None and is_old(record) else None

    found = _newest_file(commit_log, is_old)
    # The first queue that has been quiet for long enough: its last record.
    low, high = 0, len(newest)
    while low < high:
        middle = (low + high) // 2
        physical_offset = place(newest[middle], newest[middle].max_offset - 1)
        if physical_offset is None:
            low = middle + 1
        else:
            found, high = max(found, physical_offset), middle
    # Of the busiest ones, a record on the way.
    for queue in newest[:_QUEUES_ASKED]:
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
    """Where the newest file begins whose first record is old enough."""
    for file in reversed(commit_log.files):
        first = parse_record(file.map, 0, file.start)
        if first is not None and is_old(first):
            return file.start
    return commit_log.min_offset


# --- reading ---


def _rebuild(
    commit_log: CommitLog,
    queues: ConsumeQueues,
    progress: _Progress,
    stop: StopKind,
    check_crc: bool,
    dispatch: Callable[[RecordSummary], None],
) -> None:
    """Cut the queues to where reading begins, and make entries for all records from there on."""
    for queue in queues:
        queue.cut(progress.begin)
        if stop is not StopKind.CLEAN:
            queue.distrust()
    _read(commit_log, progress, stop, check_crc, dispatch)


def _read(
    commit_log: CommitLog,
    progress: _Progress,
    stop: StopKind,
    check_crc: bool,
    dispatch: Callable[[RecordSummary], None],
) -> None:
    """Hand over all records from `progress.begin` on, and note where the log ends."""
    progress.log_end = progress.begin
    progress.records_read = 0
    for file in commit_log.files:
        begin = max(0, progress.begin - file.start)
        if begin >= file.size:
            continue
        position: int | None = begin
        while position is not None:
            end = ScanEnd()
            for record in scan_records(file.map, position, file.start, end, check_crc=check_crc):
                if b"\0" in record.properties and _is_torn(file, record, progress, stop):
                    end.position = record.physical_offset - file.start
                    break
                dispatch(record)
                progress.records_read += 1
                progress.last_timestamp_ms = record.store_timestamp_ms
            progress.log_end = file.start + end.position
            if end.is_full:
                progress.log_end = file.start + file.size
                break
            if progress.log_end >= progress.certain_end:
                return
            position = _behind_damage(file, end.position, progress.certain_end)


def _is_torn(file: MappedFile, record: RecordSummary, progress: _Progress, stop: StopKind) -> bool:
    """Whether a record that looks valid lacks a part of its properties, which stand under no checksum.

    What was not written is zero. After a crash of the machine that is whole pages; after one of the process
    it is any part of the very last record, which was not acknowledged then.
    """
    end = record.physical_offset + record.size - file.start
    if file.start + end <= progress.certain_end or stop is StopKind.CLEAN:
        return False
    if stop is StopKind.PROCESS_KILLED:
        return not any(file.map[end : end + BLANK_BYTES])
    begin = end - len(record.properties)
    for page in range(begin - begin % PAGE_BYTES, end, PAGE_BYTES):
        # Not where the properties begin in the middle of a page: their neighbours were written.
        if page >= begin and not any(record.properties[page - begin : page - begin + PAGE_BYTES]):
            return True
    return False


def _behind_damage(file: MappedFile, position: int, certain_end: int) -> int | None:
    """Where the log goes on in a file behind something that is no record; None: not in this file."""
    until = min(file.size, certain_end - file.start + BLANK_BYTES)  # one may begin at `certain_end`
    found = next_record(file.map, position + 1, file.start, until)
    log.error(
        "the commit log is damaged at %d (file %s): the messages up to %s are lost",
        file.start + position,
        file.path.name,
        "the end of the file" if found is None else file.start + found,
    )
    return found


# --- before and afterwards ---


def _begin_anew(queues: ConsumeQueues) -> None:
    """Without a log all offsets begin at 0 again, as in Apache's."""
    for queue in queues:
        if queue.max_offset > 0:
            log.warning("there is no commit log: %s/%d begins at 0 again", queue.topic, queue.queue_id)
            queue.cut_at(0)


def _finish_deletions(queues: ConsumeQueues, deleted: Mapping[str, int]) -> None:
    """Remove what is left of deleted topics: the broker may have stopped in the middle."""
    for topic, log_end in deleted.items():
        for queue in list(queues.of_topic(topic).values()):
            last = queue.last_entry()
            if last is not None and last[0] < log_end:
                log.warning("%s/%d was being deleted when the broker stopped", topic, queue.queue_id)
                queue.delete()


def _settle(commit_log: CommitLog, queues: ConsumeQueues, log_end: int) -> None:
    last = commit_log.files[-1] if commit_log.files else None
    if last is not None and log_end == last.start + last.size:
        last.wrote = last.flushed = last.size
    else:
        commit_log.cut(log_end)
    for queue in queues:
        queue.advance_min(commit_log.min_offset)


def _distrust_files(commit_log: CommitLog, checkpoint: Checkpoint) -> None:
    """What is younger than the checkpoint may be in the page cache only: the next flush has to write it."""
    for file in reversed(commit_log.files):
        file.flushed = 0
        first = parse_record(file.map, 0, file.start)
        if first is not None and first.store_timestamp_ms <= checkpoint.safe_timestamp_ms:
            return
