"""Columns encoded as properties, and rows rejected for their properties."""

from __future__ import annotations

import datetime
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_remoting.message_properties import decode_properties
from tests.support.rows import each_row
from tests.unit.spark.sink.samples import STRING_MAP, encode, rows

_OWN = {"SPARK_ROW_ID", "UNIQ_KEY"}
_BODIES = [b"a", b"b", b"c"]


def _decoded(**columns: Any) -> list[dict[str, str]]:
    """Return the properties of each row, without those that every row has."""
    encoded = encode(rows(body=[b"x"] * len(next(iter(columns.values()))), **columns))
    assert not encoded.rejected.reasons
    found = [decode_properties(raw) for raw in encoded.properties.to_pylist()]
    return [{name: value for name, value in one.items() if name not in _OWN} for one in found]


def _reasons(**columns: Any) -> dict[int, str]:
    return encode(rows(body=[b"x"] * len(next(iter(columns.values()))), **columns)).rejected.reasons


def test_every_row_has_a_row_id_and_a_unique_key() -> None:
    raw = encode(rows(body=_BODIES), first_row=5).properties.to_pylist()
    assert [decode_properties(one)["SPARK_ROW_ID"] for one in raw] == [
        f"query:7:3:{row}" for row in (5, 6, 7)
    ]
    assert len({decode_properties(one)["UNIQ_KEY"] for one in raw}) == 3


def test_row_ids_of_a_column_replace_those_of_the_write() -> None:
    encoded = encode(rows(body=[b"x"] * 4, rowId=["order-1", None, "", "a\x02b"]), first_row=5)
    assert list(encoded.rejected.reasons) == [3]
    found = [decode_properties(raw)["SPARK_ROW_ID"] for raw in encoded.properties.to_pylist()]
    assert found == ["order-1", "query:7:3:6", "query:7:3:7", "query:7:3:8"]
    assert encoded.ids.to_pylist() == [each.encode() for each in found]


def test_tags_and_keys_as_strings() -> None:
    found = _decoded(tags=["paid", None, ""], keys=["1 2", "", None])
    assert found == [{"TAGS": "paid", "KEYS": "1 2"}, {}, {}]


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.string()),
        pa.list_(pa.field("element", pa.string(), nullable=False)),
        pa.large_list(pa.large_string()),
    ],
)
def test_keys_as_arrays(kind: pa.DataType) -> None:
    assert _decoded(keys=pa.array([["1", "2"], [], None], kind)) == [{"KEYS": "1 2"}, {}, {}]


def test_properties_keep_the_order_of_the_map() -> None:
    maps = pa.array([[("a", "1"), ("ü", "☃=2")], None, [], [("b", None), ("c", "3")]], STRING_MAP)
    assert _decoded(properties=maps) == [{"a": "1", "ü": "☃=2"}, {}, {}, {"c": "3"}]


def test_maps_with_non_nullable_values() -> None:
    kind = pa.map_(pa.large_string(), pa.field("value", pa.large_string(), nullable=False))
    assert _decoded(properties=pa.array([[("a", "1")], []], kind)) == [{"a": "1"}, {}]


def test_slice_of_a_map_column() -> None:
    maps = pa.array([[("n", str(number))] * (number % 3 > 0) for number in range(20)], STRING_MAP)
    whole = rows(body=[b"x"] * 20, properties=maps)
    encoded = encode(whole.slice(7, 5))
    found = [decode_properties(raw).get("n") for raw in encoded.properties.to_pylist()]
    assert found == ["7", "8", None, "10", "11"]


def test_reserved_names_in_the_map_are_ignored() -> None:
    one = [("UNIQ_KEY", "old"), ("DELAY", "3"), ("CLUSTER", "c"), ("SPARK_ROW_ID", "old"), ("mine", "1")]
    maps = pa.array([[*one, ("TAGS", "t"), ("KEYS", "k")]], STRING_MAP)
    assert _decoded(properties=maps) == [{"mine": "1", "TAGS": "t", "KEYS": "k"}]
    assert _decoded(properties=maps, tags=["other"]) == [{"mine": "1", "TAGS": "other", "KEYS": "k"}]
    raw = encode(rows(body=[b"x"], properties=maps)).properties[0].as_py()
    assert raw.count(b"UNIQ_KEY\x01") == 1


def test_sharding_key_is_sent_as_property() -> None:
    assert _decoded(shardingKey=["order-1", None]) == [{"__SHARDINGKEY": "order-1"}, {}]


def test_delay_levels() -> None:
    levels = pa.array([3, 0, None], pa.int32())
    assert _decoded(delayTimeLevel=levels) == [{"DELAY": "3"}, {}, {}]
    assert encode(rows(body=_BODIES, delayTimeLevel=levels)).unbatched.tolist() == [True, False, False]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1_700_000_000_123, None]),
        pa.array(
            [datetime.datetime(2023, 11, 14, 22, 13, 20, 123_999, datetime.UTC), None],
            pa.timestamp("us", "UTC"),
        ),
    ],
)
def test_delivery_times_as_milliseconds_or_timestamps(column: pa.Array) -> None:
    assert _decoded(deliverTimestamp=column) == [{"TIMER_DELIVER_MS": "1700000000123"}, {}]


@each_row(
    ("columns", "said"),
    [
        ({"tags": ["a", "b\x02c"]}, "its TAGS contain"),
        ({"keys": ["a", "b\x02c"]}, "its KEYS contain"),
        ({"keys": [["a"], ["b", "c d"]]}, "contains a space"),
        ({"keys": [["a"], ["b", ""]]}, "null, empty"),
        ({"keys": [["a"], ["b", None]]}, "null, empty"),
        (
            {"properties": pa.array([[("a", "1")], [("a", "1"), ("b\x01", "2")]], STRING_MAP)},
            r"property 'b\\x01'",
        ),
        ({"properties": pa.array([None, [("a", "1"), ("b", "\x02")]], STRING_MAP)}, "property 'b'"),
        ({"properties": pa.array([[], [("b", "")]], STRING_MAP)}, "empty"),
        ({"properties": pa.array([[], [("", "b")]], STRING_MAP)}, "empty"),
        ({"properties": pa.array([[("n", "v" * 32_000)], [("n", "v" * 32_700)]], STRING_MAP)}, "more than"),
        ({"delayTimeLevel": pa.array([1, -1], pa.int32())}, "below 0"),
        ({"deliverTimestamp": pa.array([1, -1])}, "before 1970"),
    ],
)
def test_rows_that_cannot_be_encoded_are_rejected(columns: dict[str, Any], said: str) -> None:
    reasons = _reasons(**columns)
    assert list(reasons) == [1]
    assert re.search(said, reasons[1])


_TEXTS = st.text(
    st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=8
)
_MAPS = st.one_of(st.none(), st.dictionaries(_TEXTS.map(lambda text: f"n{text}"), _TEXTS, max_size=4))


@given(st.lists(_MAPS, min_size=1, max_size=20))
def test_any_map_survives_a_round_trip(maps: list[dict[str, str] | None]) -> None:
    column = pa.array([None if one is None else list(one.items()) for one in maps], STRING_MAP)
    assert _decoded(properties=column) == [one or {} for one in maps]
