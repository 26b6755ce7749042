"""Bit maps of consumer filters, calculated when a message is entered into its queue.

(Apache RocketMQ 5.3.3, CommitLogDispatcherCalcBitMap.)
"""

from __future__ import annotations

from collections.abc import Callable

from ..log.commit_log import CommitLog
from ..log.record import properties_of, store_timestamp_at
from ..queues.ext_writer import MessageBitMap
from ..reading.log_ranges import ColdData, WarmLog

# Returns the bit map of the filters that take a message; None if nobody filters its topic. The arguments are
# the topic, and a function that reads the message's raw properties.
BitMapOf = Callable[[str, Callable[[], bytes]], bytes | None]


class BitMapCalculator:
    """Calculates the bit maps of messages from their records in the commit log."""

    def __init__(self, commit_log: CommitLog, bit_map_of: BitMapOf) -> None:
        self._bit_map_of = bit_map_of
        self._log = commit_log
        self._warm = WarmLog(commit_log)

    def __call__(self, topic: str, physical_offset: int, size: int) -> MessageBitMap | None:
        """Return what the queue's extension files hold of a message; None if nobody filters its topic."""
        record = b""

        def properties() -> bytes:
            nonlocal record
            try:
                # Appended just now, or read by recovery: the disk is not needed.
                record = bytes(self._warm.read(physical_offset, size) or b"")
            except ColdData:
                record = self._log.read(physical_offset, size) or b""
            return properties_of(record, 0, size)

        bit_map = self._bit_map_of(topic, properties)
        return (
            MessageBitMap(store_timestamp_at(record, 0), bit_map) if bit_map is not None and record else None
        )
