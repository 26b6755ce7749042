"""Java's string hash."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_remoting.java_hash import prefix_hash_code, string_hash_code, tags_code, utf8_hash_code
from tests.support.golden import json_file
from tests.support.rows import each_row

HASHES = json_file("hashes.json")
STRINGS = HASHES["string_hash_code"]


def text_of(row: dict[str, Any]) -> str:
    """The row's text from its code units: JSON has no form for a lone surrogate."""
    units = b"".join(unit.to_bytes(2, "big") for unit in row["utf16_code_units"])
    return units.decode("utf-16-be", "surrogatepass")


def by_definition(text: str) -> int:
    units = text.encode("utf-16-be", "surrogatepass")
    total = 0
    for index in range(0, len(units), 2):
        total = (total * 31 + int.from_bytes(units[index : index + 2], "big")) % (1 << 32)
    return total - (1 << 32) if total >= 1 << 31 else total


@each_row("row", STRINGS, ids=lambda row: ascii(row["string"]))
def test_golden_strings(row: dict[str, Any]) -> None:
    text = text_of(row)
    assert row["string"] in (text, None)
    assert string_hash_code(text) == row["hash"]
    if row["string"] is not None:
        assert utf8_hash_code(text.encode()) == row["hash"]


@pytest.mark.parametrize("row", HASHES["index_key_hash"], ids=lambda row: ascii(row["index_key"]))
def test_golden_index_keys_by_their_topic(row: dict[str, Any]) -> None:
    topic, separator, key = row["index_key"].partition("#")
    seed = prefix_hash_code(topic + separator)
    assert string_hash_code(key, seed) == utf8_hash_code(key.encode(), seed) == row["string_hash"]


@each_row("row", HASHES["tags_code"], ids=lambda row: ascii(row["tags"]))
def test_golden_tags(row: dict[str, Any]) -> None:
    assert tags_code(row["tags"]) == row["tagsCode"]


_texts = st.text(st.characters(), max_size=80)


@given(_texts)
def test_any_text(text: str) -> None:
    assert string_hash_code(text) == by_definition(text)


@given(st.text("abc09#", max_size=200))
def test_long_ascii(text: str) -> None:
    assert string_hash_code(text) == utf8_hash_code(text.encode()) == by_definition(text)


@given(st.text(max_size=40), st.text(max_size=80))
def test_continues_a_prefix(prefix: str, rest: str) -> None:
    whole = by_definition(prefix + rest)
    assert string_hash_code(rest, string_hash_code(prefix)) == whole
    assert utf8_hash_code(rest.encode(), prefix_hash_code(prefix)) == whole


def test_malformed_utf8_counts_as_replacement_characters() -> None:
    assert utf8_hash_code(b"a\xff") == by_definition("a\ufffd")
