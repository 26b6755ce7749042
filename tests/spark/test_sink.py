"""Spark writes to this project's broker: rejected rows, repeated batches, and a killed broker."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from rmq_broker.store.api import queue_of_level
from rmq_broker.topics.names import SCHEDULE_TOPIC, TIMER_TOPIC
from rmq_client import MessageExt
from tests.spark.sdk_pull import pulled
from tests.spark.small_cluster import SmallCluster
from tests.spark.version_marks import needs_stream_sink
from tests.support.clusters import cluster_in_a_thread
from tests.support.waiting import QUERY_SECONDS

_LIMIT_BYTES = 65_536


@pytest.fixture(scope="module")
def strict() -> Iterator[SmallCluster]:
    """A cluster that accepts only small messages, and only for existing topics."""
    settings = {"maxMessageSize": str(_LIMIT_BYTES), "autoCreateTopicEnable": "false"}
    with SmallCluster(settings) as running:
        yield running


def _save(rows: DataFrame, name_servers: str, **options: Any) -> None:
    writer = rows.write.format("rocketmq").option("rocketmq.namesrv.addr", name_servers)
    writer.options(**{name: str(value) for name, value in options.items()}).mode("append").save()


def _stored(cluster: SmallCluster, topic: str) -> int:
    return sum(reach.max_offset for reach in cluster.admin.topic_stats(topic).values())


def _read(cluster: SmallCluster, topic: str) -> list[MessageExt]:
    """Return all messages of a topic, queue by queue."""
    return sorted(pulled(cluster, topic), key=lambda message: (message.queue_id, message.queue_offset))


def _row_id(message: MessageExt) -> str:
    return message.properties["SPARK_ROW_ID"]


def test_batch_write_with_all_columns(spark: SparkSession, cluster: SmallCluster, topic: str) -> None:
    other = f"{topic}-other"
    cluster.create_topic(topic)
    cluster.create_topic(other)
    number = f.col("id")
    rows = spark.range(0, 3000, 1, 2).select(
        f.when(number < 1000, other).otherwise(topic).alias("topic"),
        f.concat(f.lit("body "), number.cast("string")).alias("body"),
        f.concat(f.lit("tag"), number % 3).alias("tags"),
        f.array(number.cast("string"), f.lit("all")).alias("keys"),
        f.create_map(f.lit("number"), number.cast("string")).alias("properties"),
        f.concat(f.lit("key"), number % 10).alias("shardingKey"),
    )
    _save(rows, cluster.address, sendBatchSize=100)
    in_other, in_topic = _read(cluster, other), _read(cluster, topic)
    assert (len(in_other), len(in_topic)) == (1000, 2000)
    numbers = sorted(int(message.properties["number"]) for message in in_other + in_topic)
    assert numbers == list(range(3000))
    for message in in_topic:
        position = int(message.properties["number"])
        assert message.body == f"body {position}".encode()
        assert (message.tags, message.keys) == (f"tag{position % 3}", [str(position), "all"])
        assert message.sharding_key == f"key{position % 10}"
    assert len({(message.sharding_key, message.queue_id) for message in in_topic}) == 10
    _check_ids_and_order(in_topic, in_other)


def _check_ids_and_order(*topics: list[MessageExt]) -> None:
    """Each row has a unique id within its write, and rows of one partition keep their order in each queue."""
    ids = [_row_id(message).split(":") for messages in topics for message in messages]
    assert len({(partition, row) for _, _, partition, row in ids}) == len(ids)
    assert {(len(query), batch) for query, batch, _, _ in ids} == {(32, "0")}
    assert len({query for query, *_ in ids}) == 1
    for messages in topics:
        orders: dict[tuple[int, str], list[int]] = {}
        for message in messages:
            _, _, partition, row = _row_id(message).split(":")
            orders.setdefault((message.queue_id, partition), []).append(int(row))
        assert all(order == sorted(order) for order in orders.values())


def test_repeated_named_write_has_the_same_row_ids(
    spark: SparkSession, cluster: SmallCluster, topic: str
) -> None:
    cluster.create_topic(topic)
    rows = spark.range(0, 100, 1, 2).select(f.col("id").cast("string").alias("body"))
    for _ in range(2):
        _save(rows, cluster.address, topic=topic, writeId="alerts:17")

    ids: dict[bytes, list[str]] = {}
    for message in _read(cluster, topic):
        ids.setdefault(message.body, []).append(_row_id(message))
    assert all(first == second and first.startswith("alerts:17:0:") for first, second in ids.values())
    assert len({first for first, _ in ids.values()}) == 100


def test_delays_and_delivery_times_are_set(spark: SparkSession, tmp_path: Path) -> None:
    due_ms = int(time.time() * 1000) + 3_600_000
    with cluster_in_a_thread(tmp_path, {"broker-a": {"T": 2}}, messageDelayLevel="1s 5s 1h") as own:
        rows = spark.createDataFrame([("a", 3), ("b", 0), ("c", None)], "body string, delayTimeLevel int")
        _save(rows, own.address, topic="T")
        rows = spark.sql(f"SELECT 'd' AS body, timestamp_millis({due_ms}) AS deliverTimestamp")
        _save(rows, own.address, topic="T")
        assert {message.body for message in own.broker.messages("T")} == {b"b", b"c"}
        assert own.broker.bodies(SCHEDULE_TOPIC, queue_of_level(3)) == [b"a"]
        (timed,) = own.broker.stored(TIMER_TOPIC)
        assert (timed.body, timed.properties["TIMER_DELIVER_MS"]) == (b"d", str(due_ms))


def test_large_bodies_are_compressed_and_read_back(
    spark: SparkSession, strict: SmallCluster, topic: str
) -> None:
    strict.create_topic(topic)
    rows = spark.sql("SELECT repeat('x', 200000) AS body UNION ALL SELECT 'small'")
    _save(rows, strict.address, topic=topic, compression="zstd")
    assert sorted(len(message.body) for message in _read(strict, topic)) == [5, 200_000]


def test_invalid_columns_and_modes_are_rejected_before_the_job_starts(
    spark: SparkSession, cluster: SmallCluster
) -> None:
    with pytest.raises(PySparkException, match="'id' is unknown to the sink"):
        _save(spark.range(3), cluster.address, topic="T")
    body = spark.sql("SELECT 'x' AS body")
    with pytest.raises(PySparkException, match="no topic: set the option topic"):
        _save(body, cluster.address)
    writer = body.write.format("rocketmq").option("rocketmq.namesrv.addr", cluster.address)
    with pytest.raises(PySparkException, match="it must be append"):
        writer.option("topic", "T").mode("overwrite").save()


def _good_and_bad(spark: SparkSession, topic: str) -> DataFrame:
    rows = [
        (topic, "good"),
        (topic, "x" * (_LIMIT_BYTES + 1)),
        ("no such", "bad name"),
        (f"{topic}-missing", "no topic"),
        (topic, "good too"),
    ]
    return spark.createDataFrame(rows, "topic string, body string").coalesce(1)


def test_rejected_row_fails_the_write_without_dead_letters(
    spark: SparkSession, strict: SmallCluster, topic: str
) -> None:
    strict.create_topic(topic)
    said = rf"a row was rejected: topic '{topic}', row \w+:0:0:1, because .*the limit is {_LIMIT_BYTES}"
    with pytest.raises(PySparkException, match=said) as raised:
        _save(_good_and_bad(spark, topic), strict.address, topicTimeout="100ms")
    assert "and 2 other rows" in str(raised.value)


def test_rejected_rows_go_to_dead_letter_topic_and_path(
    spark: SparkSession, strict: SmallCluster, topic: str, tmp_path: Path
) -> None:
    dead_topic, dead_path = f"{topic}-dead", tmp_path / "dead"
    strict.create_topic(topic)
    strict.create_topic(dead_topic)
    _save(
        _good_and_bad(spark, topic),
        strict.address,
        topicTimeout="100ms",
        deadLetterTopic=dead_topic,
        deadLetterPath=dead_path,
    )
    assert sorted(message.body for message in _read(strict, topic)) == [b"good", b"good too"]
    dead = {message.body: message.properties for message in _read(strict, dead_topic)}
    assert {body: properties["DLQ_ORIGIN_TOPIC"] for body, properties in dead.items()} == {
        b"bad name": "no such",
        b"no topic": f"{topic}-missing",
    }
    assert "only the characters" in dead[b"bad name"]["SPARK_REFUSED_BECAUSE"]
    (file,) = dead_path.iterdir()
    (row,) = pyarrow.parquet.read_table(file).to_pylist()
    assert (row["topic"], len(row["body"])) == (topic, _LIMIT_BYTES + 1)
    assert str(_LIMIT_BYTES) in row["reason"]


@needs_stream_sink
def test_repeated_batch_of_a_stream_has_the_same_row_ids(
    spark: SparkSession, cluster: SmallCluster, topic: str, tmp_path: Path
) -> None:
    cluster.create_topic(topic, queues=4)
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()
    schema = StructType([StructField("body", StringType()), StructField("queueId", IntegerType())])

    def run() -> None:
        rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", "1").json(str(source))
        writer = rows.writeStream.format("rocketmq").option("rocketmq.namesrv.addr", cluster.address)
        writer = writer.option("topic", topic).option("checkpointLocation", str(checkpoint))
        assert writer.trigger(availableNow=True).start().awaitTermination(QUERY_SECONDS)

    def add(name: str, first: int) -> None:
        lines = [f'{{"body": "{number}", "queueId": {number % 4}}}' for number in range(first, first + 40)]
        (source / name).write_text("\n".join(lines))

    add("one.json", 0)
    run()
    add("two.json", 40)
    run()
    before = _read(cluster, topic)
    assert sorted(int(message.body) for message in before) == list(range(80))
    assert all(int(message.body) % 4 == message.queue_id for message in before)
    # As if the driver had died after the last batch was written, but before it was committed.
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    run()
    ids: dict[bytes, Counter[str]] = {message.body: Counter() for message in before}
    for message in _read(cluster, topic):
        ids[message.body][_row_id(message)] += 1
    assert {int(body): list(found.values()) for body, found in ids.items()} == {
        number: [1 if number < 40 else 2] for number in range(80)
    }
    assert len({_row_id(message).split(":")[0] for message in before}) == 1


def test_broker_is_killed_and_restarted_during_a_write(
    spark: SparkSession, own_cluster: SmallCluster, topic: str
) -> None:
    count, batch_rows, in_flight, tasks = 150_000, 50, 2, 2
    own_cluster.create_topic(topic, queues=4)
    written = threading.Event()
    killed_at: list[int] = []

    def kill_and_restart() -> None:
        while not written.is_set():
            stored = _stored(own_cluster, topic)
            if stored > count // 20:
                own_cluster.broker.kill()
                killed_at.append(stored)
                own_cluster.restart(own_cluster.broker)
                return

    killer = threading.Thread(target=kill_and_restart)
    killer.start()
    try:
        rows = spark.range(0, count, 1, tasks).select(
            f.lpad(f.col("id").cast("string"), 128, "0").alias("body")
        )
        _save(
            rows,
            own_cluster.address,
            topic=topic,
            sendBatchSize=batch_rows,
            maxInFlight=in_flight,
            sendTimeout="30s",  # on a busy machine a late answer is not a lost one
        )
    finally:
        written.set()
        killer.join()
    assert killed_at and killed_at[0] < count, "the write was over before the broker could be killed"
    found = Counter(message.body for message in _read(own_cluster, topic))
    assert len(found) == count
    again = sum(found.values()) - count
    assert again <= tasks * in_flight * batch_rows, f"{again} rows twice, more than were under way"
