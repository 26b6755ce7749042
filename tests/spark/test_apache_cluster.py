"""Spark with Apache RocketMQ 5.3.3, checked with the SDK and with Apache's client."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from rmq_client import Compression, CompressionType, Message, MessageExt, MessageQueue
from rmq_client.blocking import Producer
from tests.interop.foreign import JavaClient
from tests.spark.apache_cluster import ApacheCluster
from tests.spark.sdk_pull import as_rows, pulled, spark_rows
from tests.spark.test_batch_read import positions, read
from tests.spark.test_stream_read import Pipe, numbered, offsets
from tests.support import toolchain
from tests.support.requirements import built_or_skip
from tests.support.waiting import QUERY_SECONDS, until_in_thread

pytestmark = pytest.mark.java

_MEBIBYTE = 1024 * 1024
# One second, the precision of delivery times.
_TIMER_PRECISION_MS = 1000


@pytest.fixture(scope="module")
def apache() -> Iterator[ApacheCluster]:
    """The limits of a pull are the defaults (32 messages, 256 KiB)."""
    program = built_or_skip(toolchain.apache_servers)
    settings = {
        "enablePropertyFilter": "true",
        "autoCreateTopicEnable": "false",
        # By default the broker rejects sends that waited for 200 ms, as they do on a busy machine.
        "waitTimeMillsInSendQueue": "30000",
        "osPageCacheBusyTimeOutMills": "30000",
    }
    with ApacheCluster(program, settings) as running:
        yield running
        ended = running.broker.process.exit_code
        assert ended is None, f"Apache's broker ended with {ended}; see {running.broker.log_path}"


@pytest.fixture(scope="module")
def java(apache: ApacheCluster, tmp_path_factory: pytest.TempPathFactory) -> JavaClient:
    return JavaClient(
        built_or_skip(toolchain.java_client),
        apache.address,
        tmp_path_factory.mktemp("java"),
        header="ROCKETMQ",
    )


def _save(rows: DataFrame, cluster: ApacheCluster, **options: Any) -> None:
    writer = rows.write.format("rocketmq").option("rocketmq.namesrv.addr", cluster.address)
    writer.options(**options).mode("append").save()


def _committed(cluster: ApacheCluster, group: str, topic: str) -> dict[int, int]:
    return {each.queue.queue_id: each.committed for each in cluster.admin.lag(group, topic).queues}


# --- reading ---


def test_all_columns_of_messages_from_the_sdk(spark: SparkSession, apache: ApacheCluster, topic: str) -> None:
    apache.create_topic(topic, queues=4)
    apache.send_messages(
        [
            Message(
                topic,
                b"%d" % number * 20,
                tags=f"t{number % 3}",
                keys=[f"k{number}", "all"],
                properties={"number": str(number), "name": "søk 𝄞"},
                flag=number,
            )
            for number in range(2000)
        ]
    )
    # More bytes than one pull returns.
    apache.send(topic, 1, (bytes([number]) * 20_000 for number in range(60)))
    for number, kind in enumerate(CompressionType):
        compression = Compression(threshold_bytes=100, type=kind)
        with Producer(apache.address, group="packs", compression=compression) as producer:
            producer.send(Message(topic, b"%d" % number * 5000), queue=MessageQueue(topic, "broker-a", 2))
    count = 2000 + 60 + len(CompressionType)
    apache.until_stored(topic, count)
    wanted = as_rows(pulled(apache, topic))
    assert len(wanted) == count
    assert spark_rows(read(spark, apache, subscribe=topic, minPartitions=3).collect()) == wanted


def test_exchange_with_apaches_client(
    spark: SparkSession, apache: ApacheCluster, java: JavaClient, topic: str
) -> None:
    apache.create_topic(topic, queues=1)

    def run(*words: str, **options: Any) -> list[dict[str, Any]]:
        return asyncio.run(java.run(*words, topic=topic, **options)).check().messages

    run("send", count=40, size=6000, compress="zlib", tag="java", mode="queue", queue=0)
    rows = spark.range(0, 60, 1, 1).select(
        f.repeat(f.col("id").cast("string"), 3000).alias("body"),
        f.lit("spark").alias("tags"),
        f.array(f.concat(f.lit("k"), "id"), f.lit("all")).alias("keys"),
        f.create_map(f.lit("number"), f.col("id").cast("string")).alias("properties"),
    )
    _save(rows, apache, topic=topic, compression="zlib", compressFromBytes=5000)
    seen = {event["queueOffset"]: event for event in run("pull", group=f"G{topic}", count=100)}
    frame = read(spark, apache, subscribe=topic).withColumn("sha256", f.sha2("body", 256)).drop("body")
    found = {row.queueOffset: row for row in frame.collect()}
    assert sorted(seen) == sorted(found) == list(range(100))
    for offset, event in seen.items():
        row = found[offset]
        assert (row.sha256, row.msgId, row.tags) == (event["bodySha256"], event["msgId"], event["tags"])
        assert row["keys"] == event["keys"]
        given = {name: event["properties"][name] for name in row.properties}
        assert row.properties == given
    assert {row.properties["number"] for row in found.values() if row.tags == "spark"} == set(
        map(str, range(60))
    )


def test_stream_with_limited_batches_and_committed_offsets(
    spark: SparkSession, apache: ApacheCluster, topic: str, tmp_path: Path
) -> None:
    group = f"G{topic}"
    apache.create_topic(topic, queues=2)
    apache.send(topic, 0, numbered(100))
    apache.send(topic, 1, numbered(300))
    where = {"subscribe": topic, "groupId": group, "commitOffsetsToGroup": "true"}
    pipe = Pipe(spark, apache, tmp_path, **where, startingOffsets="earliest", maxOffsetsPerTrigger=150)
    assert [batch["numInputRows"] for batch in pipe.drain()] == [150, 150, 100]
    assert pipe.positions() == offsets(0, 0, 100) + offsets(1, 0, 300)
    # The committed offsets include the last batch.
    assert _committed(apache, group, topic) == {0: 100, 1: 300}

    # A query of its own starts at the committed offsets, and the group follows while it runs.
    apache.send(topic, 1, numbered(40))
    follower = Pipe(spark, apache, tmp_path / "follower", **where, startingOffsets="group")
    query = follower.start(processingTime="100 milliseconds")
    try:
        until_in_thread(lambda: _committed(apache, group, topic) == {0: 100, 1: 340}, QUERY_SECONDS)
    finally:
        query.stop()
    assert follower.positions() == offsets(1, 300, 340)
    assert read(spark, apache, subscribe=topic, groupId=group, startingOffsets="group").count() == 0


def test_start_and_end_by_time(spark: SparkSession, apache: ApacheCluster, topic: str) -> None:
    apache.create_topic(topic, queues=2)
    stored: list[int] = []
    for number in range(3):
        apache.send(topic, 0, [b"%d" % number] * 3)
        stored.append(max(message.store_timestamp for message in pulled(apache, topic)))
        until_in_thread(lambda: time.time() * 1000 > stored[-1] + 1)
    later_ms = stored[2] + 3_600_000

    def between(**given: Any) -> list[tuple[str, int, int]]:
        return positions(read(spark, apache, subscribe=topic, **given))

    assert between(startingTimestamp=stored[0] + 1, endingTimestamp=stored[1] + 1) == offsets(0, 3, 6)
    assert between(startingTimestamp=1, endingTimestamp=stored[0] + 1) == offsets(0, 0, 3)
    assert between(startingTimestamp=stored[1] + 1, endingTimestamp=later_ms) == offsets(0, 6, 9)
    assert between(startingTimestamp=later_ms) == []


@pytest.mark.parametrize(
    ("expression", "kind", "wanted"),
    [
        ("t1 || t2", "TAG", lambda n: n % 4 in (1, 2)),
        ("number BETWEEN 100 AND 600 AND TAGS = 't3'", "SQL92", lambda n: n % 4 == 3 and 100 <= n <= 600),
        ("number > 100000", "SQL92", lambda n: False),
    ],
)
def test_filters(
    spark: SparkSession, apache: ApacheCluster, topic: str, expression: str, kind: str, wanted: Any
) -> None:
    apache.create_topic(topic, queues=1)
    messages = [Message(topic, b"x", tags=f"t{n % 4}", properties={"number": str(n)}) for n in range(1000)]
    apache.send_messages(messages)
    frame = read(spark, apache, subscribe=topic, subExpression=expression, subExpressionType=kind)
    assert positions(frame) == [("broker-a", 0, n) for n in range(1000) if wanted(n)]


def test_missing_topic(spark: SparkSession, apache: ApacheCluster, topic: str) -> None:
    apache.create_topic(topic)
    misspelt = topic[:-1]
    said = rf"{misspelt} does not exist: .*{apache.address}.*broker-a; did you mean .*{topic}"
    with pytest.raises(PySparkException, match=said):
        read(spark, apache, subscribe=misspelt, topicTimeout="100ms").collect()


# --- writing ---


def test_delayed_rows_arrive_when_due(spark: SparkSession, apache: ApacheCluster, topic: str) -> None:
    apache.create_topic(topic, queues=2)
    begun_ms = int(time.time() * 1000)
    due_ms = begun_ms + 3000
    levels = spark.createDataFrame(
        [("level", 1), ("at once", 0), ("null", None)], "body string, delayTimeLevel int"
    )
    _save(levels, apache, topic=topic)
    times = spark.createDataFrame([("timed", due_ms), ("past", 1)], "body string, due long")
    times = times.select("body", f.timestamp_millis("due").alias("deliverTimestamp"))
    _save(times, apache, topic=topic)

    def arrived() -> dict[bytes, MessageExt]:
        return {message.body: message for message in pulled(apache, topic)}

    until_in_thread(lambda: len(arrived()) == 5, QUERY_SECONDS)
    found = arrived()
    # Level 1 is one second.
    level = found[b"level"]
    assert level.store_timestamp - level.born_timestamp >= 1000
    assert level.properties["REAL_TOPIC"] == topic
    timed = found[b"timed"]
    assert timed.store_timestamp >= due_ms - _TIMER_PRECISION_MS
    assert timed.properties["TIMER_DELIVER_MS"] == str(due_ms)
    assert not {"DELAY", "TIMER_DELIVER_MS"} & found[b"at once"].properties.keys()
    assert not {"DELAY", "TIMER_DELIVER_MS"} & found[b"null"].properties.keys()
    # Spark reads them as any other message.
    assert spark_rows(read(spark, apache, subscribe=topic).collect()) == as_rows(found.values())


def test_stream_with_rejected_rows(
    spark: SparkSession, apache: ApacheCluster, topic: str, tmp_path: Path
) -> None:
    dead_topic, dead_path, source = f"{topic}-dead", tmp_path / "dead", tmp_path / "source"
    apache.create_topic(topic, queues=2)
    apache.create_topic(dead_topic, queues=1)
    source.mkdir()
    rows = [{"topic": topic, "size": 10 + number} for number in range(50)]
    rows += [{"topic": topic, "size": 100_000}, {"topic": topic, "size": 5 * _MEBIBYTE}]
    rows += [{"topic": "no such", "size": 1}, {"topic": f"{topic}-missing", "size": 2}]
    (source / "rows.json").write_text("\n".join(map(json.dumps, rows)))
    frame = spark.readStream.schema("topic string, size int").json(str(source))
    options = {
        "rocketmq.namesrv.addr": apache.address,
        "checkpointLocation": str(tmp_path / "checkpoint"),
        "topicTimeout": "100ms",
        "deadLetterTopic": dead_topic,
        "deadLetterPath": str(dead_path),
    }
    query = (
        frame.select("topic", f.repeat(f.lit("x"), f.col("size")).alias("body"))
        .writeStream.format("rocketmq")
        .options(**options)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(QUERY_SECONDS)
    apache.until_stored(topic, 51)
    apache.until_stored(dead_topic, 2)
    good = pulled(apache, topic)
    assert sorted(len(message.body) for message in good) == [*range(10, 60), 100_000]
    row_ids = {message.properties["SPARK_ROW_ID"].split(":")[-1] for message in good}
    assert row_ids == {str(number) for number in range(51)}
    assert {message.properties["SPARK_ROW_ID"].split(":")[1] for message in good} == {"0"}
    dead = {message.body: message.properties for message in pulled(apache, dead_topic)}
    assert {body: properties["DLQ_ORIGIN_TOPIC"] for body, properties in dead.items()} == {
        b"x": "no such",
        b"xx": f"{topic}-missing",
    }
    (file,) = dead_path.iterdir()
    (row,) = pyarrow.parquet.read_table(file).to_pylist()
    assert (row["topic"], len(row["body"])) == (topic, 5 * _MEBIBYTE)
    assert row["reason"]


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
def test_compressed_bodies_are_written_and_read(
    spark: SparkSession, apache: ApacheCluster, topic: str, kind: str
) -> None:
    apache.create_topic(topic, queues=1)
    rows = spark.sql("SELECT repeat('long', 50000) AS body UNION ALL SELECT 'short'").coalesce(1)
    _save(rows, apache, topic=topic, compression=kind)
    apache.until_stored(topic, 2)
    as_stored = read(spark, apache, "body binary", subscribe=topic, includeDecompressed="false").collect()
    assert max(len(row.body) for row in as_stored) < 2000
    assert spark_rows(read(spark, apache, subscribe=topic).collect()) == as_rows(pulled(apache, topic))
