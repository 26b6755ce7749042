"""The timer's checkpoint `timercheck`: how far its files go, and up to which time messages were delivered.

The file has 4,096 bytes and begins with seven int64 values (Apache RocketMQ 5.3.3, TimerCheckpoint). Apache's
broker neither reads nor writes the bytes behind them. There this broker keeps further values, with a copy of
the seven. If the copy differs, Apache's broker has used the directory since, and the further values are void.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Final

from rmq_remoting.daemon.descriptor_reserve import open_file
from rmq_remoting.daemon.file_errors import read_file

log = logging.getLogger("rmq.broker.timers")

# Read time, end of the timer log, queue offset, the master's queue offset, state version, timestamp, counter.
_APACHES: Final = Struct(">qqqqqqq")
_OLDEST_FORM: Final = Struct(">qqqq")  # these values are written by every version of Apache's broker
_OURS_AT: Final = 64
_OURS: Final = Struct(">8s56sqqqqq")
_MARK: Final = b"rmqtimer"
_FILE_BYTES: Final = 4096


@dataclass(slots=True, frozen=True)
class TimerCheckpoint:
    """The durable state of the timer.

    Messages due before `read_ms` were delivered. Timer log and wheel go up to `log_end` and hold the messages
    of the timer's queue before `queue_offset`. `precision_ms` is the length of a slot, 0 if it is unknown.
    Up to `handed_over_ms` the timer of Apache's broker has moved POP's check points to the revive topic.
    Apache's broker has to continue at `apaches_read_ms`.

    On a replica, and after it became the master: messages of the timer's queue before `delivered_offset` that
    are due before `delivered_ms` were delivered by the master before.
    """

    read_ms: int = 0
    log_end: int = 0
    queue_offset: int = 0
    timestamp_ms: int = 0
    counter: int = 0
    precision_ms: int = 0
    handed_over_ms: int = 0
    apaches_read_ms: int = 0
    delivered_ms: int = 0
    delivered_offset: int = 0

    @classmethod
    def load(cls, path: Path) -> TimerCheckpoint:
        """Read the file; all values are 0 if it is missing, truncated or damaged. Raises OSError; blocks."""
        try:
            data = read_file(path)
        except FileNotFoundError:
            return cls()
        try:
            return cls.decode(data)
        except ValueError as error:
            log.warning(
                "timer checkpoint unusable, timed messages may be redelivered path=%s cause=%s", path, error
            )
            return cls()

    @classmethod
    def decode(cls, data: bytes) -> TimerCheckpoint:
        """Decode the content of the file, or the answer to request 60 of either broker. Raises ValueError."""
        if len(data) < _OLDEST_FORM.size:
            raise ValueError(
                f"it is truncated: it has {len(data)} bytes, at least {_OLDEST_FORM.size} are needed"
            )
        data = data.ljust(_FILE_BYTES, b"\0")
        apaches_read_ms, log_end, queue_offset, _, _, timestamp_ms, counter = _APACHES.unpack_from(data)
        if min(apaches_read_ms, log_end, queue_offset) < 0:
            raise ValueError("it is damaged: a value is negative")
        mark, values, read_ms, precision_ms, handed_over_ms, *delivered = _OURS.unpack_from(data, _OURS_AT)
        if mark != _MARK or values != data[: _APACHES.size]:
            read_ms, precision_ms, handed_over_ms = apaches_read_ms, 0, apaches_read_ms
            delivered = [0, 0]
        return cls(
            read_ms,
            log_end,
            queue_offset,
            timestamp_ms,
            counter,
            precision_ms,
            handed_over_ms,
            apaches_read_ms,
            *delivered,
        )

    def encode(self) -> bytes:
        """Encode the used part of the file, which is also the answer to request 60.

        Apache's slaves read the seven values at its beginning, and nothing behind them.
        """
        values = self.values()
        ours = _OURS.pack(
            _MARK,
            values,
            self.read_ms,
            self.precision_ms,
            self.handed_over_ms,
            self.delivered_ms,
            self.delivered_offset,
        )
        return values.ljust(_OURS_AT, b"\0") + ours

    def values(self) -> bytes:
        """Encode Apache's seven values."""
        # Apache's broker continues at the smaller one of the two offsets.
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
        """Write the file and flush it. Raises OSError; blocks."""
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = open_file(path, os.O_RDWR | os.O_CREAT)
        try:
            if os.fstat(descriptor).st_size != _FILE_BYTES:
                os.ftruncate(descriptor, _FILE_BYTES)
            # Both parts are within one sector, so a power cut leaves both or neither.
            os.pwrite(descriptor, self.encode(), 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
