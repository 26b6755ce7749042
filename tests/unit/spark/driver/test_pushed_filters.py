"""Pushed filters never drop a message that the query's filters accept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from pyspark_rocketmq.driver.pushed_filters import PushedFilters
from pyspark_rocketmq.offsets import QueueKey, QueueOffsets
from tests.support.rows import each_row
from tests.unit.spark.fake_driver_cluster import FakeDriverCluster

A, B = QueueKey("T", "a", 0), QueueKey("U", "b", 1)
START, END = QueueOffsets({A: 5, B: 0}), QueueOffsets({A: 50, B: 10})
SECOND = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


def left(*filters: Filter) -> list[tuple[QueueKey, int, int]]:
    view = FakeDriverCluster({A: (5, 50), B: (0, 10)})
    view.times = {A: {1000: 20, 1001: 22}, B: {1000: 3, 1001: 4}}
    start, end = PushedFilters.from_spark(filters).apply(view.as_cluster(), START, END)
    return [(queue, start[queue], end[queue]) for queue in start]


@each_row(
    ("filters", "expected"),
    [
        ([], [(A, 5, 50), (B, 0, 10)]),
        ([EqualTo(("topic",), "T")], [(A, 5, 50)]),
        ([In(("brokerName",), ("b", "c"))], [(B, 0, 10)]),
        ([In(("queueId",), (0, 1)), EqualTo(("queueId",), 1)], [(B, 0, 10)]),
        ([EqualTo(("topic",), "T"), EqualTo(("topic",), "U")], []),
        ([GreaterThan(("queueOffset",), 7), LessThanOrEqual(("queueOffset",), 8)], [(A, 8, 9), (B, 8, 9)]),
        ([GreaterThanOrEqual(("queueOffset",), 7), LessThan(("queueOffset",), 8)], [(A, 7, 8), (B, 7, 8)]),
        ([EqualTo(("queueOffset",), 30)], [(A, 30, 31), (B, 30, 30)]),
        ([LessThan(("queueOffset",), 3)], [(A, 5, 5), (B, 0, 3)]),
        ([GreaterThan(("storeTimestamp",), SECOND)], [(A, 20, 50), (B, 3, 10)]),
        ([LessThan(("storeTimestamp",), SECOND)], [(A, 5, 22), (B, 0, 4)]),
        ([LessThan(("storeTimestamp",), SECOND + timedelta(microseconds=1))], [(A, 5, 22), (B, 0, 4)]),
        ([EqualTo(("storeTimestamp",), SECOND)], [(A, 20, 22), (B, 3, 4)]),
        ([LessThan(("storeTimestamp",), SECOND.replace(tzinfo=None))], [(A, 5, 50), (B, 0, 10)]),
        ([Not(EqualTo(("topic",), "T")), StringStartsWith(("topic",), "U")], [(A, 5, 50), (B, 0, 10)]),
    ],
)
def test_ranges_after_filters(filters: list[Filter], expected: list[tuple[QueueKey, int, int]]) -> None:
    assert left(*filters) == expected


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([EqualTo(("tags",), "blue")], "blue"),
        ([In(("tags",), ("red", "blue"))], "blue || red"),
        ([EqualTo(("tags",), "*")], None),
        ([EqualTo(("tags",), "a || b")], None),
        ([In(("tags",), ("a", None))], None),
        ([EqualTo(("keys",), "a")], None),
    ],
)
def test_tag_expression_for_brokers(filters: list[Filter], expected: str | None) -> None:
    assert PushedFilters.from_spark(filters).tags == expected
