"""Batch reads by Spark from this project's broker."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from rmq_client import Message
from tests.spark.small_cluster import ClusterClient, SmallCluster
from tests.spark.version_marks import needs_filters


def read(spark: SparkSession, cluster: ClusterClient, schema: str | None = None, **options: Any) -> DataFrame:
    reader = spark.read.format("rocketmq").option("rocketmq.namesrv.addr", cluster.address)
    if schema is not None:
        reader = reader.schema(schema)
    return reader.options(**options).load()


def positions(frame: DataFrame) -> list[tuple[str, int, int]]:
    rows = frame.select("brokerName", "queueId", "queueOffset").collect()
    return sorted((row.brokerName, row.queueId, row.queueOffset) for row in rows)


@pytest.mark.smoke
def test_all_columns(spark: SparkSession, cluster: SmallCluster, topic: str) -> None:
    cluster.create_topic(topic, queues=1)
    message = Message(topic, b"\x00\xffbody", tags="blue", keys=["k1", "k2"], properties={"colour": "blå"})
    sent = cluster.producer.send(message)
    frame = read(spark, cluster, subscribe=topic)
    assert frame.columns == [
        "topic", "brokerName", "queueId", "queueOffset", "msgId", "offsetMsgId", "keys", "tags", "body",
        "properties", "bornTimestamp", "storeTimestamp", "bornHost", "reconsumeTimes", "flag",
    ]  # fmt: skip
    (row,) = frame.collect()
    assert (row.topic, row.brokerName, row.queueId, row.queueOffset) == (topic, "broker-a", 0, 0)
    assert (row.msgId, row.offsetMsgId) == (sent.msg_id, sent.offset_msg_id)
    assert (row["keys"], row.tags, bytes(row.body)) == ("k1 k2", "blue", b"\x00\xffbody")
    assert row.properties["colour"] == "blå"
    assert (row.reconsumeTimes, row.flag) == (0, 0)
    assert row.bornTimestamp <= row.storeTimestamp


def test_lean_columns(spark: SparkSession, cluster: SmallCluster, topic: str) -> None:
    cluster.create_topic(topic, queues=1)
    cluster.producer.send(Message(topic, b"body", keys=["k"]))
    (row,) = read(spark, cluster, subscribe=topic, columns="lean").collect()
    names = ["topic", "brokerName", "queueId", "queueOffset", "keys", "body", "storeTimestamp"]
    assert list(row.asDict()) == names
    assert (row.topic, row.queueOffset, row["keys"], bytes(row.body)) == (topic, 0, "k", b"body")


def test_every_message_of_every_queue_is_read_once(
    spark: SparkSession, cluster: SmallCluster, topic: str
) -> None:
    cluster.create_topic(topic, queues=3)
    for queue_id, count in enumerate([3000, 0, 17]):
        cluster.send(topic, queue_id, (b"%d-%d" % (queue_id, number) for number in range(count)))
    wanted = [("broker-a", 0, offset) for offset in range(3000)]
    wanted += [("broker-a", 2, offset) for offset in range(17)]
    assert positions(read(spark, cluster, subscribe=topic)) == wanted
    split = read(spark, cluster, subscribe=topic, minPartitions=5)
    assert split.rdd.getNumPartitions() == 5
    assert positions(split) == wanted
    assert read(spark, cluster, "body binary", subscribe=topic).distinct().count() == 3017


def test_schema_selects_and_orders_columns(spark: SparkSession, cluster: SmallCluster, topic: str) -> None:
    cluster.create_topic(topic, queues=1)
    cluster.send(topic, 0, [b"a", b"b"], tags="t")
    frame = read(spark, cluster, "tags string, queueOffset long, body binary", subscribe=topic)
    assert [(r.tags, r.queueOffset, bytes(r.body)) for r in frame.collect()] == [
        ("t", 0, b"a"),
        ("t", 1, b"b"),
    ]
    with pytest.raises(PySparkException, match="colour"):
        read(spark, cluster, "colour string", subscribe=topic).collect()


def test_topic_without_messages(spark: SparkSession, cluster: SmallCluster, topic: str) -> None:
    cluster.create_topic(topic, queues=2)
    assert read(spark, cluster, subscribe=topic).collect() == []


def test_offsets_are_exact_and_the_end_is_exclusive(
    spark: SparkSession, cluster: SmallCluster, topic: str
) -> None:
    cluster.create_topic(topic, queues=2)
    for queue_id in range(2):
        cluster.send(topic, queue_id, (b"%d" % number for number in range(10)))
    frame = read(
        spark,
        cluster,
        subscribe=topic,
        startingOffsets=f'{{"{topic}": {{"broker-a": {{"0": 3, "1": -2}}}}}}',
        endingOffsets=f'{{"{topic}": {{"broker-a": {{"0": 5, "1": 1}}}}}}',
    )
    assert positions(frame) == [("broker-a", 0, 3), ("broker-a", 0, 4), ("broker-a", 1, 0)]
    assigned = read(spark, cluster, assign=f'{{"{topic}": {{"broker-a": [1]}}}}')
    assert positions(assigned) == [("broker-a", 1, offset) for offset in range(10)]
    with pytest.raises(PySparkException, match=r"endingOffsets.*ends at 10"):
        read(
            spark, cluster, subscribe=topic, endingOffsets=f'{{"{topic}": {{"broker-a": {{"0": 50}}}}}}'
        ).collect()
    with pytest.raises(PySparkException, match=r"option assign is.*/7"):
        read(spark, cluster, assign=f'{{"{topic}": {{"broker-a": [0, 7]}}}}').collect()


def test_start_and_end_by_time(spark: SparkSession, cluster: SmallCluster, topic: str) -> None:
    cluster.create_topic(topic, queues=1)
    stored: list[int] = []
    for number in range(3):
        cluster.send(topic, 0, [b"%d" % number])
        row = read(spark, cluster, subscribe=topic).orderBy("queueOffset").collect()[number]
        stored.append(int(row.storeTimestamp.timestamp() * 1000 + 0.5))
    frame = read(spark, cluster, subscribe=topic, startingTimestamp=stored[1], endingTimestamp=stored[2])
    assert [bytes(row.body) for row in frame.collect()] == [b"1"]


def test_subscribe_pattern_with_tags(spark: SparkSession, cluster: SmallCluster, topic: str) -> None:
    for name in (f"{topic}-a", f"{topic}-b", f"x{topic}-a"):
        cluster.create_topic(name, queues=1)
        messages = [Message(name, b"%d" % n, tags="odd" if n % 2 else "even") for n in range(500)]
        cluster.send_messages(messages)
    frame = read(spark, cluster, subscribePattern=f"{topic}-.*", subExpression="odd || other")
    rows = frame.select("topic", "queueOffset", "tags").collect()
    assert sorted((row.topic, row.queueOffset) for row in rows) == [
        (name, offset) for name in (f"{topic}-a", f"{topic}-b") for offset in range(1, 500, 2)
    ]


@needs_filters
def test_pushed_filters_reduce_reads(spark: SparkSession, cluster: SmallCluster, topic: str) -> None:
    cluster.create_topic(topic, queues=2)
    for queue_id in range(2):
        cluster.send_messages([Message(topic, b"x", tags=f"t{n % 3}") for n in range(30)], queue_id)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = read(spark, cluster, subscribe=topic, pushDownFilters="true", packBelowRecords=0)
        narrow = frame.where("queueId = 1 AND queueOffset >= 10 AND queueOffset < 20 AND tags = 't1'")
        assert narrow.rdd.getNumPartitions() == 1
        assert positions(narrow) == [("broker-a", 1, offset) for offset in (10, 13, 16, 19)]
        assert frame.where("storeTimestamp < '2020-01-01'").count() == 0
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_invalid_option_is_rejected_on_the_driver(
    spark: SparkSession, cluster: SmallCluster, topic: str
) -> None:
    with pytest.raises(PySparkException, match="startingOffsets is 'soon'"):
        read(spark, cluster, subscribe=topic, startingOffsets="soon").collect()
    with pytest.raises(PySparkException, match="did you mean subscribe"):
        read(spark, cluster, subscribes=topic).collect()
