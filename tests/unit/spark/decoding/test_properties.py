"""Properties of many messages, compared with the results of Apache's decoder for each message."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.columns import arrow_schema
from pyspark_rocketmq.decoding.properties import as_texts, split_properties
from rmq_remoting.message_properties import decode_properties
from tests.support.golden import json_lines
from tests.support.rows import each_row
from tests.unit.spark.decoding.stored_records import raw_properties

GOLDEN = json_lines("wire/messages.jsonl", "properties decode")
MAP_TYPE = arrow_schema(["properties"]).field(0).type


def maps(raws: list[bytes]) -> list[list[tuple[str, str]]]:
    array = split_properties(pa.array(raws, pa.binary())).as_map(MAP_TYPE)
    array.validate(full=True)
    return [list(entries) for entries in array.to_pylist()]


def values(raws: list[bytes], name: bytes) -> list[str | None]:
    texts: list[str | None] = split_properties(pa.array(raws, pa.binary())).values_of(name).to_pylist()
    return texts


@each_row("row", GOLDEN, ids=lambda row: row["hex"])
def test_equals_apaches_parser(row: dict[str, Any]) -> None:
    (entries,) = maps([bytes.fromhex(row["hex"])])
    assert dict(entries) == row["decoded"]
    assert len(entries) == len(row["decoded"])


def test_all_golden_properties_together() -> None:
    found = maps([bytes.fromhex(row["hex"]) for row in GOLDEN])
    assert [dict(entries) for entries in found] == [row["decoded"] for row in GOLDEN]


@given(st.lists(raw_properties, max_size=8))
def test_equals_parsing_one_by_one(raws: list[bytes]) -> None:
    expected = [decode_properties(raw) for raw in raws]
    assert maps(raws) == [list(properties.items()) for properties in expected]
    for name in ("TAGS", "KEYS", "UNIQ_KEY", "a"):
        assert values(raws, name.encode()) == [properties.get(name) for properties in expected]
    texts = as_texts(pa.array(raws, pa.binary())).to_pylist()
    assert texts == [raw.decode("utf-8", "replace") for raw in raws]


def test_last_value_of_a_repeated_name_wins() -> None:
    assert maps([b"a\x011\x02b\x012\x02a\x013\x02"]) == [[("a", "3"), ("b", "2")]]
    assert values([b"a\x011\x02b\x012\x02a\x013\x02"], b"a") == ["3"]


def test_names_with_the_same_first_bytes_are_not_repeated() -> None:
    raw = b"TRACE_ON1\x01a\x02TRACE_ON2\x01b\x02TRACE_ON\x01c\x02"
    assert maps([raw, raw]) == [[("TRACE_ON1", "a"), ("TRACE_ON2", "b"), ("TRACE_ON", "c")]] * 2
    assert values([raw], b"TRACE_ON") == ["c"]


def test_names_with_zero_bytes_are_distinct() -> None:
    assert values([b"TAGS\x00\x01a\x02"], b"TAGS") == [None]


def test_slice_of_a_longer_array() -> None:
    array = pa.array([b"a\x011\x02", b"a\x012\x02", b"a\x013"], pa.binary())[1:]
    assert split_properties(array).values_of(b"a").to_pylist() == ["2", "3"]
