"""Properties, compared with Apache's decoding and encoding."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmq_remoting.message_properties as properties_module
from rmq_remoting.message_errors import InvalidPropertyError, MessageEncodeError
from rmq_remoting.message_properties import (
    RESERVED_NAMES,
    check_property,
    check_user_property,
    decode_properties,
    encode_properties,
    find_property,
    properties_from_string,
    properties_to_string,
)
from tests.support.golden import json_file, json_lines
from tests.support.rows import each_row
from tests.unit.remoting.message_samples import properties

ENCODED = json_lines("wire/messages.jsonl", "properties encode")
DECODED = json_lines("wire/messages.jsonl", "properties decode")
CONSTANTS = json_file("wire/message_constants.json")


@each_row("row", ENCODED, ids=lambda row: repr(row["map"]))
def test_encode(row: dict[str, Any]) -> None:
    raw = bytes.fromhex(row["hex"])
    assert encode_properties(row["map"]) == raw
    assert decode_properties(raw) == row["decoded_again"]


@each_row("row", DECODED, ids=lambda row: row["hex"] or "empty")
def test_decode(row: dict[str, Any]) -> None:
    raw = bytes.fromhex(row["hex"])
    decoded = decode_properties(raw)
    assert decoded == row["decoded"]
    # Decoded properties are encoded in the normal form.
    assert decode_properties(encode_properties(decoded)) == decoded


@each_row("row", ENCODED + DECODED, ids=lambda row: row["hex"] or "empty")
def test_find_in_golden_rows(row: dict[str, Any]) -> None:
    raw = bytes.fromhex(row["hex"])
    expected = row["decoded"] if "decoded" in row else row["decoded_again"]
    for name in {*expected, "a", "b", "k", "x", "abcd", "empty", "missing"}:
        found = find_property(raw, name.encode())
        assert (found.decode() if found is not None else None) == expected.get(name)


def test_a_lone_surrogate_is_written_as_a_question_mark() -> None:
    assert encode_properties({"lone": "\ud83dx"}) == b"lone\x01?x\x02"


def test_malformed_utf8_is_read_as_the_replacement_character() -> None:
    assert decode_properties(b"a\x01\xff\x02b\x012\x02") == {"a": "\ufffd", "b": "2"}


def test_text_and_bytes_forms_agree() -> None:
    text = properties_to_string({"a": "1", "b": None, "c": "\u503c"})
    assert text == "a\x011\x02c\x01\u503c\x02"
    assert properties_from_string(text) == decode_properties(text.encode()) == {"a": "1", "c": "\u503c"}


def test_too_long() -> None:
    assert len(encode_properties({"p": "x" * 32764})) == 32767
    with pytest.raises(MessageEncodeError, match="32768 bytes, the limit is 32767"):
        encode_properties({"p": "x" * 32765})


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b"a\x011\x02", b"1"),
        (b"a\x011", b"1"),
        (b"a\x011\x02a\x012\x02", b"2"),
        (b"a\x011\x02a\x01\x02", b"1"),
        (b"a\x011\x02a\x01", b"1"),
        (b"ba\x011\x02", None),
        (b"x\x01a\x011\x02", None),
        (b"x\x01y\x02a\x011\x012\x02", b"1\x012"),
        (b"a\x02a\x01", None),
        (b"", None),
    ],
)
def test_find(raw: bytes, found: bytes | None) -> None:
    assert find_property(raw, b"a") == found


_raw = st.lists(st.sampled_from([b"a", b"aa", b"b", b"\x01", b"\x02", b"\xc3", b"\xa9"])).map(b"".join)


@given(_raw, st.sampled_from(["a", "aa", "b", "ab", "ba", "\u00e9"]))
def test_find_agrees_with_decode(raw: bytes, name: str) -> None:
    found = find_property(raw, name.encode())
    decoded = decode_properties(raw).get(name)
    assert (found.decode("utf-8", "replace") if found is not None else None) == decoded


@given(properties)
def test_round_trip(values: dict[str, str]) -> None:
    for name, value in values.items():
        check_property(name, value)
    raw = encode_properties(values)
    assert decode_properties(raw) == values
    assert list(decode_properties(raw)) == list(values)


@pytest.mark.parametrize(
    ("name", "value"),
    [("", "v"), ("n", ""), ("n\x01", "v"), ("n\x02", "v"), ("n", "v\x02"), ("n", 5), (5, "v"), ("n", None)],
)
def test_refused(name: Any, value: Any) -> None:
    with pytest.raises(InvalidPropertyError):
        check_property(name, value)


def test_reserved_names_are_for_the_system() -> None:
    check_user_property("shop", "7")
    with pytest.raises(InvalidPropertyError, match="'TAGS' is used by RocketMQ itself"):
        check_user_property("TAGS", "a")


def test_names_are_those_of_apache() -> None:
    names = {
        name: value for name, value in vars(properties_module).items() if name in CONSTANTS["MessageConst"]
    }
    assert names == CONSTANTS["MessageConst"]
    assert sorted(RESERVED_NAMES) == sorted(CONSTANTS["MessageConst.STRING_HASH_SET"])
