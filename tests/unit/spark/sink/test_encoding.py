"""Rows encoded as batch items: the same bytes as by the protocol's codec."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.sink.encoding import MAX_BODY_BYTES
from rmq_remoting.message import Message
from rmq_remoting.message_batch import encode_batch
from rmq_remoting.message_properties import decode_properties
from tests.unit.spark.sink.samples import encode, rows


@given(st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=30))
def test_items_equal_those_of_the_protocol_codec(bodies: list[bytes]) -> None:
    encoded = encode(rows(body=bodies, tags=[f"t{len(body)}" for body in bodies]))
    expected = []
    for body, raw in zip(bodies, encoded.properties.to_pylist(), strict=True):
        message = Message("T", body)
        message.properties = decode_properties(raw)
        expected.append(encode_batch([message]))
    assert encoded.items.to_pylist() == expected


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_bodies_may_be_strings(kind: pa.DataType) -> None:
    bodies = (
        pa.array(["ü", "x"]).cast(kind)
        if pa.types.is_string(kind)
        else pa.array(["ü".encode(), b"x"]).cast(kind)
    )
    assert encode(rows(body=bodies)).bodies.to_pylist() == ["ü".encode(), b"x"]


def test_rows_without_body_or_topic_are_rejected() -> None:
    encoded = encode(rows(body=[b"a", None, b"", b"d"], topic=["T", "T", "T", None]), topic=None)
    assert {row: reason.split(":")[0] for row, reason in encoded.rejected.reasons.items()} == {
        1: "its body is null",
        2: "its body is empty",
        3: "its topic is null",
    }
    assert encoded.rejected.accepted(4).tolist() == [True, False, False, False]


def test_bodies_larger_than_a_frame_are_rejected() -> None:
    encoded = encode(rows(body=[bytes(MAX_BODY_BYTES), bytes(MAX_BODY_BYTES + 1)]))
    assert list(encoded.rejected.reasons) == [1]
    assert str(MAX_BODY_BYTES + 1) in encoded.rejected.reasons[1]


def test_option_topic_overrides_the_column() -> None:
    encoded = encode(rows(body=[b"a"], topic=["U"]), topic="T")
    assert [encoded.topics[code] for code in encoded.topic_codes] == ["T"]


def test_rows_that_cannot_be_batched() -> None:
    batch = rows(body=[b"small", b"x" * 100, b"y" * 3000, b"r"], topic=["T", "T", "T", "%RETRY%g"])
    assert encode(batch, topic=None).unbatched.tolist() == [False, False, False, True]
    assert encode(batch, topic=None, compress_from_bytes=100).unbatched.tolist() == [False, True, True, True]
    assert encode(batch, topic=None, batch_bytes=1024).unbatched.tolist() == [False, False, True, True]
