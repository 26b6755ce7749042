"""Lag of streams that Spark runs on this project's broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_rocketmq.lag import LagListener, QueryLag
from pyspark_rocketmq.lag.store_times import StoreTimes
from pyspark_rocketmq.offsets import QueueKey
from pyspark_rocketmq.options import ReadOptions
from rmq_client import MessageQueue
from rmq_client.blocking import RawPuller
from rmq_remoting.message_codec import decode_messages
from tests.spark.small_cluster import SmallCluster
from tests.spark.test_stream_read import numbered, until
from tests.support.waiting import until_in_thread

_TIMEOUT_SECONDS = 120


class Gate:
    """A sink that writes the first batch at once, and holds later ones until it is opened."""

    def __init__(self) -> None:
        self._open = threading.Event()

    def open(self) -> None:
        self._open.set()

    def take(self, batch: DataFrame, number: int) -> None:
        if number > 0 and not self._open.wait(_TIMEOUT_SECONDS):
            raise TimeoutError("nobody opened the gate")
        batch.write.format("noop").mode("overwrite").save()


@contextmanager
def listening(spark: SparkSession, listener: LagListener) -> Iterator[CollectorRegistry]:
    registry = CollectorRegistry()
    listener.publish(registry)
    spark.streams.addListener(listener)
    try:
        yield registry
    finally:
        spark.streams.removeListener(listener)
        listener.close()


@contextmanager
def reading(
    spark: SparkSession, options: dict[str, str], home: Path, gate: Gate, name: str
) -> Iterator[StreamingQuery]:
    source = spark.readStream.format("rocketmq").schema("queueOffset long").options(**options).load()
    writer = source.writeStream.queryName(name).foreachBatch(gate.take)
    query = writer.option("checkpointLocation", str(home / "checkpoint")).start()
    try:
        yield query
    finally:
        gate.open()
        query.stop()


def stored_at(cluster: SmallCluster, topic: str, offset: int) -> float:
    """Return the store time of a message of queue 0, in seconds."""
    with RawPuller(cluster.address, group="lag-tests") as puller:
        pull = puller.pull(MessageQueue(topic, "broker-a", 0), offset)
    return decode_messages(pull.body)[0].store_timestamp / 1000


def test_lag_falls_to_zero_in_reports_and_metrics(
    spark: SparkSession, cluster: SmallCluster, topic: str, tmp_path: Path
) -> None:
    cluster.create_topic(topic, queues=1)
    cluster.send(topic, 0, numbered(30))
    options = {
        "rocketmq.namesrv.addr": cluster.address,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "10",
    }
    # A clock that stands still, one hour ahead.
    now = time.time() + 3600
    listener = LagListener(options, clock=lambda: now)
    gate = Gate()

    def lag() -> QueryLag:
        found = listener.lag(topic)
        assert found is not None
        return found

    def gauge(name: str) -> float | None:
        return registry.get_sample_value(name, {"query": topic, "topic": topic})

    with listening(spark, listener) as registry, reading(spark, options, tmp_path, gate, topic) as query:
        until(query, lambda: listener.lag(query.id), _TIMEOUT_SECONDS)
        assert lag().messages == gauge("rmq_spark_lag_messages") == 20
        # The broker has told the store time of the oldest message.
        until(query, lambda: not lag().at_least)
        waiting_seconds = now - stored_at(cluster, topic, 10)
        assert lag().seconds == pytest.approx(waiting_seconds)
        assert gauge("rmq_spark_lag_seconds") == pytest.approx(waiting_seconds)

        cluster.send(topic, 0, numbered(5))
        gate.open()
        until(query, lambda: lag().rows == 35, _TIMEOUT_SECONDS)
        assert lag().messages == gauge("rmq_spark_lag_messages") == 0
        assert lag().seconds == gauge("rmq_spark_lag_seconds") == 0
        assert registry.get_sample_value("rmq_spark_rows_total", {"query": topic}) == 35
        query.stop()
        until_in_thread(lambda: listener.lag(topic) is None, _TIMEOUT_SECONDS)
        assert gauge("rmq_spark_lag_messages") is None


def test_store_times_from_brokers(cluster: SmallCluster, topic: str) -> None:
    cluster.create_topic(topic, queues=1)
    cluster.send(topic, 0, numbered(3))
    address = {"rocketmq.namesrv.addr": cluster.address, "subscribe": topic}
    times = StoreTimes(ReadOptions.for_stream(address))
    queue = QueueKey(topic, "broker-a", 0)
    answers: dict[int, float] = {}

    def answered(asked: QueueKey, offset: int, at: float) -> None:
        assert asked == queue
        answers[offset] = at

    try:
        # There is no message beyond the end of the queue.
        assert times.request([(queue, 0), (queue, 2), (queue, 3)], answered)
        until_in_thread(lambda: times.request([], answered))
    finally:
        times.close()
    assert answers == {offset: stored_at(cluster, topic, offset) for offset in (0, 2)}
