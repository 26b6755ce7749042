"""Recovery: opening a store directory finds the end of the commit log and corrects the queues to match it.

`start_point.py` decides where reading begins, `log_scan.py` reads. The queues are cut to the start point and
rebuilt from the records behind it. Then the log is cut to the end that was found.

After an unclean stop everything behind the last known flush is written again: a flush may have failed before
the broker stopped, which leaves pages in the page cache that no later flush brings to the disk.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from ..delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from ..log.commit_log import CommitLog
from ..queues.consume_queue import ConsumeQueue
from ..queues.consume_queues import ConsumeQueues
from ..queues.dispatcher import Dispatcher
from .checkpoint import Checkpoint
from .fine_checkpoint import FineCheckpoint
from .log_scan import LogScan
from .start_point import StartPoint, find_start_point
from .stop_marker import StopKind

log = logging.getLogger("rmq.store.recovery")

# The queues are written out after each million records: their rebuilt entries need not fit into memory.
_RECORDS_PER_WRITE: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class RecoveryOptions:
    """What recovery depends on besides the files.

    fine_path       path of `rmq_checkpoint`, which is lowered before the queues change and raised afterwards
    deleted         deleted topics, and the log's end when each was deleted
    rebuild         a queue is known to lack entries, so that the whole log is read
    check_crc       compare the bodies with their checksums
    delay_levels    the delays of delayed messages' levels
    """

    fine_path: Path | None = None
    deleted: Mapping[str, int] = field(default_factory=dict)
    rebuild: bool = False
    check_crc: bool = True
    delay_levels: DelayLevels = DEFAULT_DELAY_LEVELS


@dataclass(slots=True)
class RecoveryReport:
    """What recovery did."""

    stop: StopKind
    began_at: int
    log_end: int
    records_read: int
    last_timestamp_ms: int
    fine: FineCheckpoint  # the present content of `rmq_checkpoint`


def recover(
    commit_log: CommitLog,
    queues: ConsumeQueues,
    checkpoint: Checkpoint,
    stop: StopKind,
    options: RecoveryOptions,
) -> RecoveryReport:
    """Find the log's end and correct the queues. Raises OSError, also if the disk is full; blocks."""
    return _Recovery(commit_log, queues, checkpoint, stop, options).run()


class _Recovery:
    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        checkpoint: Checkpoint,
        stop: StopKind,
        options: RecoveryOptions,
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._checkpoint = checkpoint
        self._stop = stop
        self._options = options
        fine_path = options.fine_path
        self._fine = (FineCheckpoint.load(fine_path) if fine_path else None) or FineCheckpoint(0, 0)

    def run(self) -> RecoveryReport:
        """Recover, and report."""
        commit_log = self._log
        if not commit_log.files:
            self._reset_queues()
        self._finish_deletions()
        start = find_start_point(commit_log, self._queues, self._checkpoint, self._fine, self._stop)
        if self._options.rebuild or any(queue.lost_files for queue in self._queues):
            log.warning("queues lack entries: the whole commit log is read to rebuild them")
            start = replace(start, begin=commit_log.min_offset)
        reads_all = start.begin <= commit_log.min_offset
        scan, gaps = self._rebuild(start, fill_gaps=reads_all)
        if gaps:
            begin = max(commit_log.min_offset, min(start.begin, *gaps.values()))
            log.warning("queues lack entries: reading again queues=%d offset=%d", len(gaps), begin)
            start = replace(start, begin=begin)
            scan, _ = self._rebuild(start, fill_gaps=True)
        self._end_log_at(scan.log_end)
        if self._stop is not StopKind.CLEAN:
            self._mark_files_unflushed()
            self._write_again(start.flushed_end)
        self._queues.write_out()
        fine = FineCheckpoint(scan.log_end, self._fine.flushed)
        if fine != self._fine and self._options.fine_path is not None:
            fine.save(self._options.fine_path, durable=True)
        return RecoveryReport(
            self._stop, start.begin, scan.log_end, scan.records_read, scan.last_timestamp_ms, fine
        )

    # --- before reading ---

    def _reset_queues(self) -> None:
        """Without a commit log all queue offsets begin at 0 again, as with Apache's broker."""
        for queue in self._queues:
            if queue.max_offset > 0:
                log.warning("there is no commit log: %s/%d begins at 0 again", queue.topic, queue.queue_id)
                queue.cut_at(0)

    def _finish_deletions(self) -> None:
        """Remove the queues of deleted topics: the broker may have stopped while it removed them."""
        for topic, log_end in self._options.deleted.items():
            for queue in list(self._queues.of_topic(topic).values()):
                last = queue.last_entry()
                if last is not None and last[0] < log_end:
                    log.warning("%s/%d was being deleted when the broker stopped", topic, queue.queue_id)
                    queue.delete()

    def _lower_fine_checkpoint(self, begin: int) -> None:
        """Entries from `begin` on are about to be rebuilt: until they are written none counts as written."""
        lowered = FineCheckpoint(min(self._fine.written, begin), min(self._fine.flushed, begin))
        if lowered != self._fine and self._options.fine_path is not None:
            lowered.save(self._options.fine_path, durable=True)
        self._fine = lowered

    # --- reading ---

    def _rebuild(self, start: StartPoint, *, fill_gaps: bool) -> tuple[LogScan, Mapping[ConsumeQueue, int]]:
        """Cut the queues to the start point and make entries for all records behind it.

        Returns the finished scan, and the gaps that the dispatcher found in the queues.
        """
        self._lower_fine_checkpoint(start.begin)
        for queue in self._queues:
            queue.cut(start.begin)
            if self._stop is not StopKind.CLEAN:
                queue.reset_after_crash()
        options = self._options
        dispatcher = Dispatcher(
            self._queues, self._log, options.deleted, fill_gaps=fill_gaps, levels=options.delay_levels
        )
        scan = LogScan(self._log, start, self._stop, check_crc=options.check_crc)
        dispatch = dispatcher.dispatch
        dispatch_plain = partial(dispatcher.dispatch_plain, check_crc=options.check_crc)
        unwritten = 0
        for record in scan:
            dispatch(record)
            plain = scan.take_plain(dispatch_plain)
            if plain:
                scan.last_timestamp_ms = dispatcher.last_timestamp_ms
            unwritten += 1 + plain
            if unwritten >= _RECORDS_PER_WRITE:
                unwritten = 0
                self._queues.write_out()
        return scan, dispatcher.gaps

    # --- after reading ---

    def _end_log_at(self, log_end: int) -> None:
        commit_log = self._log
        last = commit_log.files[-1] if commit_log.files else None
        if last is not None and log_end == last.start + last.size:
            last.wrote = last.flushed = last.size
        else:
            commit_log.cut(log_end)
        if commit_log.min_offset > 0:
            for queue in self._queues:
                queue.advance_min(commit_log.min_offset)

    def _write_again(self, flushed_end: int) -> None:
        """Write records and entries from the last known flush on again. Raises OSError."""
        for file in reversed(self._log.files):
            begin = max(0, flushed_end - file.start)
            if begin < file.wrote:
                file.write_again(begin, file.wrote)
            if begin > 0:
                break
        for queue in self._queues:
            queue.write_again(flushed_end)

    def _mark_files_unflushed(self) -> None:
        """Have the next flush write records newer than the checkpoint: they may be in the page cache only."""
        for file in reversed(self._log.files):
            file.mark_unflushed()
            first = self._log.record_at(file.start)
            if first is not None and first.store_timestamp_ms <= self._checkpoint.safe_timestamp_ms:
                return
