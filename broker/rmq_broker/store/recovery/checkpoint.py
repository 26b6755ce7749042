"""The store checkpoint: the times up to which log, queues and index are on disk.

Apache RocketMQ 5.3.3, StoreCheckpoint: a file of 4,096 bytes that begins with five int64 values.
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

log = logging.getLogger("rmq.store")

_VALUES: Final = Struct(">qqqqq")
_FILE_BYTES: Final = 4096
_SAFETY_MS: Final = 3000
_LATEST_MS: Final = 1 << 43  # in the 23rd century


@dataclass(slots=True)
class Checkpoint:
    """Store timestamps in ms, and two offsets that this broker keeps but does not use."""

    log_timestamp_ms: int = 0
    queue_timestamp_ms: int = 0
    index_timestamp_ms: int = 0
    master_flushed_offset: int = 0
    confirm_offset: int = 0

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """Return the file's content; all zero if the file is missing or damaged.

        The file has no checksum, so impossible times count as damage. A time far in the future would declare
        messages to be on disk that may not be.
        """
        try:
            data = read_file(path)
        except FileNotFoundError:
            return cls()
        if len(data) < _VALUES.size:
            log.warning("damaged file ignored path=%s size_bytes=%d", path, len(data))
            return cls()
        loaded = cls(*_VALUES.unpack_from(data))
        times = (loaded.log_timestamp_ms, loaded.queue_timestamp_ms, loaded.index_timestamp_ms)
        if not all(0 <= time_ms <= _LATEST_MS for time_ms in times):
            log.warning("damaged file ignored path=%s times_ms=%s", path, times)
            return cls()
        return loaded

    def save(self, path: Path) -> None:
        """Write the file and fsync it. Raises OSError; blocks."""
        values = _VALUES.pack(
            self.log_timestamp_ms,
            self.queue_timestamp_ms,
            self.index_timestamp_ms,
            self.master_flushed_offset,
            self.confirm_offset,
        )
        descriptor = open_file(path, os.O_RDWR | os.O_CREAT)
        try:
            if os.fstat(descriptor).st_size != _FILE_BYTES:
                os.ftruncate(descriptor, _FILE_BYTES)
            os.pwrite(descriptor, values, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @property
    def safe_timestamp_ms(self) -> int:
        """Every message stored before this time is on disk, in the log and in its queue."""
        return min(self.log_timestamp_ms, self.queue_timestamp_ms) - _SAFETY_MS
