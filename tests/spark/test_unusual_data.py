"""Unusual data read by Spark from this project's broker equals what the SDK pulls."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from rmq_client import Message, MessageQueue
from rmq_remoting.codes import RequestCode
from rmq_remoting.message_properties import MAX_PROPERTIES_BYTES
from tests.spark.sdk_pull import as_rows, pulled, spark_rows
from tests.spark.small_cluster import SmallCluster
from tests.spark.test_batch_read import positions, read
from tests.spark.test_stream_read import Pipe, numbered, offsets
from tests.support import golden_store
from tests.support.broker_requests import send, sent
from tests.support.raw_client import raw_client

_MEBIBYTE = 1024 * 1024
_MAX_MESSAGE_BYTES = 4 * _MEBIBYTE

# All planes, combining marks, writing directions, invisible characters, and characters special to JSON, SQL,
# shells and Spark; all control characters except the two separators of properties.
_UNUSUAL = (
    [chr(code) for code in (*range(3, 32), 0x7F, 0x80, 0x85, 0xA0, 0xAD)]
    + list("\"'`\\/$%&|;,.:=<>()[]{}*?#!~^-+_@ ")
    + list("aZ09äßñÅİıŁøΩжשع中文字日本한ไ")
    + ["e\u0301", "o\u0308\u0323", "\u0300", "\u200b", "\u200d", "\u202e", "\u2028", "\ufeff", "\uffff"]
    + ["𝄞", "😀", "👩\u200d🚀", "🇳🇴", "\U00020000", "\U0010ffff", "\ue000"]
)  # fmt: skip


def unusual_text(source: random.Random, most: int = 30) -> str:
    """Return a non-empty random text."""
    return "".join(source.choices(_UNUSUAL, k=source.randint(1, most)))


def unusual_message(topic: str, number: int, source: random.Random) -> Message:
    """Return a message with ten properties, keys and tags; each hundredth has very long ones."""
    properties = {f"{position}{unusual_text(source, 8)}": unusual_text(source) for position in range(9)}
    properties["number"] = str(number)
    if number % 100 == 0:
        properties["long"] = "𝄞é" * (25_000 // len("𝄞é".encode()))
    # Keys are separated by spaces; brokers trim tags.
    keys = [unusual_text(source).replace(" ", "_") for _ in range(source.randint(1, 3))]
    return Message(topic, b"%d" % number, tags=unusual_text(source), keys=keys, properties=properties)


def test_ten_thousand_unusual_properties_round_trip(
    spark: SparkSession, cluster: SmallCluster, topic: str
) -> None:
    source = random.Random(20_251)
    messages = [unusual_message(topic, number, source) for number in range(1000)]
    cluster.create_topic(topic, queues=1)
    for message in messages:
        cluster.send_messages([message])
    stored = pulled(cluster, topic)
    sent_properties = [message.user_properties for message in messages]
    assert sum(map(len, sent_properties)) >= 10_000
    assert [message.user_properties for message in stored] == sent_properties
    assert [message.properties["TAGS"] for message in stored] == [m.properties["TAGS"] for m in messages]

    frame = read(spark, cluster, subscribe=topic)
    assert spark_rows(frame.collect()) == as_rows(stored)
    raw = read(spark, cluster, "queueOffset long, properties string", subscribe=topic, propertiesMode="raw")
    parsed = {row.queueOffset: _parsed(row.properties) for row in raw.collect()}
    assert parsed == {message.queue_offset: message.properties for message in stored}

    # Written back by the sink, they are unchanged.
    back = f"{topic}-back"
    cluster.create_topic(back, queues=1)
    writer = frame.select("body", "keys", "tags", "properties").coalesce(1).write.format("rocketmq")
    where = {"rocketmq.namesrv.addr": cluster.address, "topic": back}
    writer.options(**where).mode("append").save()
    again = {message.properties["number"]: message for message in pulled(cluster, back)}
    assert len(again) == 1000
    for message in stored:
        copy = again[message.properties["number"]]
        assert copy.properties.pop("SPARK_ROW_ID")
        assert copy.user_properties == message.user_properties
        assert (copy.properties["KEYS"], copy.properties["TAGS"]) == (
            message.properties["KEYS"],
            message.properties["TAGS"],
        )
        assert copy.body == message.body


def _parsed(raw: str) -> dict[str, str]:
    entries = (entry.split("\x01", 1) for entry in raw.split("\x02") if entry)
    return {name: value for name, value in entries}


# Properties, as bytes on the wire, that no SDK sends. The broker rejects invalid UTF-8.
_BROKEN = [
    b"",
    b"a\x01b",  # no separator at the end
    b"a\x01b\x02a\x01c\x02",  # a repeated name
    b"a\x01\x02b\x01c\x02",  # without a value
    b"\x01a\x02b\x01c\x02",  # without a name
    b"a\x01b\x01c\x02",  # the separator in a value
    b"\x02\x02a\x01b\x02\x02",  # nothing between separators
    b"novalue\x02a\x01b\x02",
    b"KEYS\x01\x02TAGS\x01\x02a\x01b\x02",
    b"KEYS\x01 k1  k2 \x02TAGS\x01 t \x02",
    b"a\x01" + "\u0000".encode() + b"\x02",
    b"UNIQ_KEY\x01not an id\x02",
    b"WAIT\x01maybe\x02",
]


def _batch_item(properties: bytes) -> bytes:
    """Encode a message as a batch item, whose properties the broker stores without parsing them."""
    body = b"body"
    rest = struct.pack(">iiii", 0, 0, 0, len(body)) + body + struct.pack(">h", len(properties)) + properties
    return struct.pack(">i", 4 + len(rest)) + rest


def test_malformed_properties(spark: SparkSession, cluster: SmallCluster, topic: str) -> None:
    """Brokers store malformed properties as sent; all readers must parse them alike."""
    cluster.create_topic(topic, queues=1)

    longest = b"a\x01" + b"x" * (MAX_PROPERTIES_BYTES - 600)
    items = b"".join(_batch_item(properties) for properties in [*_BROKEN, longest])

    async def send_all() -> None:
        async with raw_client(cluster.broker.port) as client:
            sent(await client.ask(send(topic, items, code=RequestCode.SEND_BATCH_MESSAGE, batch=True)))

    asyncio.run(send_all())
    stored = pulled(cluster, topic)
    assert len(stored) == len(_BROKEN) + 1
    assert stored[3].properties["b"] == "c" and "a" not in stored[3].properties
    assert spark_rows(read(spark, cluster, subscribe=topic).collect()) == as_rows(stored)


def test_256_queues_with_empty_ones(
    spark: SparkSession, cluster: SmallCluster, topic: str, tmp_path: Path
) -> None:
    cluster.create_topic(topic, queues=256)
    cluster.create_topic(f"{topic}-empty", queues=16)
    filled = {queue_id: queue_id % 7 + 1 for queue_id in range(0, 256, 2)} | {255: 1500}
    for queue_id, count in filled.items():
        cluster.send(topic, queue_id, numbered(count))
    wanted = [
        position for queue_id, count in sorted(filled.items()) for position in offsets(queue_id, 0, count)
    ]
    both = f"{topic},{topic}-empty"

    packed = read(spark, cluster, subscribe=both, cores=1)
    assert packed.rdd.getNumPartitions() == 1
    assert positions(packed) == wanted
    limited = read(spark, cluster, subscribe=both, maxRecordsPerPartition=300)
    assert 7 <= limited.rdd.getNumPartitions() <= 10
    assert positions(limited) == wanted
    split = read(spark, cluster, subscribe=both, minPartitions=12)
    assert split.rdd.getNumPartitions() >= 12
    assert positions(split) == wanted
    alone = read(spark, cluster, subscribe=both, packBelowRecords=0)
    assert alone.rdd.getNumPartitions() == len(filled)

    pipe = Pipe(
        spark, cluster, tmp_path, subscribe=both, startingOffsets="earliest", maxOffsetsPerTrigger=1000
    )
    batches = [batch["numInputRows"] for batch in pipe.drain()]
    assert (sum(batches), batches[0]) == (len(wanted), 1000)
    assert pipe.positions() == wanted
    # Queues that were empty get messages later.
    cluster.send(topic, 1, numbered(3))
    pipe.drain()
    assert pipe.positions() == sorted(wanted + offsets(1, 0, 3))


def test_only_empty_topics(spark: SparkSession, cluster: SmallCluster, topic: str, tmp_path: Path) -> None:
    for name in (topic, f"{topic}-too"):
        cluster.create_topic(name, queues=3)
    assert positions(read(spark, cluster, subscribePattern=f"{topic}.*")) == []
    pipe = Pipe(spark, cluster, tmp_path, subscribePattern=f"{topic}.*", startingOffsets="earliest")
    assert pipe.drain() == []
    cluster.send(f"{topic}-too", 2, numbered(2))
    pipe.drain()
    assert pipe.positions() == offsets(2, 0, 2)


def test_bodies_of_four_mebibytes_round_trip(spark: SparkSession, cluster: SmallCluster, topic: str) -> None:
    back = f"{topic}-back"
    for name in (topic, back):
        cluster.create_topic(name, queues=2)
    source = random.Random(4)
    bodies = [source.randbytes(_MAX_MESSAGE_BYTES) for _ in range(6)] + [b"small", bytes(_MEBIBYTE)]
    for number, body in enumerate(bodies):
        message = Message(topic, body, properties={"number": str(number)})
        queue = MessageQueue(topic, "broker-a", number % 2)
        cluster.producer.send(message, queue=queue, timeout_seconds=30)
    wanted = {str(number): hashlib.sha256(body).hexdigest() for number, body in enumerate(bodies)}

    def found(name: str, **options: Any) -> dict[str, str]:
        frame = read(spark, cluster, subscribe=name, checkCrc="true", **options)
        rows = frame.select(
            f.col("properties")["number"].alias("number"), f.sha2("body", 256).alias("sha256")
        )
        return {row.number: row.sha256 for row in rows.collect()}

    assert found(topic) == wanted
    assert found(topic, pullMaxBytes=1024, batchBytes=65536) == wanted
    copy = read(spark, cluster, "body binary, properties map<string,string>", subscribe=topic)
    writer = copy.write.format("rocketmq").option("rocketmq.namesrv.addr", cluster.address)
    writer.option("topic", back).mode("append").save()
    assert found(back) == wanted


# --- stored forms ---


@pytest.fixture(scope="module")
def apaches_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallCluster]:
    """This project's broker on a store of Apache's: every compression, batches, retries, delays."""
    home = tmp_path_factory.mktemp("golden")
    golden_store.unpack("clean", home)
    # Old messages are kept.
    settings = {
        **golden_store.SETTINGS,
        "storePathRootDir": str(home / "store"),
        "fileReservedTime": "1000000",
    }
    with SmallCluster(settings) as running:
        yield running


def test_store_written_by_apaches_broker(spark: SparkSession, apaches_store: SmallCluster) -> None:
    topics = "%RETRY%CG_retry,%DLQ%CG_dlq,SCHEDULE_TOPIC_XXXX"
    wanted = {
        (row["topic"], row["queueId"], row["queueOffset"]): row
        for row in golden_store.manifest("clean")
        if row["inConsumeQueue"] and (row["topic"].startswith("Topic") or row["topic"] in topics.split(","))
    }
    frames = [
        read(spark, apaches_store, checkCrc="true", **where)
        for where in ({"subscribePattern": "Topic.*"}, {"subscribe": topics})
    ]
    rows = {
        (topic, queue_id, offset): row
        for (topic, _, queue_id, offset), row in spark_rows(frames[0].union(frames[1]).collect()).items()
    }
    # Delayed messages that became due while Apache's broker was down are delivered by this broker.
    delivered = rows.keys() - wanted.keys()
    assert {topic for topic, _, _ in delivered} <= {"TopicDelay", "TopicTimer", "%RETRY%CG_retry"}
    assert wanted.keys() <= rows.keys()
    for (topic, queue_id, offset), stored in wanted.items():
        row = rows[topic, queue_id, offset]
        assert hashlib.sha256(row["body"]).hexdigest() == stored["uncompressedBodySha256"]
        for name in ("offsetMsgId", "tags", "keys", "properties", "bornTimestamp", "storeTimestamp", "flag"):
            assert row[name] == stored[name], f"{name} of {topic}/{queue_id}/{offset}"
        assert row["msgId"] == (stored["uniqKey"] or stored["offsetMsgId"])
        assert row["bornHost"] == stored["bornHost"].rpartition(":")[0]
        assert row["reconsumeTimes"] == stored["reconsumeTimes"]


def test_ipv6_addresses(spark: SparkSession, topic: str) -> None:
    loopback = {"brokerIP1": "::1", "brokerIP2": "::1", "bindAddress": "::1"}
    with SmallCluster(loopback) as cluster:
        cluster.create_topic(topic, queues=2)
        cluster.send(topic, 0, (b"%d" % number for number in range(300)), properties={"a": "b"}, tags="t")
        cluster.producer.send(Message(topic, b"long" * 5000))
        stored = pulled(cluster, topic)
        assert {message.born_host[0] for message in stored} == {"::1"}
        assert {message.store_host[0] for message in stored} == {"::1"}
        assert spark_rows(read(spark, cluster, subscribe=topic).collect()) == as_rows(stored)


def test_topic_with_batch_consume_queue(spark: SparkSession, cluster: SmallCluster, topic: str) -> None:
    cluster.admin.create_topic(topic, queues=1, attributes={"+queue.type": "BatchCQ"})
    for size in (1, 200, 7, 50):
        cluster.send(topic, 0, numbered(size), tags="t")
    stored = pulled(cluster, topic)
    assert [message.queue_offset for message in stored] == list(range(258))
    assert spark_rows(read(spark, cluster, subscribe=topic).collect()) == as_rows(stored)
    begin, end = ({topic: {"broker-a": {"0": offset}}} for offset in (100, 205))
    part = read(
        spark, cluster, subscribe=topic, startingOffsets=json.dumps(begin), endingOffsets=json.dumps(end)
    )
    assert positions(part) == offsets(0, 100, 205)
    assert positions(read(spark, cluster, subscribe=topic, minPartitions=5)) == offsets(0, 0, 258)
