"""The bytes that a master and its replica exchange on the port of replication; no I/O.

Replica to master: log offsets of 8 bytes, the first one the offset to begin at, each later one how far the
replica has the log. Master to replica: transfers, each a head of 12 bytes (log offset, length) and that many
bytes of the log. Without bytes the head is a heartbeat. All numbers are big-endian.

Source: Apache RocketMQ 5.3.3, DefaultHAConnection, DefaultHAClient.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

_REPORT: Final = Struct(">q")
_HEAD: Final = Struct(">qi")
# Apache's replica reads into a buffer of 4 MiB, so no transfer is larger.
MAX_TRANSFER_BYTES: Final = 4 << 20
HEAD_BYTES: Final = _HEAD.size


class ReplicationProtocolError(Exception):
    """The peer sent bytes that are no replication protocol."""


class Transfer(NamedTuple):
    """Bytes of the master's log from `offset` on; a heartbeat if there are none."""

    offset: int
    data: bytes


def report(offset: int) -> bytes:
    """Encode a replica's log offset."""
    return _REPORT.pack(offset)


def transfer_head(offset: int, size: int) -> bytes:
    """Encode the head of a transfer of `size` bytes."""
    return _HEAD.pack(offset, size)


class ReportReader:
    """Decodes what a replica sends."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[int]:
        """Return the complete offsets. Raises ReplicationProtocolError."""
        data = self._rest + data
        whole = len(data) - len(data) % _REPORT.size
        self._rest = data[whole:]
        offsets = [offset for (offset,) in _REPORT.iter_unpack(data[:whole])]
        if any(offset < 0 for offset in offsets):
            raise ReplicationProtocolError(f"log offset {min(offsets)} is negative")
        return offsets


class TransferReader:
    """Decodes what a master sends."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Transfer]:
        """Return the complete transfers. Raises ReplicationProtocolError."""
        buffer = self._buffer
        if not buffer:
            transfers, position = _transfers(data)
            buffer += data[position:]
            return transfers
        buffer += data
        transfers, position = _transfers(buffer)
        del buffer[:position]
        return transfers


def _transfers(data: bytes | bytearray) -> tuple[list[Transfer], int]:
    """Return the complete transfers at the beginning of `data`, and where they end."""
    transfers: list[Transfer] = []
    position = 0
    while len(data) - position >= HEAD_BYTES:
        offset, size = _HEAD.unpack_from(data, position)
        if offset < 0 or not 0 <= size <= MAX_TRANSFER_BYTES:
            raise ReplicationProtocolError(
                f"a transfer of {size} bytes at log offset {offset}; the limit is {MAX_TRANSFER_BYTES}"
            )
        end = position + HEAD_BYTES + size
        if end > len(data):
            break
        transfers.append(Transfer(offset, bytes(data[position + HEAD_BYTES : end])))
        position = end
    return transfers, position
