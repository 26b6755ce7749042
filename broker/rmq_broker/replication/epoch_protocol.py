"""The bytes that master and replica exchange in a group with a controller; no I/O.

Both ends say what they are doing with each message: HANDSHAKE or TRANSFER.

- Replica to master, first: state, flags, its broker id. Then: state, log offset, as in `protocol.py`.
- Master to replica, first: state, size of the body, end of its log, newest epoch, and as body all its epochs.
  Then transfers: state, size, log offset, epoch and its first offset, confirmed offset, and bytes of the log.
  All bytes of a transfer are of one epoch.

All numbers are big-endian. Source: Apache RocketMQ 5.3.3, AutoSwitchHAConnection, AutoSwitchHAClient.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from ..store.api import Epoch
from .protocol import MAX_TRANSFER_BYTES, ReplicationProtocolError, Transfer

_STATE: Final = Struct(">i")
_REPLICA_HANDSHAKE: Final = Struct(">ihhq")
_REPLICA_REPORT: Final = Struct(">iq")
_MASTER_HANDSHAKE: Final = Struct(">iiqi")
_MASTER_TRANSFER: Final = Struct(">iiqiqq")
_EPOCH: Final = Struct(">iq")
TRANSFER_HEAD_BYTES: Final = _MASTER_TRANSFER.size
# Apache's master has a buffer for 1000 epochs.
_MAX_EPOCHS: Final = 100_000


class State(IntEnum):
    """What an end of the connection is doing (HAConnectionState)."""

    READY = 0
    HANDSHAKE = 1
    TRANSFER = 2


class ReplicaHandshake(NamedTuple):
    """A replica introduces itself.

    from_last_file   without a log it wants the master's last file alone
    is_learner       it never joins the in-sync set
    """

    from_last_file: bool
    is_learner: bool
    broker_id: int


class MasterHandshake(NamedTuple):
    """The master's epochs, and where its log ends."""

    log_end: int
    epochs: tuple[Epoch, ...]


class EpochTransfer(NamedTuple):
    """Bytes of the master's log from `offset` on, of one epoch; a heartbeat if there are none.

    `confirmed`: consumers may see the log up to this offset.
    """

    offset: int
    data: bytes
    epoch: Epoch
    confirmed: int

    @property
    def plain(self) -> Transfer:
        """The transfer without what a controller needs."""
        return Transfer(self.offset, self.data)


def replica_handshake(handshake: ReplicaHandshake) -> bytes:
    """Encode a replica's first message."""
    return _REPLICA_HANDSHAKE.pack(State.HANDSHAKE, *handshake)


def replica_report(offset: int) -> bytes:
    """Encode a replica's log offset."""
    return _REPLICA_REPORT.pack(State.TRANSFER, offset)


def master_handshake(log_end: int, epochs: Sequence[Epoch]) -> bytes:
    """Encode the master's answer to a handshake."""
    body = b"".join(_EPOCH.pack(*epoch) for epoch in epochs)
    newest = epochs[-1].number if epochs else -1
    return _MASTER_HANDSHAKE.pack(State.HANDSHAKE, len(body), log_end, newest) + body


def transfer_head(offset: int, size: int, epoch: Epoch, confirmed: int) -> bytes:
    """Encode the head of a transfer of `size` bytes."""
    return _MASTER_TRANSFER.pack(State.TRANSFER, size, offset, *epoch, confirmed)


class ReplicaReader:
    """Decodes what a replica sends."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[ReplicaHandshake | int]:
        """Return the complete handshakes and log offsets, in order. Raises ReplicationProtocolError."""
        data, position = self._rest + data, 0
        messages: list[ReplicaHandshake | int] = []
        while len(data) - position >= _STATE.size:
            state = _state(data, position)
            layout = _REPLICA_HANDSHAKE if state is State.HANDSHAKE else _REPLICA_REPORT
            if len(data) - position < layout.size:
                break
            _, *values = layout.unpack_from(data, position)
            position += layout.size
            if state is State.HANDSHAKE:
                from_last_file, is_learner, broker_id = values
                messages.append(ReplicaHandshake(from_last_file == 1, is_learner == 1, broker_id))
                continue
            (offset,) = values
            if offset < 0:
                raise ReplicationProtocolError(f"log offset {offset} is negative")
            messages.append(offset)
        self._rest = data[position:]
        return messages


class MasterReader:
    """Decodes what a master sends."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[MasterHandshake | EpochTransfer]:
        """Return the complete messages. Raises ReplicationProtocolError."""
        buffer = self._buffer
        buffer += data
        messages: list[MasterHandshake | EpochTransfer] = []
        position = 0
        while len(buffer) - position >= _STATE.size:
            read = _read_handshake if _state(buffer, position) is State.HANDSHAKE else _read_transfer
            found = read(buffer, position)
            if found is None:
                break
            message, position = found
            messages.append(message)
        del buffer[:position]
        return messages


def _state(data: bytes | bytearray, position: int) -> State:
    (number,) = _STATE.unpack_from(data, position)
    if number not in (State.HANDSHAKE, State.TRANSFER):
        raise ReplicationProtocolError(
            f"{number} is neither a handshake nor a transfer. Is this a broker without a controller "
            "(enableControllerMode)?"
        )
    return State(number)


def _read_handshake(buffer: bytearray, position: int) -> tuple[MasterHandshake, int] | None:
    """Return the handshake and where it ends; None if it is not complete."""
    begin = position + _MASTER_HANDSHAKE.size
    if begin > len(buffer):
        return None
    _, size, log_end, _ = _MASTER_HANDSHAKE.unpack_from(buffer, position)
    if size < 0 or size % _EPOCH.size or size > _MAX_EPOCHS * _EPOCH.size:
        raise ReplicationProtocolError(f"a handshake with {size} bytes of epochs")
    if begin + size > len(buffer):
        return None
    epochs = tuple(
        Epoch(*values) for values in _EPOCH.iter_unpack(memoryview(buffer)[begin : begin + size].tobytes())
    )
    # Apache's master has the end -1 while its log has no file.
    return MasterHandshake(max(log_end, 0), epochs), begin + size


def _read_transfer(buffer: bytearray, position: int) -> tuple[EpochTransfer, int] | None:
    """Return the transfer and where it ends; None if it is not complete."""
    begin = position + _MASTER_TRANSFER.size
    if begin > len(buffer):
        return None
    _, size, offset, number, start, confirmed = _MASTER_TRANSFER.unpack_from(buffer, position)
    if not 0 <= size <= MAX_TRANSFER_BYTES or (size and offset < 0):
        raise ReplicationProtocolError(
            f"a transfer of {size} bytes at log offset {offset}; the limit is {MAX_TRANSFER_BYTES}"
        )
    if begin + size > len(buffer):
        return None
    return EpochTransfer(
        offset, bytes(buffer[begin : begin + size]), Epoch(number, start), confirmed
    ), begin + size
