"""Odd shapes of data, read by Spark from our broker: what it gives is what a plain pull by the SDK gives."""

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
from tests.spark.test_batch_read import places, read
from tests.spark.test_stream_read import Pipe, numbered, offsets
from tests.support import golden_store
from tests.support.broker_requests import send, sent
from tests.support.raw_client import raw_client

_MEBIBYTE = 1024 * 1024
_MAX_MESSAGE_BYTES = 4 * _MEBIBYTE

# Planes, combining marks, directions, what looks like nothing, what means something to JSON, SQL, shells and
# Spark; control characters but for the two that separate properties.
_ODD = (
    [chr(code) for code in (*range(3, 32), 0x7F, 0x80, 0x85, 0xA0, 0xAD)]
    + list("\"'`\\/$%&|;,.:=<>()[]{}*?#!~^-+_@ ")
    + list("aZ09äßñÅİıŁøΩжשع中文字日本한ไ")
    + ["e\u0301", "o\u0308\u0323", "\u0300", "\u200b", "\u200d", "\u202e", "\u2028", "\ufeff", "\uffff"]
    + ["𝄞", "😀", "👩\u200d🚀", "🇳🇴", "\U00020000", "\U0010ffff", "\ue000"]
)  # fmt: skip


def odd_text(source: random.Random, most: int = 30) -> str:
    """A text that is not empty."""
    return "".join(source.choices(_ODD, k=source.randint(1, most)))


def odd_message(topic: str, number: int, source: random.Random) -> Message:
    """One with ten properties, keys and tags; of some the properties are as long as they may be."""
    properties = {f"{place}{odd_text(source, 8)}": odd_text(source) for place in range(9)}
    properties["number"] = str(number)
    if number % 100 == 0:
        properties["long"] = "𝄞é" * (25_000 // len("𝄞é".encode()))
    # Keys are separated by spaces; brokers trim tags.
    keys = [odd_text(source).replace(" ", "_") for _ in range(source.randint(1, 3))]
    return Message(topic, b"%d" % number, tags=odd_text(source), keys=keys, properties=properties)


def test_ten_thousand_odd_properties_there_and_back(
    spark: SparkSession, cluster: SmallCluster, topic: str
) -> None:
    source = random.Random(20_251)
    messages = [odd_message(topic, number, source) for number in range(1000)]
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

    # Written by the sink, they are the same once more.
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


# Properties that no SDK would send, as they travel. What is no UTF-8 our broker refuses.
_BROKEN = [
    b"",
    b"a\x01b",  # no separator at the end
    b"a\x01b\x02a\x01c\x02",  # a name twice
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
    """A message as it stands in a batch: there its properties are bytes that nobody looks at."""
    body = b"body"
    rest = struct.pack(">iiii", 0, 0, 0, len(body)) + body + struct.pack(">h", len(properties)) + properties
    return struct.pack(">i", 4 + len(rest)) + rest


def test_properties_that_are_broken(spark: SparkSession, cluster: SmallCluster, topic: str) -> None:
    """Brokers store what they are sent; each reader has to make the same of it."""
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


def test_256_queues_some_of_them_empty(
    spark: SparkSession, cluster: SmallCluster, topic: str, tmp_path: Path
) -> None:
    cluster.create_topic(topic, queues=256)
    cluster.create_topic(f"{topic}-empty", queues=16)
    filled = {queue_id: queue_id % 7 + 1 for queue_id in range(0, 256, 2)} | {255: 1500}
    for queue_id, count in filled.items():
        cluster.send(topic, queue_id, numbered(count))
    wanted = [place for queue_id, count in sorted(filled.items()) for place in offsets(queue_id, 0, count)]
    both = f"{topic},{topic}-empty"

    packed = read(spark, cluster, subscribe=both)
    assert packed.rdd.getNumPartitions() == 1
    assert places(packed) == wanted
    limited = read(spark, cluster, subscribe=both, maxRecordsPerPartition=300)
    assert 7 <= limited.rdd.getNumPartitions() <= 10
    assert places(limited) == wanted
    split = read(spark, cluster, subscribe=both, minPartitions=12)
    assert split.rdd.getNumPartitions() >= 12
    assert places(split) == wanted
    alone = read(spark, cluster, subscribe=both, packBelowRecords=0)
    assert alone.rdd.getNumPartitions() == len(filled)

    pipe = Pipe(
        spark, cluster, tmp_path, subscribe=both, startingOffsets="earliest", maxOffsetsPerTrigger=1000
    )
    batches = [batch["numInputRows"] for batch in pipe.drain()]
    assert (sum(batches), batches[0]) == (len(wanted), 1000)
    assert pipe.places() == wanted
    # What was empty is filled later.
    cluster.send(topic, 1, numbered(3))
    pipe.drain()
    assert pipe.places() == sorted(wanted + offsets(1, 0, 3))


def test_only_empty_topics(spark: SparkSession, cluster: SmallCluster, topic: str, tmp_path: Path) -> None:
    for name in (topic, f"{topic}-too"):
        cluster.create_topic(name, queues=3)
    assert places(read(spark, cluster, subscribePattern=f"{topic}.*")) == []
    pipe = Pipe(spark, cluster, tmp_path, subscribePattern=f"{topic}.*", startingOffsets="earliest")
    assert pipe.drain() == []
    cluster.send(f"{topic}-too", 2, numbered(2))
    pipe.drain()
    assert pipe.places() == offsets(2, 0, 2)


def test_bodies_of_four_mebibytes_there_and_back(
    spark: SparkSession, cluster: SmallCluster, topic: str
) -> None:
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
    """Our broker on a directory that Apache's wrote: compressed in every way, batches, retries, delays."""
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


def test_what_apaches_broker_stored(spark: SparkSession, apaches_store: SmallCluster) -> None:
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
    # Messages whose time came while Apache's broker was down are delivered by ours.
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


def test_addresses_of_ipv6(spark: SparkSession, topic: str) -> None:
    loopback = {"brokerIP1": "::1", "brokerIP2": "::1", "bindAddress": "::1"}
    with SmallCluster(loopback) as cluster:
        cluster.create_topic(topic, queues=2)
        cluster.send(topic, 0, (b"%d" % number for number in range(300)), properties={"a": "b"}, tags="t")
        cluster.producer.send(Message(topic, b"long" * 5000))
        stored = pulled(cluster, topic)
        assert {message.born_host[0] for message in stored} == {"::1"}
        assert {message.store_host[0] for message in stored} == {"::1"}
        assert spark_rows(read(spark, cluster, subscribe=topic).collect()) == as_rows(stored)


def test_topics_whose_batches_are_one_record(spark: SparkSession, cluster: SmallCluster, topic: str) -> None:
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
    assert places(part) == offsets(0, 100, 205)
    assert places(read(spark, cluster, subscribe=topic, minPartitions=5)) == offsets(0, 0, 258)
