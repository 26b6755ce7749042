"""Streams by Spark from this project's broker: every offset once, over triggers, restarts and failures."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_rocketmq.checkpoint.commands import main as checkpoint_tool
from rmq_client import NoQueue
from tests.spark.small_cluster import ClusterClient, SmallCluster
from tests.spark.version_marks import needs_trigger_limits
from tests.support.waiting import QUERY_SECONDS, until_in_thread

Position = tuple[str, int, int]
_COLUMNS = "brokerName string, queueId int, queueOffset long"


class Pipe:
    """A query from a topic to Parquet files, started repeatedly on the same checkpoint."""

    def __init__(self, spark: SparkSession, cluster: ClusterClient, home: Path, **options: Any) -> None:
        self._spark = spark
        self._options = {"rocketmq.namesrv.addr": cluster.address, **options}
        self._home = home

    def start(self, **trigger: Any) -> StreamingQuery:
        source = self._spark.readStream.format("rocketmq").schema(_COLUMNS).options(**self._options).load()
        writer = source.writeStream.format("parquet").option("checkpointLocation", str(self._home / "check"))
        return writer.trigger(**trigger).start(str(self._home / "out"))

    def drain(self) -> list[dict[str, Any]]:
        """Drain the topic. Return the query's progress, batch by batch."""
        query = self.start(availableNow=True)
        query.awaitTermination()
        return [progress for progress in query.recentProgress if progress["numInputRows"]]

    def checkpoint(self) -> Any:
        """Return the position of the last batch, from the checkpoint."""
        newest = max((self._home / "check" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        return json.loads(newest.read_text().splitlines()[-1])

    def positions(self) -> list[Position]:
        """Return the messages written so far as (broker, queue, offset), sorted."""
        if not list((self._home / "out").glob("*.parquet")):
            return []
        rows = self.frame().collect()
        return sorted((row.brokerName, row.queueId, row.queueOffset) for row in rows)

    def frame(self) -> DataFrame:
        return self._spark.read.schema(_COLUMNS).parquet(str(self._home / "out"))


def offsets(queue_id: int, begin: int, end: int, broker: str = "broker-a") -> list[Position]:
    return [(broker, queue_id, offset) for offset in range(begin, end)]


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def until(query: StreamingQuery, condition: Callable[[], object], timeout_seconds: float = 60) -> None:
    """Wait for the condition, or raise the failure of the query."""

    def reached() -> object:
        if (error := query.exception()) is not None:
            raise error
        return condition()

    until_in_thread(reached, timeout_seconds)


@needs_trigger_limits
def test_drain_then_continue_with_later_messages(
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
    assert pipe.positions() == offsets(0, 0, 100) + offsets(1, 0, 300)

    # The group has the query's offsets, including the last batch.
    lag = cluster.admin.lag(f"G{topic}", topic)
    assert {each.queue.queue_id: each.committed for each in lag.queues} == {0: 100, 1: 300}

    # A restart continues at the checkpoint; new queues are read from their beginning.
    cluster.admin.update_topic(topic, read_queues=3, write_queues=3)
    cluster.send(topic, 0, numbered(20))
    cluster.send(topic, 2, numbered(30))
    pipe.drain()
    assert pipe.positions() == offsets(0, 0, 120) + offsets(1, 0, 300) + offsets(2, 0, 30)
    assert pipe.drain() == []


def test_running_query_finds_new_brokers_and_survives_an_outage(
    spark: SparkSession, own_cluster: SmallCluster, topic: str, tmp_path: Path
) -> None:
    cluster = own_cluster
    cluster.create_topic(topic, queues=1)
    cluster.send(topic, 0, numbered(10))
    refresh = {"rocketmq.routeRefreshInterval": "1s"}
    pipe = Pipe(spark, cluster, tmp_path, subscribe=topic, startingOffsets="earliest", **refresh)
    query = pipe.start(processingTime="100 milliseconds")
    try:
        until(query, lambda: len(pipe.positions()) == 10)
        second = cluster.add_broker("broker-b")
        cluster.create_topic(topic, queues=1, broker_name="broker-b")
        cluster.send(topic, 0, numbered(20), "broker-b")
        until(query, lambda: len(pipe.positions()) == 30)

        second.kill()
        cluster.send(topic, 0, numbered(5))
        until(query, lambda: len(pipe.positions()) == 35)
        cluster.restart(second)
        until(query, lambda: _sent(cluster, topic, "broker-b"))
        until(query, lambda: len(pipe.positions()) == 42)
    finally:
        query.stop()
    assert pipe.positions() == offsets(0, 0, 15) + offsets(0, 0, 27, "broker-b")


def _sent(cluster: SmallCluster, topic: str, broker_name: str) -> bool:
    """Return whether seven messages were sent: the producer may not know yet that a broker is back."""
    try:
        cluster.send(topic, 0, numbered(7), broker_name)
    except NoQueue:
        return False
    return True


def test_start_by_time(spark: SparkSession, cluster: SmallCluster, topic: str, tmp_path: Path) -> None:
    cluster.create_topic(topic, queues=1)
    cluster.send(topic, 0, numbered(5))
    rows = spark.read.format("rocketmq").option("rocketmq.namesrv.addr", cluster.address)
    frame = rows.option("subscribe", topic).load().selectExpr("max(unix_millis(storeTimestamp)) AS last")
    last_ms = frame.collect()[0]["last"]
    cluster.send(topic, 0, numbered(5))
    pipe = Pipe(spark, cluster, tmp_path, subscribe=topic, startingTimestamp=last_ms + 1)
    pipe.drain()
    positions = pipe.positions()
    assert positions[-5:] == offsets(0, 5, 10)
    assert len(positions) == 5


@needs_trigger_limits
def test_recreated_topic_is_an_error_or_a_warning(
    spark: SparkSession, own_cluster: SmallCluster, topic: str, tmp_path: Path
) -> None:
    """A recreated topic ends below the offsets that were read."""
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
        query.awaitTermination(QUERY_SECONDS)
    lenient = Pipe(spark, cluster, tmp_path, failOnDataLoss="false", **options)
    query = lenient.start(processingTime="100 milliseconds")
    try:
        cluster.send(topic, 0, numbered(50))
        until(query, lambda: len(lenient.positions()) == 60)
    finally:
        query.stop()
    assert lenient.positions()[-1] == ("broker-a", 0, 59)


@needs_trigger_limits
def test_queues_of_a_decommissioned_broker_leave_the_query(
    spark: SparkSession, own_cluster: SmallCluster, topic: str, tmp_path: Path
) -> None:
    cluster = own_cluster
    second = cluster.add_broker("broker-b")
    cluster.create_topic(topic, queues=1)
    cluster.send(topic, 0, numbered(10))
    cluster.send(topic, 0, numbered(20), "broker-b")
    pipe = Pipe(spark, cluster, tmp_path, subscribe=topic, startingOffsets="earliest", brokerTimeout="30s")
    pipe.drain()
    second.close()
    until_in_thread(lambda: "broker-b" not in cluster.admin.topic_route(topic).brokers, QUERY_SECONDS)
    cluster.send(topic, 0, numbered(5))
    began = time.monotonic()
    pipe.drain()
    assert time.monotonic() - began < 25  # no wait for the broker
    assert pipe.positions() == offsets(0, 0, 15) + offsets(0, 0, 20, "broker-b")
    assert pipe.checkpoint() == {topic: {"broker-a": {"0": 15}}, "#retired": {topic: {"broker-b": {"0": 20}}}}


@needs_trigger_limits
def test_moved_checkpoint_is_where_the_query_continues(
    spark: SparkSession, cluster: SmallCluster, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.create_topic(topic, queues=1)
    cluster.send(topic, 0, numbered(10))
    pipe = Pipe(spark, cluster, tmp_path, subscribe=topic, startingOffsets="earliest")
    pipe.drain()
    cluster.send(topic, 0, numbered(10))
    where = [str(tmp_path / "check"), "--namesrv", cluster.address]
    query = pipe.start(processingTime="100 milliseconds")
    try:
        query.processAllAvailable()
        assert checkpoint_tool(["move", *where, "--to", "latest"]) == 1
        assert "the query runs on this machine" in capsys.readouterr().err
    finally:
        query.stop()
    cluster.send(topic, 0, numbered(10))
    assert checkpoint_tool(["move", *where, "--to", "offset:27", "--force"]) == 0
    pipe.drain()
    assert pipe.positions() == offsets(0, 0, 20) + offsets(0, 27, 30)


def test_each_query_has_a_consumer_group_of_its_own(
    spark: SparkSession, cluster: SmallCluster, topic: str, tmp_path: Path
) -> None:
    cluster.create_topic(topic, queues=1)
    cluster.send(topic, 0, numbered(5))
    before = set(cluster.admin.groups())
    options = {"subscribe": topic, "startingOffsets": "earliest", "groupIdPrefix": "of-queries"}
    for home in ("first", "second"):
        Pipe(spark, cluster, tmp_path / home, **options).drain()
    groups = {group for group in set(cluster.admin.groups()) - before if group.startswith("of-queries-")}
    ids = [
        json.loads((tmp_path / home / "check" / "metadata").read_text())["id"] for home in ("first", "second")
    ]
    assert sorted(group.rpartition("-")[2] for group in groups) == sorted(each[:8] for each in ids)
    # A restarted query has its group again.
    cluster.send(topic, 0, numbered(5))
    Pipe(spark, cluster, tmp_path / "first", **options).drain()
    assert groups == {group for group in cluster.admin.groups() if group.startswith("of-queries-")}
