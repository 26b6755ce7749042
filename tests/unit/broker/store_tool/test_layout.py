"""One record of the log, compared with records encoded by Apache's classes."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_broker.store_tool.layout import BadRecord, crc32, inner_messages, read_record
from rmq_broker.store_tool.properties import all_properties
from rmq_remoting.message import MessageExt
from rmq_remoting.message_batch import encode_batch
from rmq_remoting.message_codec import decode_stored_message, encode_stored_message
from tests.support.golden import json_lines
from tests.support.rows import each_row

STORED = json_lines("wire/messages.jsonl", "stored message")


@each_row("row", STORED, ids=lambda row: row["name"])
def test_records_of_apache_are_read(row: dict[str, Any]) -> None:
    raw = bytes.fromhex(row["hex"])
    expected = decode_stored_message(raw, decompress_body=False)
    # The samples have arbitrary offsets: place each at its own offset.
    start = expected.physical_offset
    if expected.store_timestamp == 0:
        return  # a record that was never stored

    record = read_record(raw, 0, start)

    assert record.topic.decode() == expected.topic
    assert record.size == len(raw)
    assert (record.queue_id, record.queue_offset) == (expected.queue_id, expected.queue_offset)
    assert record.store_time_ms == expected.store_timestamp
    assert raw[record.body_at : record.body_at + record.body_bytes] == expected.body
    found = {name.decode(): value.decode() for name, value in all_properties(record.properties).items()}
    assert found == expected.properties


def a_record(**fields: Any) -> bytes:
    checksum = fields.pop("append_checksum", False)
    message = MessageExt(
        fields.pop("topic", "TopicA"),
        fields.pop("body", b"some body"),
        properties={"KEYS": "a"},
        store_timestamp=1_700_000_000_000,
        **fields,
    )
    return encode_stored_message(message, append_checksum=checksum)


@each_row(
    ("position", "content", "kind"),
    [
        (0, b"\x00\x00\x00\x10", "log.size"),
        (0, b"\x7f\x00\x00\x00", "log.size"),
        (4, b"\xda\xa3\x20\xa8", "log.magic"),
        (8, b"\x11\x22\x33\x44", "log.body_crc"),
        (12, b"\xff", "log.field"),
        (20, b"\xff", "log.field"),
        (28, b"\x01", "log.physical_offset"),
        (39, b"\x10", "log.lengths"),
        (52, b"\x01", "log.field"),
        (56, b"\x00" * 8, "log.field"),
        (76, b"\x01", "log.field"),
        (84, b"\x7f", "log.lengths"),
        (88, b"S", "log.body_crc"),
        (97, b"\x00", "log.lengths"),
        (97, b"\xff", "log.lengths"),
        (98, b"/", "log.topic"),
        (98, b"\xff", "log.topic"),
        (104, b"\x7f", "log.lengths"),
    ],
)
def test_each_invalid_field_is_named(position: int, content: bytes, kind: str) -> None:
    raw = bytearray(a_record())
    read_record(bytes(raw), 0, 0)
    raw[position : position + len(content)] = content

    with pytest.raises(BadRecord) as raised:
        read_record(bytes(raw), 0, 0)

    assert raised.value.kind == kind


def test_records_do_not_reach_beyond_the_file() -> None:
    raw = a_record()
    for length in range(len(raw)):
        with pytest.raises(BadRecord):
            read_record(raw[:length], 0, 0)


@given(st.data())
def test_every_bit_is_covered_by_a_records_own_checksum(data: st.DataObject) -> None:
    raw = bytearray(a_record(append_checksum=True))
    bit = data.draw(st.integers(0, len(raw) * 8 - 1))
    # A changed name of the property means that there is no checksum.
    if bit // 8 in range(len(raw) - 20, len(raw) - 11):
        return
    raw[bit // 8] ^= 1 << bit % 8

    with pytest.raises(BadRecord):
        read_record(bytes(raw), 0, 0)


@given(st.binary())
def test_the_crc_equals_that_of_zlib(content: bytes) -> None:
    assert crc32(content) == zlib.crc32(content)


def test_inner_batches_are_counted() -> None:
    batch = encode_batch([MessageExt("T", b"x" * length) for length in range(5)])

    assert [message.body for message in inner_messages(batch)] == [b"x" * length for length in range(5)]
    assert list(inner_messages(b"")) == []
    for length in range(1, len(batch)):
        try:
            assert len(list(inner_messages(batch[:length]))) < 5
        except BadRecord as bad:
            assert bad.kind == "log.inner_batch"
