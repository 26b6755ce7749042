"""`timercheck`: how far the timer's files go, and up to when what waited has been delivered.

A file of 4,096 bytes that begins with seven int64 values (Apache RocketMQ 5.3.3, TimerCheckpoint). Behind
them, where Apache's broker neither reads nor writes, stands what only this one needs to know. It counts as
long as the seven are as they were then: otherwise the other broker was here meanwhile.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Final

log = logging.getLogger("rmq.broker.timers")

# read time, timer log, queue offset, the same of the master, state version, timestamp, counter
_APACHES: Final = Struct(">qqqqqqq")
_VALUES_THEN: Final = Struct(">qqqq")  # what every version of Apache's broker writes
_OURS_AT: Final = 64
_OURS: Final = Struct(">8s56sqqq")
_MARK: Final = b"rmqtimer"
_FILE_BYTES: Final = 4096


@dataclass(slots=True, frozen=True)
class TimerCheckpoint:
    """What is certain: it is on the disk.

    What was due before `read_ms` has been delivered. The timer log goes up to `log_end`, and the wheel with
    it; they hold the messages of the timer queue before `queue_offset`. `precision_ms` is the length of the
    wheel's seconds, 0 where nobody said. Up to `handed_over_ms` the timer of Apache's broker has handed POP's
    check points over. A broker of Apache's is to go on at `apaches_read_ms`.
    """

    read_ms: int = 0
    log_end: int = 0
    queue_offset: int = 0
    timestamp_ms: int = 0
    counter: int = 0
    precision_ms: int = 0
    handed_over_ms: int = 0
    apaches_read_ms: int = 0

    @classmethod
    def load(cls, path: Path) -> TimerCheckpoint:
        """What the file says; all zero where there is none, or none that is whole. Raises OSError; blocks."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return cls()
        if len(data) < _VALUES_THEN.size:
            log.warning("%s has %d bytes: timed messages may come twice", path, len(data))
            return cls()
        data = data.ljust(_FILE_BYTES, b"\0")
        apaches_read_ms, log_end, queue_offset, _, _, timestamp_ms, counter = _APACHES.unpack_from(data)
        if min(apaches_read_ms, log_end, queue_offset) < 0:
            log.warning("%s is damaged: timed messages may come twice", path)
            return cls()
        mark, values, read_ms, precision_ms, handed_over_ms = _OURS.unpack_from(data, _OURS_AT)
        if mark != _MARK or values != data[: _APACHES.size]:
            read_ms, precision_ms, handed_over_ms = apaches_read_ms, 0, apaches_read_ms
        return cls(
            read_ms,
            log_end,
            queue_offset,
            timestamp_ms,
            counter,
            precision_ms,
            handed_over_ms,
            apaches_read_ms,
        )

    def values(self) -> bytes:
        """The seven values, also for slaves that ask for them."""
        # Apache's broker goes on at the smaller one of the two offsets.
        return _APACHES.pack(
            self.apaches_read_ms,
            self.log_end,
            self.queue_offset,
            self.queue_offset,
            0,
            self.timestamp_ms,
            self.counter,
        )

    def save(self, path: Path) -> None:
        """Write the file and wait until it is on the disk. Raises OSError; blocks."""
        values = self.values()
        ours = _OURS.pack(_MARK, values, self.read_ms, self.precision_ms, self.handed_over_ms)
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(descriptor).st_size != _FILE_BYTES:
                os.ftruncate(descriptor, _FILE_BYTES)
            # Together they are no longer than a sector: both are there, or neither is.
            os.pwrite(descriptor, values.ljust(_OURS_AT, b"\0") + ours, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
