"""Bit maps of messages, made when they are entered into their queue (CommitLogDispatcherCalcBitMap)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..log.record import properties_of, store_timestamp_at
from ..queues.ext_writer import Judgement

if TYPE_CHECKING:
    from ..log.commit_log import CommitLog

# The filters that take a message of a topic with such properties, as a bit map; None: nobody filters it.
BitMapOf = Callable[[str, Callable[[], bytes]], bytes | None]


class RecordJudge:
    """Judges messages by what stands in the log. Without `bit_map_of` none gets a map."""

    def __init__(self, commit_log: CommitLog) -> None:
        self.bit_map_of: BitMapOf = lambda topic, properties: None
        self._log = commit_log

    def __call__(self, topic: str, physical_offset: int, size: int) -> Judgement | None:
        """What is to stand in the queue's extension files."""
        record = b""

        def properties() -> bytes:
            nonlocal record
            record = self._log.read(physical_offset, size) or b""
            return properties_of(record, 0, size)

        bit_map = self.bit_map_of(topic, properties)
        return Judgement(store_timestamp_at(record, 0), bit_map) if bit_map is not None and record else None
