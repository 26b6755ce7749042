"""The bytes of a group with a controller, as Apache RocketMQ 5.3.3 lays them out."""

from __future__ import annotations

import pytest

from rmq_broker.replication.epoch_protocol import (
    EpochTransfer,
    MasterHandshake,
    MasterReader,
    ReplicaHandshake,
    ReplicaReader,
    master_handshake,
    replica_handshake,
    replica_report,
    transfer_head,
)
from rmq_broker.replication.protocol import MAX_TRANSFER_BYTES, ReplicationProtocolError, Transfer
from rmq_broker.store.api import Epoch

_EPOCHS = (Epoch(1, 0), Epoch(3, 4096))

# AutoSwitchHAClient: state, isSyncFromLastFile, isAsyncLearner, slaveBrokerId; state, maxOffset.
_OF_REPLICA = [
    (ReplicaHandshake(True, False, 2), "00000001 0001 0000 0000000000000002"),
    (ReplicaHandshake(False, True, 258), "00000001 0000 0001 0000000000000102"),
    (0, "00000002 0000000000000000"),
    (4097, "00000002 0000000000001001"),
]
# AutoSwitchHAConnection: state, bodySize, offset, epoch, entries; besides epochStartOffset, confirmOffset.
_OF_MASTER = [
    (
        MasterHandshake(8192, _EPOCHS),
        "00000001 00000018 0000000000002000 00000003 00000001 0000000000000000 00000003 0000000000001000",
    ),
    (MasterHandshake(0, ()), "00000001 00000000 0000000000000000 ffffffff"),
    (
        EpochTransfer(4096, b"abc", Epoch(3, 4096), 4000),
        "00000002 00000003 0000000000001000 00000003 0000000000001000 0000000000000fa0 616263",
    ),
    (
        EpochTransfer(8192, b"", Epoch(3, 4096), 8192),
        "00000002 00000000 0000000000002000 00000003 0000000000001000 0000000000002000",
    ),
]


def _encode_master(message: MasterHandshake | EpochTransfer) -> bytes:
    if isinstance(message, MasterHandshake):
        return master_handshake(message.log_end, message.epochs)
    offset, data, epoch, confirmed = message
    return transfer_head(offset, len(data), epoch, confirmed) + data


@pytest.mark.parametrize(("message", "golden"), _OF_REPLICA)
def test_a_message_of_the_replica_is_as_apaches(message: ReplicaHandshake | int, golden: str) -> None:
    encoded = replica_handshake(message) if isinstance(message, ReplicaHandshake) else replica_report(message)
    assert encoded == bytes.fromhex(golden)


@pytest.mark.parametrize(("message", "golden"), _OF_MASTER)
def test_a_message_of_the_master_is_as_apaches(message: MasterHandshake | EpochTransfer, golden: str) -> None:
    assert _encode_master(message) == bytes.fromhex(golden)


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_messages_are_decoded_however_they_are_cut(step: int) -> None:
    for reader, examples in ((ReplicaReader(), _OF_REPLICA), (MasterReader(), _OF_MASTER)):
        data = b"".join(bytes.fromhex(golden) for _, golden in examples)
        found: list[object] = []
        for begin in range(0, len(data), step):
            found += reader.feed(data[begin : begin + step])
        assert found == [message for message, _ in examples]


def test_a_transfer_without_its_epoch_is_a_plain_one() -> None:
    assert EpochTransfer(5, b"x", Epoch(1, 0), 3).plain == Transfer(5, b"x")


def test_an_empty_log_of_apaches_master_ends_at_zero() -> None:
    (told,) = MasterReader().feed(bytes.fromhex("00000001 00000000 ffffffffffffffff ffffffff"))
    assert told == MasterHandshake(0, ())


def test_a_heartbeat_of_apaches_master_without_a_log_has_no_offset() -> None:
    (beat,) = MasterReader().feed(transfer_head(-1, 0, Epoch(1, 0), -1))
    assert beat == EpochTransfer(-1, b"", Epoch(1, 0), -1)


@pytest.mark.parametrize(
    "data",
    [
        bytes.fromhex("00000000 0000000000000000"),  # the state READY
        bytes.fromhex("00000007 0000000000000000"),
        bytes.fromhex("00000002 ffffffffffffffff"),
    ],
)
def test_a_replica_that_speaks_otherwise_is_refused(data: bytes) -> None:
    with pytest.raises(ReplicationProtocolError):
        ReplicaReader().feed(data)


@pytest.mark.parametrize(
    "data",
    [
        bytes(12),
        bytes.fromhex("00000001 00000005 0000000000000000 00000001"),  # a part of an epoch
        bytes.fromhex("00000001 ffffffff 0000000000000000 00000001"),
        transfer_head(0, MAX_TRANSFER_BYTES + 1, Epoch(1, 0), 0),
        transfer_head(-1, 1, Epoch(1, 0), 0),
    ],
)
def test_a_master_that_speaks_otherwise_is_refused(data: bytes) -> None:
    with pytest.raises(ReplicationProtocolError):
        MasterReader().feed(data)
