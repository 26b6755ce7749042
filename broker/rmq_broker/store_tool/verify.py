"""`rmq-store verify`: check of a whole store directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .directory import Directory, StoreState, open_directory
from .expected import Expected, expected_entries
from .findings import DEFAULT_LIMIT, Report
from .log_files import NumberedFiles, Problem, numbered_files
from .log_scan import PART_BYTES, DamagedRange, LogScan
from .mapped_file import first_data
from .progress import Progress
from .properties import DEFAULT_DELAY_LEVELS, parse_delay_levels
from .verify_config import (
    check_checkpoint,
    check_consumer_offsets,
    check_delay_offsets,
    check_json_files,
    consumer_offsets,
    report_state,
)
from .verify_index import IndexCheck
from .verify_queues import QueueCheck
from .verify_timer import check_timer


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """Options of a check."""

    strict: bool = False  # defects that a broker repairs by itself count as errors
    limit: int = DEFAULT_LIMIT  # kept findings of each kind
    delay_levels: str = DEFAULT_DELAY_LEVELS  # the broker's messageDelayLevel
    index_slots: int | None = None  # the broker's maxHashSlotNum; None: find it out
    jobs: int | None = None  # processes; None: one per processor
    part_bytes: int = PART_BYTES


def verify(root: Path, options: VerifyOptions | None = None) -> Report:
    """Check the directory of a stopped or running broker. Nothing is changed.

    Raises DirectoryUnusable, OSError, and ValueError for invalid delay levels.
    """
    options = options or VerifyOptions()
    report = Report(str(root), options.strict, options.limit)
    delays_ms = parse_delay_levels(options.delay_levels)
    directory = open_directory(root)
    report_state(directory, report)
    # Offsets advance while a broker runs, and must not be ahead of the log: they are read before the log.
    offsets = consumer_offsets(directory)
    log = numbered_files(directory.commit_log)
    queues = QueueCheck(directory, log, report)
    index = IndexCheck(directory, log, report, slots=options.index_slots, certain_end=queues.certain_end)
    _check_log_files(directory, log, report)

    progress = Progress("verify", sum(file.size for file in log.files))
    scan = LogScan(
        log,
        expected_entries(directory, delays_ms),
        progress,
        jobs=options.jobs,
        part_bytes=options.part_bytes,
    )
    newest_ms = 0
    try:
        for step in scan:
            if isinstance(step, DamagedRange):
                _report_damage(directory, step, report)
                if step.problem.kind == "log.vanished":
                    log.files = [file for file in log.files if file.start >= step.until]
                continue
            expected: Expected = step.collected
            report.counts["messages"] += step.records - expected.batches + expected.batched
            if expected.batches:
                report.counts["batches"] += expected.batches
            report.counts["message bytes"] += expected.message_bytes
            newest_ms = max(newest_ms, expected.last_ms)
            for offset, text in expected.invalid_batches:
                report.error("log.inner_batch", f"log at {offset}", text)
            for offset in expected.torn_properties:
                # No checksum covers the properties. Zeros at their end were never written.
                sure = directory.state is StoreState.STOPPED or offset < queues.certain_end
                emit = report.error if sure else report.recoverable
                emit("log.properties", f"log at {offset}", "the properties end in zeros")
            for offset in expected.miscompressed:
                report.note(
                    "log.compression",
                    f"log at {offset}",
                    "the body does not begin like the compression in the sys flag",
                )
            queues.compare(expected)
            index.compare(expected)
    finally:
        progress.close()
    report.facts["log"] = f"{log.start} to {scan.end}"
    if scan.tail is not None:
        _report_tail(directory, log, scan.tail, report)
    queues.finish(scan.end)
    index.finish(scan.end)
    ends = queues.ends()
    check_checkpoint(directory, scan.end, newest_ms, report)
    check_json_files(directory, report)
    check_consumer_offsets(offsets, ends, directory, report)
    check_delay_offsets(ends, directory, report)
    check_timer(directory, log, ends, report)
    return report


def _check_log_files(directory: Directory, log: NumberedFiles, report: Report) -> None:
    report.counts["log files"] = len(log.files)
    for path in log.foreign:
        report.note("log.foreign", str(path), "the name is not that of a log file")
    for before, after in log.gaps:
        report.error(
            "log.files",
            str(after.path),
            f"{after.start - before.end} bytes are missing between {before.path.name} and this file",
        )
    for file in log.unusual_sizes:
        emit = (
            report.recoverable
            if directory.state is not StoreState.STOPPED and file is log.files[-1]
            else report.error
        )
        emit("log.files", str(file.path), f"the size is {file.size} bytes, other files have {log.file_bytes}")


def _report_damage(directory: Directory, damage: DamagedRange, report: Report) -> None:
    problem = damage.problem
    place = f"log at {problem.at}"
    if problem.kind == "log.vanished":
        report.note(problem.kind, place, problem.text)
        return
    kind = "log.hole" if problem.is_empty else problem.kind
    # Records that were not flushed before a crash of the machine may be missing; a broker ends the log there.
    is_doubtful = directory.state is StoreState.MACHINE_CRASHED and problem.at >= (directory.flushed or 0)
    emit = report.recoverable if is_doubtful else report.error
    emit(kind, place, f"{problem.text}; the next valid record begins at {damage.until}")


def _report_tail(directory: Directory, log: NumberedFiles, tail: Problem, report: Report) -> None:
    """Report the bytes behind the last valid record."""
    place = f"log at {tail.at}"
    if not tail.is_empty:
        text = f"{tail.text}; no valid record follows"
        if directory.state is StoreState.STOPPED:
            report.error(tail.kind, place, text)
        else:
            report.recoverable("log.torn_end", place, text)
        return
    for file in log.files:
        if file.end <= tail.at:
            continue
        stray = first_data(file.path, max(0, tail.at - file.start))
        if stray is not None:
            text = f"the log ends at {tail.at}, but further bytes follow here"
            report.recoverable("log.behind_end", f"log at {file.start + stray}", text)
            return
