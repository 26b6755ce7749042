"""`rmq-store verify`: is everything in a store directory what it should be?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .directory import Directory, Left, open_directory
from .expected import Expected, expected_entries
from .findings import DEFAULT_LIMIT, Report
from .log_files import NumberedFiles, Problem, numbered_files
from .log_scan import PART_BYTES, Damage, LogWalk
from .mapped_file import first_data
from .progress import Progress
from .properties import DEFAULT_DELAY_LEVELS, parse_delay_levels
from .verify_config import (
    check_checkpoint,
    check_consumer_offsets,
    check_delay_offsets,
    check_json_files,
    consumer_offsets,
    tell_state,
)
from .verify_index import IndexCheck
from .verify_queues import QueueCheck
from .verify_timer import check_timer


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """How to check."""

    strict: bool = False  # what a broker puts right by itself counts as an error
    limit: int = DEFAULT_LIMIT  # findings of each kind that are kept
    delay_levels: str = DEFAULT_DELAY_LEVELS  # the broker's messageDelayLevel
    index_slots: int | None = None  # the broker's maxHashSlotNum, where it cannot be found out
    jobs: int | None = None  # processes; None: one for each processor
    part_bytes: int = PART_BYTES


def verify(root: Path, options: VerifyOptions | None = None) -> Report:
    """Check a directory, of a broker that has stopped or one that runs. Changes nothing.

    Raises NoStore where it is no store, OSError where a file cannot be read, ValueError for bad delay levels.
    """
    options = options or VerifyOptions()
    report = Report(str(root), options.strict, options.limit)
    delays_ms = parse_delay_levels(options.delay_levels)
    directory = open_directory(root)
    tell_state(directory, report)
    # What moves on while a broker runs is read before the log that it must not be ahead of.
    offsets = consumer_offsets(directory)
    log = numbered_files(directory.commit_log)
    queues = QueueCheck(directory, log, report)
    index = IndexCheck(directory, log, report, slots=options.index_slots, certain_end=queues.certain_end)
    _check_log_files(directory, log, report)

    progress = Progress("verify", sum(file.size for file in log.files))
    walk = LogWalk(
        log,
        expected_entries(directory, delays_ms),
        progress,
        jobs=options.jobs,
        part_bytes=options.part_bytes,
    )
    newest_ms = 0
    try:
        for step in walk:
            if isinstance(step, Damage):
                _tell_damage(directory, step, report)
                if step.problem.kind == "log.vanished":
                    log.files = [file for file in log.files if file.start >= step.until]
                continue
            expected: Expected = step.collected
            report.counts["messages"] += step.records - expected.batches + expected.batched
            if expected.batches:
                report.counts["batches"] += expected.batches
            report.counts["message bytes"] += expected.message_bytes
            newest_ms = max(newest_ms, expected.last_ms)
            for offset, text in expected.odd_batches:
                report.error("log.inner_batch", f"log at {offset}", text)
            for offset in expected.torn:
                # Under no checksum: a part that was never written.
                sure = directory.left is Left.STOPPED or offset < queues.certain_end
                tell = report.error if sure else report.unfinished
                tell("log.properties", f"log at {offset}", "its properties end in zeros")
            for offset in expected.odd_bodies:
                report.note(
                    "log.compression", f"log at {offset}", "the body is not compressed as its sys flag says"
                )
            queues.take(expected)
            index.take(expected.index)
    finally:
        progress.close()
    report.facts["log"] = f"{log.start} to {walk.end}"
    if walk.tail is not None:
        _tell_tail(directory, log, walk.tail, report)
    queues.finish(walk.end)
    index.finish(walk.end)
    ends = queues.ends()
    check_checkpoint(directory, walk.end, newest_ms, report)
    check_json_files(directory, report)
    check_consumer_offsets(offsets, ends, directory, report)
    check_delay_offsets(ends, directory, report)
    check_timer(directory, log, ends, report)
    return report


def _check_log_files(directory: Directory, log: NumberedFiles, report: Report) -> None:
    report.counts["log files"] = len(log.files)
    for path in log.foreign:
        report.note("log.foreign", str(path), "it is not named as a file of the log")
    for before, after in log.holes:
        report.error(
            "log.files",
            str(after.path),
            f"it does not follow on {before.path.name}: {after.start - before.end} bytes are missing",
        )
    for file in log.odd_sizes:
        tell = (
            report.unfinished
            if directory.left is not Left.STOPPED and file is log.files[-1]
            else report.error
        )
        tell("log.files", str(file.path), f"it has {file.size} bytes, where the others have {log.file_bytes}")


def _tell_damage(directory: Directory, damage: Damage, report: Report) -> None:
    problem = damage.problem
    place = f"log at {problem.at}"
    if problem.kind == "log.vanished":
        report.note(problem.kind, place, problem.text)
        return
    kind = "log.hole" if problem.is_empty else problem.kind
    # What was not on the disk when the machine crashed may have holes; a broker ends the log there.
    is_doubtful = directory.left is Left.MACHINE_CRASHED and problem.at >= (directory.flushed or 0)
    tell = report.unfinished if is_doubtful else report.error
    tell(kind, place, f"{problem.text}; the next valid record begins at {damage.until}")


def _tell_tail(directory: Directory, log: NumberedFiles, tail: Problem, report: Report) -> None:
    """What stands behind the last valid record."""
    place = f"log at {tail.at}"
    if not tail.is_empty:
        text = f"{tail.text}; no valid record follows"
        if directory.left is Left.STOPPED:
            report.error(tail.kind, place, text)
        else:
            report.unfinished("log.torn_end", place, text)
        return
    for file in log.files:
        if file.end <= tail.at:
            continue
        stray = first_data(file.path, max(0, tail.at - file.start))
        if stray is not None:
            text = f"the log ends at {tail.at}, and here is something again"
            report.unfinished("log.behind_end", f"log at {file.start + stray}", text)
            return
