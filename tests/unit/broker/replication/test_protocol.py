"""The bytes of replication, cut anywhere, and bytes that are no replication protocol."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_broker.replication.protocol import (
    MAX_TRANSFER_BYTES,
    ReplicationProtocolError,
    ReportReader,
    Transfer,
    TransferReader,
    report,
    transfer_head,
)

OFFSETS = st.integers(0, 2**63 - 1)
PIECES = st.lists(st.integers(1, 40), min_size=1)


def _pieces(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces: list[bytes] = []
    position = 0
    while position < len(data):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(data[position : position + size])
        position += size
    return pieces


@pytest.mark.hypothesis
@given(st.lists(OFFSETS, max_size=20), PIECES)
def test_reports_in_pieces(offsets: list[int], sizes: list[int]) -> None:
    reader = ReportReader()
    data = b"".join(report(offset) for offset in offsets)
    assert [offset for piece in _pieces(data, sizes) for offset in reader.feed(piece)] == offsets


@pytest.mark.hypothesis
@given(st.lists(st.tuples(OFFSETS, st.binary(max_size=60)), max_size=10), PIECES)
def test_transfers_in_pieces(transfers: list[tuple[int, bytes]], sizes: list[int]) -> None:
    reader = TransferReader()
    data = b"".join(transfer_head(offset, len(body)) + body for offset, body in transfers)
    found = [transfer for piece in _pieces(data, sizes) for transfer in reader.feed(piece)]
    assert found == [Transfer(offset, body) for offset, body in transfers]


def test_the_bytes_of_apaches_broker() -> None:
    """DefaultHAConnection: 8 bytes of offset, 4 bytes of length, then the log; DefaultHAClient: 8 bytes."""
    assert report(0x0102) == bytes.fromhex("0000000000000102")
    assert transfer_head(0x0102, 3) == bytes.fromhex("0000000000000102 00000003")


def test_a_negative_offset_is_refused() -> None:
    with pytest.raises(ReplicationProtocolError, match="-1 is negative"):
        ReportReader().feed(report(5) + report(-1))


@pytest.mark.parametrize(("offset", "size"), [(-1, 0), (0, -1), (0, MAX_TRANSFER_BYTES + 1)])
def test_an_impossible_transfer_is_refused(offset: int, size: int) -> None:
    with pytest.raises(ReplicationProtocolError, match=f"{size} bytes at log offset {offset}"):
        TransferReader().feed(transfer_head(offset, size))
