"""Start and end of a batch read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql.datasource import InputPartition

from pyspark_rocketmq.batch_reader import BatchReader
from pyspark_rocketmq.columns import arrow_schema
from pyspark_rocketmq.errors import BadOffsets, OptionError
from pyspark_rocketmq.offsets import QueueKey
from pyspark_rocketmq.options import ReadOptions
from pyspark_rocketmq.tasks.partitions import TaskPartition
from tests.unit.spark.fake_driver_cluster import FakeDriverCluster

A, B = QueueKey("T", "a", 0), QueueKey("T", "a", 1)


@pytest.fixture
def view(monkeypatch: pytest.MonkeyPatch) -> FakeDriverCluster:
    view = FakeDriverCluster({A: (5, 50), B: (0, 10)})

    @contextmanager
    def cluster(*_: object) -> Iterator[FakeDriverCluster]:
        yield view

    monkeypatch.setattr("pyspark_rocketmq.driver.cluster.Cluster", cluster)
    return view


def planned(**given: str) -> list[tuple[QueueKey, int, int]]:
    options = ReadOptions.for_batch(
        {"rocketmq.namesrv.addr": "127.0.0.1:9876", "subscribe": "T", "groupId": "G", **given}
    )
    partitions = BatchReader(options, arrow_schema(["body"])).partitions()
    parts = [part for each in partitions if isinstance(each, TaskPartition) for part in each.task.ranges]
    return [(part.key, part.begin, part.end) for part in parts]


def test_default_reads_everything_stored(view: FakeDriverCluster) -> None:
    assert planned() == [(A, 5, 50), (B, 0, 10)]


def test_start_and_end_at_committed_offsets(view: FakeDriverCluster) -> None:
    view.groups["G"] = {A: 45, B: 10}
    assert planned(startingOffsets="group") == [(A, 45, 50)]
    assert planned(endingOffsets="group") == [(A, 5, 45), (B, 0, 10)]
    view.groups["G"] = {A: 2}  # messages before its committed offset have expired
    assert planned(endingOffsets="group") == []


def test_end_beyond_the_newest_offset_is_rejected(view: FakeDriverCluster) -> None:
    with pytest.raises(OptionError, match=r"endingOffsets.*T/a/0 to 51, which ends at 50"):
        planned(endingOffsets='{"T": {"a": {"0": 51}}}')


def test_start_beyond_the_end_is_rejected(view: FakeDriverCluster) -> None:
    with pytest.raises(BadOffsets, match=r"T/a/0 from 60 to 50"):
        planned(startingOffsets='{"T": {"a": {"0": 60}}}')


def test_read_without_partitions(view: FakeDriverCluster) -> None:
    options = ReadOptions.for_batch({"rocketmq.namesrv.addr": "127.0.0.1:9876", "subscribe": "T"})
    assert list(BatchReader(options, arrow_schema(["body"])).read(InputPartition(None))) == []
