"""Check of a store's small files: JSON files, offsets, checkpoints, and the state at the last stop."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from .directory import Directory, StoreState, read_json, read_json_or_backup
from .findings import Report
from .plain_records import QueueKey
from .properties import SCHEDULE_TOPIC

# Apache's names that do not end in .json.
_MORE_JSON: Final = ("timermetrics", "transactionMetrics")


def report_state(directory: Directory, report: Report) -> None:
    """Report how and by which broker the directory was left."""
    report.facts["left"] = directory.state.value
    report.facts["abort file"] = "present" if (directory.root / "abort").exists() else "absent"
    report.facts["written last by"] = "this project's broker" if directory.is_ours else "Apache's broker"
    if directory.written is not None:
        report.facts["queues written up to"] = directory.written
        report.facts["flushed up to"] = directory.flushed
    for name, file in (("rocksdb", "consumequeue_r"), ("rocksdb", "rocksdb_consumequeue")):
        if (directory.root / file).is_dir():
            report.note(f"queue.{name}", file, "queues in RocksDB are not checked")


def check_checkpoint(directory: Directory, log_end: int, newest_ms: int, report: Report) -> None:
    """Check that no checkpoint claims more than the log has."""
    path = directory.root / "checkpoint"
    if directory.checkpoint is None:
        if path.exists():
            emit = report.recoverable if directory.state is StoreState.IN_USE else report.error
            emit("checkpoint", str(path), "the file is shorter than its values")
        else:
            report.recoverable(
                "checkpoint", str(path), "the file is missing: after a crash a broker reads the whole log"
            )
    else:
        for name, time_ms in zip(("log", "queue", "index"), directory.checkpoint, strict=True):
            if time_ms < 0:
                report.error("checkpoint", str(path), f"the time of the {name}, {time_ms}, is negative")
            elif time_ms > newest_ms > 0 and directory.state is not StoreState.IN_USE:
                report.error(
                    "checkpoint",
                    str(path),
                    f"the time of the {name} is {time_ms}, the newest message in the log is of {newest_ms}: "
                    "the end of the log is lost",
                )
    path = directory.root / "rmq_checkpoint"
    if directory.written is None or directory.flushed is None:
        if path.exists():
            report.recoverable("checkpoint", str(path), "the file is damaged; a broker recreates it")
        return
    promised = directory.flushed if directory.state is StoreState.MACHINE_CRASHED else directory.written
    if promised > log_end and directory.state is not StoreState.IN_USE:
        report.error(
            "checkpoint",
            str(path),
            f"{promised} bytes were written according to it; the log ends at {log_end}",
        )


def check_json_files(directory: Directory, report: Report) -> None:
    """Check that every JSON file and its backup can be read."""
    try:
        paths = sorted(directory.config.iterdir())
    except FileNotFoundError:
        report.note("config.none", str(directory.config), "the folder does not exist")
        return
    for path in paths:
        name = path.name.removesuffix(".bak")
        if not path.is_file() or not (name.endswith(".json") or name in _MORE_JSON):
            continue
        report.counts["config files"] += 1
        problem = _json_problem(path)
        if problem is None:
            continue
        other = path.with_name(name) if path.name != name else path.with_name(name + ".bak")
        rescue = "" if _json_problem(other) is not None else f"; {other.name} can be read"
        report.error("config.json", str(path), f"{problem}{rescue}")


def consumer_offsets(directory: Directory) -> dict[str, Any]:
    """Return the table of consumerOffset.json; empty if it cannot be read."""
    return _offset_table(directory.config / "consumerOffset.json")


def check_consumer_offsets(
    table: Mapping[str, Any], ends: Mapping[QueueKey, int], directory: Directory, report: Report
) -> None:
    """Check that no group's offset is beyond the end of its queue."""
    for name, offsets in table.items():
        topic, _, group = name.rpartition("@") if name.count("@") == 1 else name.partition("@")
        if not isinstance(offsets, dict):
            report.error("config.offsets", f"consumerOffset.json {name}", "the offsets are not a JSON object")
            continue
        for queue, offset in offsets.items():
            place = f"consumerOffset.json {name} queue {queue}"
            if not isinstance(offset, int) or offset < 0:
                report.error("config.offsets", place, f"the offset {offset!r} is not a number of at least 0")
                continue
            report.counts["consumer offsets"] += 1
            end = ends.get((topic.encode(), int(queue)))
            if end is None and directory.configured_topics is not None:
                if offset > 0 and topic.encode() in directory.configured_topics:
                    report.recoverable(
                        "config.offsets", place, f"group {group} is at {offset} of an empty queue"
                    )
            elif end is not None and offset > end:
                text = f"group {group} is at {offset}, the queue ends at {end}"
                if directory.state in (StoreState.IN_USE, StoreState.MACHINE_CRASHED):
                    report.recoverable("config.offsets", place, text)
                else:
                    report.error("config.offsets", place, text)


def check_delay_offsets(ends: Mapping[QueueKey, int], directory: Directory, report: Report) -> None:
    """Check that no delay level's offset is beyond the end of its queue."""
    for level, offset in _offset_table(directory.config / "delayOffset.json").items():
        place = f"delayOffset.json level {level}"
        if not isinstance(offset, int) or offset < 0 or not str(level).isdecimal():
            report.error("config.offsets", place, f"the offset {offset!r} is not a number of at least 0")
            continue
        end = ends.get((SCHEDULE_TOPIC, int(level) - 1), 0)
        if offset > end and directory.state is not StoreState.IN_USE:
            report.error("config.offsets", place, f"the offset is {offset}, the queue ends at {end}")


def _offset_table(path: Path) -> dict[str, Any]:
    content = read_json_or_backup(path)
    table = content.get("offsetTable") if isinstance(content, dict) else None
    return {str(name): value for name, value in table.items()} if isinstance(table, dict) else {}


def _json_problem(path: Path) -> str | None:
    try:
        content = read_json(path)
    except FileNotFoundError:
        return "the file is missing"
    except OSError as error:
        return f"the file cannot be read: {error.strerror}"
    except ValueError as error:
        return f"the file is damaged: {error}"
    return None if isinstance(content, dict) else "the file is damaged: it holds no JSON object"
