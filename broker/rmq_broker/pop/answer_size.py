"""Limits of one response to a pop: a number of messages, and the size of a frame."""

from __future__ import annotations

from dataclasses import replace
from struct import Struct
from typing import Final

from rmq_remoting.framing import MAX_FRAME_BYTES

from ..store.api import GetResult

# Limit of messages per request (Apache RocketMQ 5.3.3, PopMessageProcessor).
MAX_MESSAGES: Final = 32
# The rest of a frame is for the header, and for the receipts of messages from a retry topic. (Not `Final`:
# tests use less.)
MAX_ANSWER_BYTES: int = MAX_FRAME_BYTES - 64 * 1024

_unpack_int32: Final = Struct(">i").unpack_from
_unpack_int64: Final = Struct(">q").unpack_from
_QUEUE_OFFSET_AT: Final = 20


def records_of(body: bytes) -> list[tuple[int, bytes]]:
    """Return the records in a read body, each with its offset in the queue."""
    records: list[tuple[int, bytes]] = []
    position = 0
    while position < len(body):
        (size,) = _unpack_int32(body, position)
        (queue_offset,) = _unpack_int64(body, position + _QUEUE_OFFSET_AT)
        records.append((queue_offset, body[position : position + size]))
        position += size
    return records


def fitting(result: GetResult, size_bytes: int) -> GetResult | None:
    """Return the part of a result that fits into a response of `size_bytes` so far; None if none fits.

    The first message of a response always fits, however large it is.
    """
    if size_bytes + len(result.body) <= MAX_ANSWER_BYTES:
        return result
    taken = 0
    for count, (queue_offset, record) in enumerate(records_of(result.body)):
        total = size_bytes + taken + len(record)
        if total > MAX_ANSWER_BYTES and total > len(record):
            if not taken:
                return None
            return replace(result, body=result.body[:taken], count=count, next_offset=queue_offset)
        taken += len(record)
    return result
