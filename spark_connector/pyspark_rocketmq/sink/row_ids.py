"""Ids of rows and messages: the row id, which is the same when a write is repeated, and unique keys.

Row ids have the form `queryId:batchId:partition:row`, unless the rows have a column `rowId`. When a query
writes a batch again after a failure, the rows get the same ids, provided that they come in the same order. A
consumer can drop rows whose id it has processed.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmq_remoting.host import local_address
from rmq_remoting.message_ids import UniqueKeyGenerator

ROW_ID_PROPERTY: Final = "SPARK_ROW_ID"

_COUNTS: Final = 1 << 16
_HEX: Final = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_HEX_DIGITS: Final = 4


@dataclass(frozen=True, slots=True)
class TaskId:
    """One task's part of a write. `query_id`: the query's id, or one that the driver made."""

    query_id: str
    batch_id: str
    partition: int

    def __str__(self) -> str:
        return f"{self.query_id}:{self.batch_id}:{self.partition}"

    def row(self, number: int) -> str:
        """Return the id of one row; `number` counts from 0 in the partition."""
        return f"{self}:{number}"

    def rows(self, first: int, count: int) -> Any:
        """Return the ids of consecutive rows, as an Arrow array of binary."""
        numbers = pc.cast(pa.array(np.arange(first, first + count)), pa.string()).cast(pa.binary())
        return pc.binary_join_element_wise(pa.scalar(f"{self}:".encode()), numbers, b"")


class UniqueKeys:
    """Unique keys for whole columns, in the SDK's format (Apache RocketMQ 5.3.3, MessageClientIDSetter).

    Up to 65,536 keys per millisecond are unique. A process needs a generator of its own, also after a fork.
    """

    def __init__(self, generator: UniqueKeyGenerator) -> None:
        self._generator = generator
        self._next = 0

    @staticmethod
    def of_this_process(process_id: int) -> UniqueKeys:
        """Return a generator whose keys differ from those of other processes."""
        address = local_address().strip("[]")
        return UniqueKeys(
            UniqueKeyGenerator(address, process_id, secrets.randbits(32), lambda: time.time_ns() // 1_000_000)
        )

    def take(self, count: int) -> Any:
        """Return the next keys, as an Arrow array of binary."""
        head = self._generator.next_key()[:-_HEX_DIGITS].encode()
        counts = (np.arange(self._next, self._next + count, dtype=np.int64) % _COUNTS).astype(np.uint16)
        self._next = (self._next + count) % _COUNTS
        width = len(head) + _HEX_DIGITS
        keys = np.empty((count, width), np.uint8)
        keys[:, : len(head)] = np.frombuffer(head, np.uint8)
        for digit in range(_HEX_DIGITS):
            keys[:, len(head) + digit] = _HEX[(counts >> (4 * (_HEX_DIGITS - 1 - digit))) & 15]
        return fixed_width(keys)


def fixed_width(cells: np.ndarray[Any, Any]) -> Any:
    """Return an Arrow array of binary from rows of bytes of the same width."""
    count, width = cells.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32) if width else np.zeros(count + 1, "i4")
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(cells))]
    )
