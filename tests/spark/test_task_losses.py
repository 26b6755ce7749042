"""Messages that expire between the plan of a batch and its read: tasks report them to the driver."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from pyspark_rocketmq.lag import LagListener
from pyspark_rocketmq.offsets import QueueKey
from pyspark_rocketmq.stream_losses import QueueLoss
from tests.spark.small_cluster import SmallCluster
from tests.spark.test_expired_messages import SMALL_FILES, expire_log_files, fill
from tests.spark.test_lag import listening
from tests.spark.test_stream_read import until
from tests.spark.version_marks import needs_trigger_limits
from tests.support.waiting import QUERY_SECONDS

_MESSAGES = 150


@pytest.fixture(scope="module")
def small_files() -> Iterator[SmallCluster]:
    """A broker whose commit log has small files, so that some of them can be deleted."""
    with SmallCluster(SMALL_FILES) as running:
        yield running


class ExpiringSink:
    """A sink that lets messages expire after the batch is planned, and before it is read."""

    def __init__(self, cluster: SmallCluster, topic: str) -> None:
        self._expire = partial(expire_log_files, cluster, topic)
        self.oldest = 0
        self.rows: list[int] = []

    def take(self, batch: DataFrame, number: int) -> None:
        if not self.oldest:
            self.oldest = self._expire()
        self.rows += [row.queueOffset for row in batch.collect()]


@needs_trigger_limits
@pytest.mark.parametrize("reports", ["auto", "off"])
def test_losses_of_tasks_reach_listener_and_metrics(
    spark: SparkSession, small_files: SmallCluster, topic: str, tmp_path: Path, reports: str
) -> None:
    small_files.create_topic(topic, queues=1)
    fill(small_files, topic, _MESSAGES)
    sink = ExpiringSink(small_files, topic)
    options = {
        "rocketmq.namesrv.addr": small_files.address,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "failOnDataLoss": "false",
        "lossReports": reports,
        "minPartitions": "2",
    }
    source = spark.readStream.format("rocketmq").schema("queueOffset long").options(**options).load()
    listener = LagListener()
    with listening(spark, listener) as registry:
        writer = source.writeStream.queryName(topic).foreachBatch(sink.take)
        query = writer.option("checkpointLocation", str(tmp_path / "check")).start()
        try:
            # No message arrives after the loss: the batch that tells it has no rows.
            until(query, lambda: (lag := listener.lag(topic)) and lag.lost_messages)
            lag = listener.lag(topic)
            assert lag is not None
            assert sink.oldest > 75, "no file of the log holds as many messages"
            assert lag.losses == (
                QueueLoss(QueueKey(topic, "broker-a", 0), sink.oldest, ((0, sink.oldest),)),
            )
            labels = {"query": topic, "topic": topic}
            assert registry.get_sample_value("rmq_spark_lost_messages_total", labels) == sink.oldest
            assert sorted(sink.rows) == list(range(sink.oldest, _MESSAGES))
        finally:
            query.stop()
    last = max((tmp_path / "check" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    position = json.loads(last.read_text().splitlines()[-1])
    assert position == {"#lost": sink.oldest, topic: {"broker-a": {"0": _MESSAGES}}}


@needs_trigger_limits
def test_loss_in_the_last_batch_of_a_drain_is_in_its_progress(
    spark: SparkSession, small_files: SmallCluster, topic: str, tmp_path: Path
) -> None:
    small_files.create_topic(topic, queues=1)
    fill(small_files, topic, _MESSAGES)
    sink = ExpiringSink(small_files, topic)
    source = spark.readStream.format("rocketmq").schema("queueOffset long")
    source = source.option("rocketmq.namesrv.addr", small_files.address).option("subscribe", topic)
    source = source.option("startingOffsets", "earliest").option("failOnDataLoss", "false")
    writer = source.load().writeStream.foreachBatch(sink.take).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "check")).start()
    query.awaitTermination(QUERY_SECONDS)
    assert query.exception() is None
    (told,) = (progress.sources[0] for progress in query.recentProgress[-1:])
    lost = json.loads(told.latestOffset)["#lost"]
    assert lost == {topic: {"broker-a": {"0": {"messages": sink.oldest, "ranges": [[0, sink.oldest]]}}}}
    assert sorted(sink.rows) == list(range(sink.oldest, _MESSAGES))
