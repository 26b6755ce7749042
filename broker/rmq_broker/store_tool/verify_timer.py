"""Check of the timer wheel of timed messages, its log and its checkpoint.

Apache RocketMQ 5.3.3, TimerWheel, TimerLog, TimerCheckpoint.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from .directory import Directory, StoreState
from .findings import Report
from .layout import TIMER_CHECKPOINT, TIMER_SLOT, TIMER_UNIT, BadRecord
from .log_files import NumberedFiles, numbered_files, record_at
from .mapped_file import mapped
from .plain_records import QueueKey
from .properties import java_hash, property_of
from .times import utc_text

_TIMER_QUEUE: Final = (b"rmq_sys_wheel_timer", 0)
_BLANK_MAGIC: Final = (0xBBCCDDEE ^ (1880681586 + 8)) & 0xFFFFFFFF
_BLOCK_BYTES: Final = 1 << 20


def check_timer(
    directory: Directory, log: NumberedFiles, ends: Mapping[QueueKey, int], report: Report
) -> None:
    """Check the three, as far as they exist. Raises OSError."""
    if directory.state is StoreState.IN_USE:
        return
    timer_log = numbered_files(directory.root / "timerlog")
    log_end = _check_log(timer_log, log, report)
    flushed = _check_progress(directory, timer_log, log_end, ends, report)
    wheel = directory.root / "timerwheel"
    if wheel.exists():
        _check_wheel(wheel, timer_log.start, max(log_end, flushed), report)


def _check_log(timer_log: NumberedFiles, log: NumberedFiles, report: Report) -> int:
    """Check that every entry has its message in the commit log; return the end of the entries."""
    end = timer_log.start
    for file in timer_log.files:
        with mapped(file.path) as content:
            data, position = content.data, 0
            while position + TIMER_UNIT.size <= len(data):
                at = file.start + position
                size, previous, magic, _, _, offset, message_bytes, hashed, _ = TIMER_UNIT.unpack_from(
                    data, position
                )
                if size == 0:
                    break
                if magic & 0xFFFFFFFF == _BLANK_MAGIC and size == len(data) - position:
                    break
                if message_bytes == 0 and size == TIMER_UNIT.size:
                    break  # a power cut left only the beginning of the entry
                if size != TIMER_UNIT.size or not -1 <= previous < at:
                    report.error(
                        "timer.log",
                        f"timerlog at {at}",
                        f"no valid entry: size {size}, previous entry at {previous}",
                    )
                    break
                report.counts["timer log entries"] += 1
                _check_message(log, at, offset, message_bytes, hashed, report)
                position += TIMER_UNIT.size
                end = file.start + position
    return end


def _check_message(
    log: NumberedFiles, at: int, offset: int, message_bytes: int, hashed: int, report: Report
) -> None:
    if offset < log.start:
        return
    place = f"timerlog at {at}"
    try:
        record = record_at(log, offset)
    except BadRecord as bad:
        report.error("timer.log", place, f"the message at {offset} is not in the log: {bad}")
        return
    if record.topic != _TIMER_QUEUE[0] or record.size != message_bytes:
        report.error(
            "timer.log",
            place,
            f"the message at {offset} must have {message_bytes} bytes; the one there has {record.size} and "
            f"the topic {record.topic!r}",
        )
        return
    topic = property_of(record.properties, b"REAL_TOPIC")
    if topic is not None and java_hash(topic.decode("utf-8", "replace")) != hashed:
        report.error("timer.log", place, f"the hash {hashed} is not that of the topic {topic!r}")


def _check_progress(
    directory: Directory,
    timer_log: NumberedFiles,
    log_end: int,
    ends: Mapping[QueueKey, int],
    report: Report,
) -> int:
    """Check the checkpoint; return the flushed end of the timer log according to it."""
    path = directory.config / "timercheck"
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return 0
    if len(content) < TIMER_CHECKPOINT.size:
        report.error(
            "timer.checkpoint", str(path), f"the file has {len(content)} bytes, less than its values"
        )
        return 0
    values = TIMER_CHECKPOINT.unpack_from(content)
    read_ms, flushed, queue_offset, _ = values
    if min(values) < 0:
        report.error("timer.checkpoint", str(path), f"a value is negative: {values}")
        return 0
    if flushed > max(log_end, timer_log.start):
        report.error(
            "timer.checkpoint", str(path), f"the flushed offset is {flushed}, the timer log ends at {log_end}"
        )
    end = ends.get(_TIMER_QUEUE, 0)
    if queue_offset > end:
        report.error(
            "timer.checkpoint", str(path), f"the queue offset is {queue_offset}, the queue ends at {end}"
        )
    report.facts["timer read up to"] = utc_text(read_ms)
    return int(flushed)


def _check_wheel(path: Path, log_start: int, log_end: int, report: Report) -> None:
    size = path.stat().st_size
    if size == 0 or size % TIMER_SLOT.size:
        report.error("timer.wheel", str(path), f"the size {size} is not a multiple of {TIMER_SLOT.size}")
        return
    slots = size // TIMER_SLOT.size
    for number, slot in _slots_in_use(path, size):
        time, first, last, count, _ = TIMER_SLOT.unpack(slot)
        report.counts["timer slots"] += 1
        place = f"timerwheel slot {number}"
        if time < 0 or time % slots != number:
            report.error("timer.wheel", place, f"the time {time} belongs into another slot")
        elif last >= log_start and not log_start <= last < max(log_end, log_start + 1):
            report.error(
                "timer.wheel", place, f"the newest entry is at {last}; the timer log ends at {log_end}"
            )
        elif first > last or count < 0:
            report.error("timer.wheel", place, f"entries from {first} to {last}, {count} messages")


def _slots_in_use(path: Path, size: int) -> Iterator[tuple[int, bytes]]:
    with path.open("rb", buffering=0) as stream:
        for at in range(0, size, _BLOCK_BYTES):
            block = os.pread(stream.fileno(), _BLOCK_BYTES, at)
            if not block.strip(b"\0"):
                continue
            for position in range(0, len(block), TIMER_SLOT.size):
                slot = block[position : position + TIMER_SLOT.size]
                if any(slot):
                    yield (at + position) // TIMER_SLOT.size, slot
