"""Client batches."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_remoting import message_batch
from rmq_remoting.message import Message
from rmq_remoting.message_batch import decode_batch, encode_batch
from rmq_remoting.message_errors import DecompressedTooLargeError, MessageDecodeError, MessageEncodeError
from rmq_remoting.message_properties import decode_properties, encode_properties
from tests.support.examples import examples
from tests.support.golden import json_lines
from tests.unit.remoting.message_samples import int_of_bits, properties

(GOLDEN,) = json_lines("wire/messages.jsonl", "client batch")


def message(body: bytes, flag: int, own: dict[str, str]) -> Message:
    built = Message("TopicBatch", body, flag=flag)
    built.properties = own
    return built


def test_golden_batch_decoded() -> None:
    items = decode_batch(bytes.fromhex(GOLDEN["hex"]))
    assert [
        {"flag": flag, "body_hex": body.hex(), "properties": decode_properties(raw)}
        for flag, body, raw in items
    ] == GOLDEN["decoded"]


def test_golden_batch_encoded() -> None:
    raw = bytes.fromhex(GOLDEN["hex"])
    # The rows' properties are sorted; the batch has them in the order of Java's map.
    messages = [
        message(bytes.fromhex(row["body_hex"]), row["flag"], decode_properties(item.raw_properties))
        for row, item in zip(GOLDEN["decoded"], decode_batch(raw), strict=True)
    ]
    assert [built.properties for built in messages] == [row["properties"] for row in GOLDEN["decoded"]]
    assert encode_batch(messages) == raw


def test_empty() -> None:
    assert encode_batch([]) == b""
    assert decode_batch(b"") == []


@given(st.lists(st.tuples(st.binary(max_size=30), int_of_bits(32), properties), max_size=5))
def test_round_trip(parts: list[tuple[bytes, int, dict[str, str]]]) -> None:
    items = decode_batch(encode_batch([message(*part) for part in parts]))
    assert items == [(flag, body, encode_properties(own)) for body, flag, own in parts]


@given(st.data())
@settings(max_examples=examples(300))
def test_damage_raises_the_typed_error(data: st.DataObject) -> None:
    raw = bytearray(bytes.fromhex(GOLDEN["hex"]))
    for bit in data.draw(st.lists(st.integers(0, len(raw) * 8 - 1), max_size=3)):
        raw[bit // 8] ^= 1 << bit % 8
    cut = data.draw(st.integers(0, len(raw)))
    try:
        items = decode_batch(bytes(raw[:cut]))
    except MessageDecodeError as error:
        assert error.position is not None
        assert 0 <= error.position < cut
    else:
        assert sum(22 + len(item.body) + len(item.raw_properties) for item in items) == cut


@given(st.binary(max_size=200))
def test_random_bytes(raw: bytes) -> None:
    try:
        decode_batch(raw)
    except MessageDecodeError as error:
        assert error.position is not None


@pytest.mark.parametrize(
    ("position", "field", "reason"),
    [
        (0, struct.pack(">i", 24), "take 31 bytes, its size says 24"),
        (16, struct.pack(">i", -1), "body of -1 bytes"),
        (16, struct.pack(">i", 99), "body of 99 bytes"),
        (21, struct.pack(">h", 99), "properties of 99 bytes"),
        (21, struct.pack(">h", -1), "properties of 65535 bytes"),
    ],
)
def test_damage_is_named(position: int, field: bytes, reason: str) -> None:
    good = encode_batch([Message("t", b"x", tags="ab")])
    damaged = good[:position] + field + good[position + len(field) :]
    with pytest.raises(MessageDecodeError, match=reason) as caught:
        decode_batch(good + damaged)
    assert caught.value.position == len(good)


def test_cut_anywhere_but_between_items() -> None:
    good = encode_batch([Message("t", b"x", tags="ab")])
    for length in range(1, len(good)):
        with pytest.raises(MessageDecodeError):
            decode_batch(good + good[:length])


def test_messages_of_a_batch_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_batch, "MAX_BATCH_MESSAGES", 3)
    batch = encode_batch([Message("t", b"x")] * 3)
    assert len(decode_batch(batch)) == 3
    with pytest.raises(DecompressedTooLargeError, match="more messages than the limit of 3"):
        decode_batch(batch + batch)


def test_a_message_that_does_not_fit_is_refused() -> None:
    with pytest.raises(MessageEncodeError, match="flag 2147483648"):
        encode_batch([Message("t", b"x", flag=1 << 31)])
    with pytest.raises(MessageEncodeError, match="the limit is 32767"):
        encode_batch([Message("t", b"x", properties={"p": "x" * 32767})])
