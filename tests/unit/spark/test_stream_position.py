"""The checkpoint of a stream: offsets, and queues that have left it."""

from __future__ import annotations

import json

import pytest

from pyspark_rocketmq.errors import BadOffsets
from pyspark_rocketmq.offsets import QueueKey, QueueOffsets
from pyspark_rocketmq.stream_position import StreamPosition

A, B, C = QueueKey("T", "a", 0), QueueKey("T", "a", 1), QueueKey("T", "b", 0)


def test_position_without_retired_queues_has_the_form_of_offsets() -> None:
    offsets = QueueOffsets({A: 5, B: 6})
    assert StreamPosition(offsets).to_nested() == offsets.to_nested()
    assert StreamPosition.from_nested(offsets.to_nested()) == StreamPosition(offsets)


def test_retired_queues_survive_json() -> None:
    position = StreamPosition(QueueOffsets({A: 5}), QueueOffsets({C: 7}))
    nested = json.loads(json.dumps(position.to_nested()))
    assert nested["#retired"] == {"T": {"b": {"0": 7}}}
    assert StreamPosition.from_nested(nested) == position


@pytest.mark.parametrize(
    "wrong",
    [
        {"#retired": 3},
        {"#lost": -1},
        {"#lost": "1"},
        {"#lost": True},
        {"T": {"a": {"0": 1}}, "#retired": {"T": {"a": {"0": 1}}}},
    ],
)
def test_bad_position_is_rejected(wrong: object) -> None:
    with pytest.raises(BadOffsets):
        StreamPosition.from_nested(wrong)


def test_queues_leave_and_come_back() -> None:
    start = StreamPosition(QueueOffsets({A: 5, B: 6}), QueueOffsets({C: 7}))
    moved = start.moved(QueueOffsets({A: 9, B: 6}), {B: 6}, QueueOffsets({C: 7}))
    assert moved == StreamPosition(QueueOffsets({A: 9, C: 7}), QueueOffsets({B: 6}))
    forgotten = moved.moved(moved.offsets, {A: None}, QueueOffsets())
    assert forgotten == StreamPosition(QueueOffsets({C: 7}), QueueOffsets({B: 6}))


def test_lost_messages_add_up_and_survive_json() -> None:
    start = StreamPosition(QueueOffsets({A: 5}))
    moved = start.moved(start.offsets, {}, QueueOffsets(), 3).moved(start.offsets, {}, QueueOffsets(), 4)
    assert moved.lost == 7
    nested = json.loads(json.dumps(moved.to_nested()))
    assert nested == {"#lost": 7, "T": {"a": {"0": 5}}}
    assert StreamPosition.from_nested(nested) == moved
