"""Streams by Spark itself, of our broker: every offset once, over triggers, restarts and faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rmq_client import NoQueue
from tests.spark.small_cluster import ClusterHands, SmallCluster
from tests.spark.version_marks import needs_trigger_limits
from tests.support.waiting import until_in_thread

Place = tuple[str, int, int]
_COLUMNS = "brokerName string, queueId int, queueOffset long"


class Pipe:
    """A query from a topic to Parquet files, started again and again from the same checkpoint."""

    def __init__(self, spark: SparkSession, cluster: ClusterHands, home: Path, **options: Any) -> None:
        self._spark = spark
        self._options = {"rocketmq.namesrv.addr": cluster.address, **options}
        self._home = home

    def start(self, **trigger: Any) -> StreamingQuery:
        source = self._spark.readStream.format("rocketmq").schema(_COLUMNS).options(**self._options).load()
        writer = source.writeStream.format("parquet").option("checkpointLocation", str(self._home / "check"))
        return writer.trigger(**trigger).start(str(self._home / "out"))

    def drain(self) -> list[dict[str, Any]]:
        """Read what is there now; the query's progress, batch by batch."""
        query = self.start(availableNow=True)
        query.awaitTermination()
        return [progress for progress in query.recentProgress if progress["numInputRows"]]

    def places(self) -> list[Place]:
        """What has come out, sorted."""
        if not list((self._home / "out").glob("*.parquet")):
            return []
        rows = self.frame().collect()
        return sorted((row.brokerName, row.queueId, row.queueOffset) for row in rows)

    def frame(self) -> DataFrame:
        return self._spark.read.schema(_COLUMNS).parquet(str(self._home / "out"))


def offsets(queue_id: int, begin: int, end: int, broker: str = "broker-a") -> list[Place]:
    return [(broker, queue_id, offset) for offset in range(begin, end)]


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def until(query: StreamingQuery, condition: Callable[[], object], timeout_seconds: float = 60) -> None:
    """Wait for the condition, or for the query's failure."""

    def reached() -> object:
        if (error := query.exception()) is not None:
            raise error
        return condition()

    until_in_thread(reached, timeout_seconds)


@needs_trigger_limits
def test_what_is_there_now_and_later_the_rest(
    spark: SparkSession, cluster: SmallCluster, topic: str, tmp_path: Path
) -> None:
    cluster.create_topic(topic, queues=2)
    cluster.send(topic, 0, numbered(100))
    cluster.send(topic, 1, numbered(300))
    pipe = Pipe(
        spark,
        cluster,
        tmp_path,
        subscribe=topic,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=150,
        groupId=f"G{topic}",
        commitOffsetsToGroup="true",
    )
    batches = pipe.drain()
    assert [batch["numInputRows"] for batch in batches] == [150, 150, 100]
    assert pipe.places() == offsets(0, 0, 100) + offsets(1, 0, 300)

    # The group is where the query is, the last batch included.
    stats = cluster.admin.consume_stats(f"G{topic}", topic)
    assert {queue.queue_id: at.consumer_offset for queue, at in stats.offset_table.items()} == {
        0: 100,
        1: 300,
    }

    # A restart goes on where the checkpoint is; queues that were added are read from their beginning.
    cluster.create_topic(topic, queues=3)
    cluster.send(topic, 0, numbered(20))
    cluster.send(topic, 2, numbered(30))
    pipe.drain()
    assert pipe.places() == offsets(0, 0, 120) + offsets(1, 0, 300) + offsets(2, 0, 30)
    assert pipe.drain() == []


def test_a_query_that_runs_picks_up_brokers_and_survives_one_that_goes(
    spark: SparkSession, own_cluster: SmallCluster, topic: str, tmp_path: Path
) -> None:
    cluster = own_cluster
    cluster.create_topic(topic, queues=1)
    cluster.send(topic, 0, numbered(10))
    pipe = Pipe(spark, cluster, tmp_path, subscribe=topic, startingOffsets="earliest")
    query = pipe.start(processingTime="100 milliseconds")
    try:
        until(query, lambda: len(pipe.places()) == 10)
        second = cluster.add_broker("broker-b")
        cluster.create_topic(topic, queues=1, broker_name="broker-b")
        cluster.send(topic, 0, numbered(20), "broker-b")
        until(query, lambda: len(pipe.places()) == 30)

        second.kill()
        cluster.send(topic, 0, numbered(5))
        until(query, lambda: len(pipe.places()) == 35)
        cluster.restart(second)
        until(query, lambda: _sent(cluster, topic, "broker-b"))
        until(query, lambda: len(pipe.places()) == 42)
    finally:
        query.stop()
    assert pipe.places() == offsets(0, 0, 15) + offsets(0, 0, 27, "broker-b")


def _sent(cluster: SmallCluster, topic: str, broker_name: str) -> bool:
    """Whether seven messages could be sent: the producer may not know of a broker that is back yet."""
    try:
        cluster.send(topic, 0, numbered(7), broker_name)
    except NoQueue:
        return False
    return True


def test_a_start_by_time(spark: SparkSession, cluster: SmallCluster, topic: str, tmp_path: Path) -> None:
    cluster.create_topic(topic, queues=1)
    cluster.send(topic, 0, numbered(5))
    rows = spark.read.format("rocketmq").option("rocketmq.namesrv.addr", cluster.address)
    frame = rows.option("subscribe", topic).load().selectExpr("max(unix_millis(storeTimestamp)) AS last")
    last_ms = frame.collect()[0]["last"]
    cluster.send(topic, 0, numbered(5))
    pipe = Pipe(spark, cluster, tmp_path, subscribe=topic, startingTimestamp=last_ms + 1)
    pipe.drain()
    places = pipe.places()
    assert places[-5:] == offsets(0, 5, 10)
    assert len(places) == 5


@needs_trigger_limits
def test_messages_that_are_gone_are_an_error_or_a_warning(
    spark: SparkSession, own_cluster: SmallCluster, topic: str, tmp_path: Path
) -> None:
    """A topic that is made anew holds less than has been read of it."""
    cluster = own_cluster
    cluster.create_topic(topic, queues=1)
    cluster.send(topic, 0, numbered(50))
    options = {"subscribe": topic, "startingOffsets": "earliest", "brokerTimeout": "1s"}
    pipe = Pipe(spark, cluster, tmp_path, **options)
    pipe.drain()
    cluster.admin.delete_topic(topic)
    cluster.create_topic(topic, queues=1)
    cluster.send(topic, 0, numbered(10))
    query = pipe.start(processingTime="100 milliseconds")
    with pytest.raises(StreamingQueryException, match=r"was read up to 50 and ends at"):
        query.awaitTermination(60)
    lenient = Pipe(spark, cluster, tmp_path, failOnDataLoss="false", **options)
    query = lenient.start(processingTime="100 milliseconds")
    try:
        cluster.send(topic, 0, numbered(50))
        until(query, lambda: len(lenient.places()) == 60)
    finally:
        query.stop()
    assert lenient.places()[-1] == ("broker-a", 0, 59)
