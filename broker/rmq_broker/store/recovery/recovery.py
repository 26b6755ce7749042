"""Opening a directory: find where the log ends, and bring the queues in line with it.

How much of the log is read again depends on how the broker stopped:

- cleanly: nothing; the queues say how far they got, and that is where the log ends.
- the process alone (this is still the boot that wrote the files, so all that was written is in the page cache
  or on the disk): what is younger than the queues' files, as `rmq_checkpoint` tells.
- the machine: what is younger than the last flush, as `rmq_checkpoint` tells.

Where that file is missing or does not fit the log, the time in `checkpoint` leads to what is on the disk for
certain (Apache RocketMQ 5.3.3, CommitLog.recoverAbnormally, begins with the file that it falls into; here the
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

from ..delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from ..log.commit_log import CommitLog
from ..log.mapped_file import PAGE_BYTES, MappedFile
from ..log.record import BLANK_BYTES, RecordSummary, ScanEnd, next_record, pack_blank, parse_record
from ..log.record_walk import walk_records
from ..queues.consume_queue import ConsumeQueue
from ..queues.consume_queues import ConsumeQueues
from ..queues.dispatcher import Dispatcher, record_of
from .checkpoint import Checkpoint
from .fine_checkpoint import FineCheckpoint

log = logging.getLogger("rmq.store.recovery")

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
# So many of the most recently written queues are asked for a record to begin at.
_QUEUES_ASKED: Final = 16
# After so many records the queues are written out: what is built again does not have to fit into memory.
_RECORDS_PER_WRITE: Final = 1_000_000


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
    fine: FineCheckpoint  # as it is in `rmq_checkpoint` now


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
    deleted: Mapping[str, int],
    fine_path: Path | None = None,
    rebuild: bool = False,
    check_crc: bool = True,
    levels: DelayLevels = DEFAULT_DELAY_LEVELS,
) -> RecoveryReport:
    """Find the log's end and bring the queues in line. Raises OSError where the disk is full.

    `fine_path`: of `rmq_checkpoint`, which is kept true while the queues change. `deleted`: topics, and the
    log's end when each was deleted. `rebuild`: a queue is known to lack entries, all of the log is read.
    """
    fine = (FineCheckpoint.load(fine_path) if fine_path else None) or FineCheckpoint(0, 0)
    if not commit_log.files:
        _begin_anew(queues)
    _finish_deletions(queues, deleted)
    start = _where_to_start(commit_log, queues, checkpoint, fine, stop)
    if rebuild or any(queue.lost_files for queue in queues):
        log.warning("queues lack entries: the whole commit log is read to build them again")
        start.begin = commit_log.min_offset
    fine = _lower(fine, start.begin, fine_path)
    reads_all = start.begin <= commit_log.min_offset
    dispatcher = Dispatcher(queues, commit_log, deleted, fill_gaps=reads_all, levels=levels)
    _rebuild(commit_log, queues, start, stop, check_crc, dispatcher.dispatch)
    if dispatcher.gaps:
        start.begin = max(commit_log.min_offset, min(start.begin, *dispatcher.gaps.values()))
        log.warning("%d queues lack entries: reading again from %d", len(dispatcher.gaps), start.begin)
        fine = _lower(fine, start.begin, fine_path)
        dispatcher = Dispatcher(queues, commit_log, deleted, fill_gaps=True, levels=levels)
        _rebuild(commit_log, queues, start, stop, check_crc, dispatcher.dispatch)
    _settle(commit_log, queues, start.log_end)
    if stop is not StopKind.CLEAN:
        _distrust_files(commit_log, checkpoint)
    queues.write_out()
    settled = FineCheckpoint(start.log_end, fine.flushed)
    if settled != fine and fine_path is not None:
        settled.save(fine_path, durable=True)
    return RecoveryReport(
        stop, start.begin, start.log_end, start.records_read, start.last_timestamp_ms, settled
    )


def _lower(fine: FineCheckpoint, begin: int, path: Path | None) -> FineCheckpoint:
    """Entries from `begin` on are about to be made anew: until they are written nothing vouches for them."""
    lowered = FineCheckpoint(min(fine.written, begin), min(fine.flushed, begin))
    if lowered != fine and path is not None:
        lowered.save(path, durable=True)
    return lowered


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
    commit_log: CommitLog,
    queues: ConsumeQueues,
    checkpoint: Checkpoint,
    fine: FineCheckpoint,
    stop: StopKind,
) -> _Progress:
    newest = _newest_queues(commit_log, queues)
    queue_end = _confirmed_end(commit_log, newest)
    if stop is StopKind.CLEAN:
        return _Progress(queue_end, max(queue_end, _newest_file(commit_log, lambda record: True)))
    known = fine.written if stop is StopKind.PROCESS_KILLED else fine.flushed
    if not known or not _is_boundary(commit_log, newest, known):
        safe_ms = checkpoint.safe_timestamp_ms
        known = _newest_record(commit_log, newest, lambda record: record.store_timestamp_ms <= safe_ms)
        log.info("no rmq_checkpoint fits: reading from %d, as the checkpoint's time says", known)
    certain_end = known
    if stop is StopKind.PROCESS_KILLED:
        # Whatever a queue knows of, and what stands before a file's first record, had been written by then.
        certain_end = max(known, queue_end, _newest_file(commit_log, lambda record: True))
    return _Progress(min(known, queue_end), certain_end)


def _is_boundary(commit_log: CommitLog, newest: list[ConsumeQueue], offset: int) -> bool:
    """Whether a record begins or ends there, as far as the log and the queues tell."""
    for file in commit_log.files:
        position = offset - file.start
        if position in (0, file.size):
            return True
        if 0 < position < file.size:
            blank = pack_blank(file.size - position)
            if parse_record(file.map, position, file.start) is not None:
                return True
            if file.map[position : position + len(blank)] == blank:
                return True
            return any(_ends_at(commit_log, queue, offset) for queue in newest)
    return False


def _ends_at(commit_log: CommitLog, queue: ConsumeQueue, offset: int) -> bool:
    """Whether the record ends there that is the last of a queue before that place."""
    last = queue.last_entry()
    newest = queue.max_offset - 1
    if last is None or last[0] >= offset:
        newest = queue.first_from(offset) - 1
        last = queue.entry(newest)
    return (
        last is not None and last[0] + last[1] == offset and record_of(commit_log, queue, newest) is not None
    )


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
    _read(commit_log, queues, progress, stop, check_crc, dispatch)


def _read(
    commit_log: CommitLog,
    queues: ConsumeQueues,
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
            for record in walk_records(file.map, position, file.start, end, check_crc=check_crc):
                if b"\0" in record.properties and _is_torn(file, record, progress, stop):
                    end.position = record.physical_offset - file.start
                    break
                dispatch(record)
                progress.records_read += 1
                progress.last_timestamp_ms = record.store_timestamp_ms
                if progress.records_read % _RECORDS_PER_WRITE == 0:
                    queues.write_out()
            progress.log_end = file.start + end.position
            if end.is_full:
                progress.log_end = file.start + file.size
                break
            if progress.log_end >= progress.certain_end:
                return
            position = _behind_damage(file, end.position, progress.certain_end)


def _is_torn(file: MappedFile, record: RecordSummary, progress: _Progress, stop: StopKind) -> bool:
    """Whether a record that looks valid lacks a part of its properties, which stand under no checksum.

    After a crash of the machine any page may be missing, that is zero. After one of the process there is no
    such record: its beginning is written last.
    """
    end = record.physical_offset + record.size - file.start
    if file.start + end <= progress.certain_end or stop is not StopKind.MACHINE_CRASHED:
        return False
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
    if commit_log.min_offset > 0:
        for queue in queues:
            queue.advance_min(commit_log.min_offset)


def _distrust_files(commit_log: CommitLog, checkpoint: Checkpoint) -> None:
    """What is younger than the checkpoint may be in the page cache only: the next flush has to write it."""
    for file in reversed(commit_log.files):
        file.distrust()
        first = parse_record(file.map, 0, file.start)
        if first is not None and first.store_timestamp_ms <= checkpoint.safe_timestamp_ms:
            return
