"""Offsets by queue: strict parsing, serialization and arithmetic."""

from __future__ import annotations

import json
import pickle
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.errors import BadOffsets
from pyspark_rocketmq.offsets import (
    EARLIEST,
    LATEST,
    MAX_OFFSET,
    MAX_QUEUE_ID,
    QueueKey,
    QueueOffsets,
    by_broker,
    by_queue,
    parse_json,
)
from tests.support.rows import each_row

from .samples import keys, near_keys, offsets, offsets_of, queue


@given(offsets_of(keys) | offsets_of(near_keys))
def test_json_round_trip(values: QueueOffsets) -> None:
    assert QueueOffsets.from_json(values.to_json()) == values
    assert QueueOffsets.from_nested(values.to_nested()) == values
    # Spark serializes the nested form itself.
    assert json.dumps(values.to_nested(), separators=(",", ":")) == values.to_json()
    assert pickle.loads(pickle.dumps(values)) == values


@given(offsets_of(near_keys), st.randoms())
def test_equal_offsets_have_equal_texts(values: QueueOffsets, random: Random) -> None:
    shuffled = list(values.items())
    random.shuffle(shuffled)
    again = QueueOffsets(shuffled)
    assert again == values
    assert again.to_json() == values.to_json()
    assert hash(again) == hash(values)


def test_text_is_sorted_by_topic_broker_and_queue() -> None:
    values = QueueOffsets(
        {
            QueueKey("b", "x", 10): 4,
            QueueKey("b", "x", 9): 3,
            QueueKey("a", "y", 0): 2,
            QueueKey("a", "x", 0): MAX_OFFSET,
        }
    )
    assert (
        values.to_json() == f'{{"a":{{"x":{{"0":{MAX_OFFSET}}},"y":{{"0":2}}}},"b":{{"x":{{"9":3,"10":4}}}}}}'
    )
    assert [str(key) for key in values] == ["a/x/0", "a/y/0", "b/x/9", "b/x/10"]
    assert repr(QueueOffsets()) == "QueueOffsets({})"


@each_row(
    ("text", "complaint"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("{} {}", "not JSON"),
        ('{"t":{"b":{"0":NaN}}}', "not JSON: NaN"),
        ("[" * 100_000, "not JSON"),
        ('{"t":{"b":{"0":' + "9" * 5000 + "}}}", "not JSON"),
        ("[]", "at the top: [] is not an object by topic"),
        ("3", "at the top: 3 is not an object by topic"),
        ('{"t":3}', "at t: 3 is not an object by broker"),
        ('{"":{}}', "at the top: '' is not the name of a topic"),
        ('{"t":{"":{}}}', "at t: '' is not the name of a broker"),
        ('{"t":{"b":null}}', "at t/b: None is not an object by queue"),
        ('{"t":{"b":[1]}}', "at t/b: [1] is not an object by queue"),
        ('{"t":{"b":{"x":1}}}', "at t/b: 'x' is not a queue number"),
        ('{"t":{"b":{"-1":1}}}', "at t/b: '-1' is not a queue number"),
        ('{"t":{"b":{"01":1}}}', "at t/b: '01' is not a queue number"),
        ('{"t":{"b":{"１":1}}}', "at t/b: '１' is not a queue number"),
        ('{"t":{"b":{"2147483648":1}}}', "at t/b: '2147483648' is not a queue number"),
        ('{"t":{"b":{"0":"1"}}}', "at t/b/0: '1' is not an offset"),
        ('{"t":{"b":{"0":1.0}}}', "at t/b/0: 1.0 is not an offset"),
        ('{"t":{"b":{"0":true}}}', "at t/b/0: True is not an offset"),
        ('{"t":{"b":{"0":-1}}}', "at t/b/0: -1 is not an offset, which is a whole number from 0"),
        ('{"t":{"b":{"0":9223372036854775808}}}', "at t/b/0: 9223372036854775808 is not an offset"),
        ('{"t":{"b":{"0":1,"0":2}}}', "duplicate names in one object: 0"),
        ('{"t":{},"t":{}}', "duplicate names in one object: t"),
    ],
)
def test_invalid_text_is_rejected_with_the_position_of_the_error(text: str, complaint: str) -> None:
    with pytest.raises(BadOffsets) as refusal:
        QueueOffsets.from_json(text)
    assert complaint in str(refusal.value)
    assert len(str(refusal.value)) < 600


def test_placeholders_are_for_options_only() -> None:
    text = '{"t":{"b":{"0":-2,"1":-1,"2":7}}}'
    values = QueueOffsets.from_json(text, least=EARLIEST)
    assert list(values.values()) == [EARLIEST, LATEST, 7]
    with pytest.raises(BadOffsets, match="-2 is not an offset"):
        QueueOffsets.from_json(text)
    with pytest.raises(BadOffsets, match=r"-2 is not an offset, which is -1 \(latest\) or a whole number"):
        QueueOffsets.from_json(text, least=LATEST)
    with pytest.raises(BadOffsets, match=r"-3 is not an offset, which is -2 \(earliest\), -1 \(latest\) or"):
        QueueOffsets.from_json('{"t":{"b":{"0":-3}}}', least=EARLIEST)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=3), st.lists, max_leaves=5))
def test_any_json_is_parsed_or_rejected(nested: object) -> None:
    for wrapped in (nested, {"t": nested}, {"t": {"b": nested}}, {"t": {"b": {"0": nested}}}):
        try:
            QueueOffsets.from_nested(wrapped)
        except BadOffsets:
            continue


def test_other_leaf_values_by_queue_or_broker() -> None:
    nested = parse_json('{"t":{"b":{"2147483647":"x"},"c":{}}}')
    assert by_queue(nested, str) == {QueueKey("t", "b", MAX_QUEUE_ID): "x"}
    assert list(by_broker(nested)) == [("t", "b", {"2147483647": "x"}), ("t", "c", {})]


def test_offsets_are_an_immutable_mapping() -> None:
    values = offsets(3, 0)
    assert dict(values) == {queue(0): 3, queue(1): 0}
    assert len(values) == 2
    assert queue(2) not in values
    assert not hasattr(values, "__setitem__")
    assert values == {queue(0): 3, queue(1): 0}


def test_arithmetic() -> None:
    start, latest = offsets(3, 5, 9, 4), QueueOffsets({queue(0): 10, queue(1): 5, queue(2): 8, queue(7): 1})
    assert start.backlog(latest) == {queue(0): 7}
    assert start.ahead_of(latest) == (queue(2),)
    assert start.merged(latest) == QueueOffsets(
        {queue(0): 10, queue(1): 5, queue(2): 8, queue(3): 4, queue(7): 1}
    )
    assert start.only(lambda key: key.queue_id < 2) == offsets(3, 5)
    assert start == offsets(3, 5, 9, 4)
