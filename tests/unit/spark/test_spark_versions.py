"""Behaviour with PySpark 4.0 and 4.1, whose interface lacks some calls."""

from __future__ import annotations

import pytest

import pyspark_rocketmq
from pyspark_rocketmq import spark_versions, stream_reader
from pyspark_rocketmq.columns import arrow_schema
from pyspark_rocketmq.driver.stream_offsets import StreamOffsets
from pyspark_rocketmq.errors import ConnectorError, OptionError
from pyspark_rocketmq.offsets import QueueKey, QueueOffsets
from pyspark_rocketmq.options import ReadOptions
from pyspark_rocketmq.stream_reader import StreamReader
from pyspark_rocketmq.tasks.partitions import TaskPartition
from tests.unit.spark.fake_driver_cluster import FakeDriverCluster

_ADDRESS = {"rocketmq.namesrv.addr": "127.0.0.1:9876"}
_OLD, _NEW = QueueKey("T", "a", 0), QueueKey("T", "a", 1)


@pytest.fixture
def no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_reader, "HAS_TRIGGER_LIMITS", False)


def _reader(**given: str) -> StreamReader:
    made = pyspark_rocketmq.RocketMQDataSource({**_ADDRESS, "subscribe": "T", **given})
    return made.streamReader(made.schema())


def _reader_of(view: FakeDriverCluster, **given: str) -> StreamReader:
    options = ReadOptions.for_stream({**_ADDRESS, "subscribe": "T", **given})
    return StreamReader(options, arrow_schema(["body"]), StreamOffsets(view.as_cluster(), options))


@pytest.mark.usefixtures("no_limits")
@pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger"])
def test_unsupported_limits_per_trigger_are_rejected(option: str) -> None:
    _reader()
    with pytest.raises(OptionError, match=rf"{option} is '100': it must be left out .*from 4\.2 on"):
        _reader(**{option: "100"})


@pytest.mark.usefixtures("no_limits")
def test_new_queue_is_read_from_its_first_message() -> None:
    view = FakeDriverCluster({_OLD: (0, 5)})
    reader = _reader_of(view)
    start = reader.initialOffset()
    view.held[_NEW] = (2, 7)
    tasks = reader.partitions(start, reader.latestOffset())
    reader.stop()
    ranges = [one for task in tasks if isinstance(task, TaskPartition) for one in task.task.ranges]
    assert [(one.key, one.begin, one.end) for one in ranges] == [(_NEW, 2, 7)]


@pytest.mark.usefixtures("no_limits")
def test_commit_updates_the_group() -> None:
    view = FakeDriverCluster({_OLD: (0, 5)})
    reader = _reader_of(view, groupId="G", commitOffsetsToGroup="true")
    reader.commit(QueueOffsets({_OLD: 4}).to_nested())
    assert view.groups == {"G": {_OLD: 4}}


def test_unsupported_streaming_sink_suggests_foreach_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_versions, "HAS_ARROW_STREAM_WRITER", False)
    made = pyspark_rocketmq.RocketMQDataSource({**_ADDRESS, "topic": "T"})
    with pytest.raises(ConnectorError, match=r"PySpark 4\.1 or later.*foreachBatch"):
        made.streamWriter(made.schema(), overwrite=False)
