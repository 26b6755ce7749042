"""`rmq-store stats`: disk usage of a store directory."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from mmap import mmap
from pathlib import Path
from typing import Any, Final

from .directory import open_directory
from .layout import Record
from .log_files import numbered_files
from .log_scan import PART_BYTES, DamagedRange, LogScan
from .progress import Progress
from .properties import inner_batch

_HOUR_MS: Final = 3_600_000
_BAR: Final = 40
# Part of the store by the first folder of a path.
_PARTS: Final = {
    "commitlog": "log",
    "consumequeue": "queues",
    "batchconsumequeue": "queues",
    "consumequeue_ext": "queue extensions",
    "index": "index",
    "timerlog": "timer",
    "timerwheel": "timer",
    "config": "config",
}


@dataclass(slots=True)
class TopicTally:
    """Totals of one topic; times are store times in ms."""

    messages: int = 0
    bytes: int = 0
    first_ms: int = 0
    last_ms: int = 0

    def add(self, messages: int, size: int, first_ms: int, last_ms: int) -> None:
        """Add messages."""
        self.first_ms = first_ms if self.messages == 0 else min(self.first_ms, first_ms)
        self.last_ms = max(self.last_ms, last_ms)
        self.messages += messages
        self.bytes += size


@dataclass(slots=True)
class Tally:
    """Totals of some messages."""

    topics: dict[bytes, TopicTally] = field(default_factory=dict)
    sizes: Counter[int] = field(
        default_factory=Counter
    )  # messages, by the power of two above their size (in a batch: above the average size)
    hours: Counter[int] = field(default_factory=Counter)  # bytes, by hour since 1970 UTC

    def add(self, data: mmap | bytes, record: Record) -> None:
        """Add a record."""
        topic = self.topics.get(record.topic)
        if topic is None:
            topic = self.topics[record.topic] = TopicTally()
        batch = inner_batch(record)
        count = 1 if batch is None else batch[1]
        topic.add(count, record.size, record.store_time_ms, record.store_time_ms)
        self.sizes[(record.size // count).bit_length()] += count
        self.hours[record.store_time_ms // _HOUR_MS] += record.size

    def result(self) -> Tally:
        """Return this tally."""
        return self

    def merge(self, other: Tally) -> None:
        """Add the totals of another tally."""
        for name, topic in other.topics.items():
            self.topics.setdefault(name, TopicTally()).add(
                topic.messages, topic.bytes, topic.first_ms, topic.last_ms
            )
        self.sizes.update(other.sizes)
        self.hours.update(other.hours)


@dataclass(slots=True)
class Statistics:
    """Disk usage of a directory."""

    directory: str
    log_start: int
    log_end: int
    damaged_places: int
    tally: Tally
    disk_bytes: dict[str, int]  # bytes on the disk by part of the store

    def as_json(self) -> dict[str, Any]:
        """Return the statistics for programs."""
        return {
            "directory": self.directory,
            "log": {"start": self.log_start, "end": self.log_end, "damagedPlaces": self.damaged_places},
            "diskBytes": self.disk_bytes,
            "topics": {
                _text(name): {
                    "messages": topic.messages,
                    "bytes": topic.bytes,
                    "firstStoreTimestamp": topic.first_ms,
                    "lastStoreTimestamp": topic.last_ms,
                }
                for name, topic in self._by_size()
            },
            "messagesBySizeBelow": {
                str(1 << bits): count for bits, count in sorted(self.tally.sizes.items())
            },
            "bytesByHour": {str(hour * _HOUR_MS): size for hour, size in sorted(self.tally.hours.items())},
        }

    def lines(self) -> list[str]:
        """Return the statistics for people."""
        total = sum(topic.bytes for topic in self.tally.topics.values())
        messages = sum(topic.messages for topic in self.tally.topics.values())
        lines = [
            f"{self.directory}: {messages} messages, {_size(total)} of records; log {self.log_start} to "
            f"{self.log_end}"
        ]
        if self.damaged_places:
            lines.append(f"damaged ranges in the log: {self.damaged_places}; 'rmq-store verify' lists them")
        lines += [
            "",
            "on the disk",
            *(f"  {part:<18} {_size(size):>10}" for part, size in self.disk_bytes.items()),
        ]
        lines += ["", f"{'topic':<40} {'messages':>10} {'bytes':>10} {'share':>6}  first and last (UTC)"]
        for name, topic in self._by_size():
            share = topic.bytes / total if total else 0.0
            lines.append(
                f"{_text(name):<40} {topic.messages:>10} {_size(topic.bytes):>10} {share:>6.1%}  "
                f"{_time(topic.first_ms)} {_time(topic.last_ms)}"
            )
        lines += ["", "messages by size"]
        lines += _bars({f"below {_size(1 << bits)}": n for bits, n in sorted(self.tally.sizes.items())}, str)
        lines += ["", "bytes by hour (UTC)"]
        lines += _bars(
            {_time(hour * _HOUR_MS): size for hour, size in sorted(self.tally.hours.items())}, _size
        )
        return lines

    def _by_size(self) -> list[tuple[bytes, TopicTally]]:
        return sorted(self.tally.topics.items(), key=lambda item: (-item[1].bytes, item[0]))


def statistics(root: Path, *, jobs: int | None = None, part_bytes: int = PART_BYTES) -> Statistics:
    """Collect the statistics of a directory. Raises DirectoryUnusable, OSError."""
    directory = open_directory(root)
    log = numbered_files(directory.commit_log)
    progress = Progress("stats", sum(file.size for file in log.files))
    scan = LogScan(log, Tally, progress, jobs=jobs, part_bytes=part_bytes)
    tally, damaged = Tally(), 0
    try:
        for step in scan:
            if isinstance(step, DamagedRange):
                damaged += 1
            else:
                tally.merge(step.collected)
    finally:
        progress.close()
    return Statistics(str(root), log.start, scan.end, damaged, tally, _disk_bytes(root))


def _disk_bytes(root: Path) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for path in root.rglob("*"):
        try:
            status = path.lstat()
        except FileNotFoundError:  # a running broker deletes files
            continue
        part = _PARTS.get(path.relative_to(root).parts[0], "other")
        if not path.is_dir():
            sizes[part] = sizes.get(part, 0) + status.st_blocks * 512
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def _bars(values: dict[str, int], shown: Callable[[int], str]) -> list[str]:
    most = max(values.values(), default=0)
    return [
        f"  {name:<18} {shown(value):>10} {'#' * max(1, round(value / most * _BAR))}"
        for name, value in values.items()
    ]


def _size(number: int) -> str:
    value = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def _time(milliseconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(milliseconds / 1000))


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
