"""What a read of a queue returns: a status, messages, and where the queue begins and ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class GetStatus(Enum):
    """How a read ended. The names are those of Apache's broker, which travel as remarks."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_RESET = "OFFSET_RESET"


@dataclass(slots=True, init=False)
class GetResult:
    """Messages that were read, the offset to read on from, and the queue's offsets.

    `body` holds `count` messages, as records one after the other. `reads_old_data` tells that, by estimate,
    they are too far from the log's end to be in memory. `cold_bytes` is how much of the log counts as read
    cold; 0 unless `coldDataFlowControlEnable` is on.
    """

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    body: bytes
    count: int
    reads_old_data: bool
    cold_bytes: int

    # Written out, as every read calls it: a compiled class keeps a dataclass's own as interpreted code.
    def __init__(
        self,
        status: GetStatus,
        next_offset: int,
        min_offset: int,
        max_offset: int,
        body: bytes = b"",
        count: int = 0,
        reads_old_data: bool = False,
        cold_bytes: int = 0,
    ) -> None:
        self.status = status
        self.next_offset = next_offset
        self.min_offset = min_offset
        self.max_offset = max_offset
        self.body = body
        self.count = count
        self.reads_old_data = reads_old_data
        self.cold_bytes = cold_bytes


@dataclass(slots=True)
class ReadStatistics:
    """Plain counters for metrics and runtime information; they belong to the event loop's thread."""

    messages_got: int = 0
    bytes_got: int = 0
    cold_reads: int = 0
    cold_bytes: int = 0  # of the commit log, read in threads
    # The longest time from the request of messages to their end, whether from memory or from the disk.
    longest_read_seconds: float = field(default=0.0, compare=False)
