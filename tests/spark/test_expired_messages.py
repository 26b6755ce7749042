"""Messages that expire before Spark has read them, and brokers that are down.

The result is an error that names the missing messages, or a warning and the other messages; it is never
silent.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from pyspark_rocketmq.columns import arrow_schema
from pyspark_rocketmq.driver.task_settings import task_settings
from pyspark_rocketmq.errors import DataLoss
from pyspark_rocketmq.offsets import QueueKey
from pyspark_rocketmq.options import ReadOptions
from pyspark_rocketmq.tasks.connection_pool import connection_pool
from pyspark_rocketmq.tasks.ranges import QueueRange, ReadTask
from pyspark_rocketmq.tasks.task_reading import read_task
from rmq_client import Message, MessageQueue, PullStatus, PullWish
from rmq_client.blocking import RawPuller
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.message_codec import decode_messages
from tests.spark.small_cluster import SmallCluster
from tests.spark.test_batch_read import positions, read
from tests.spark.test_stream_read import Pipe, numbered, offsets
from tests.spark.version_marks import needs_trigger_limits
from tests.support.broker_requests import request
from tests.support.raw_client import raw_client
from tests.support.waiting import QUERY_SECONDS, until_in_thread

_LOG_FILE_BYTES = 256 * 1024
_BODY_BYTES = 8000
_BATCH = 10
SMALL_FILES = {
    "mappedFileSizeCommitLog": str(_LOG_FILE_BYTES),
    "mappedFileSizeConsumeQueue": "4000",
    "diskMaxUsedSpaceRatio": "99",
    "flushIntervalCommitLog": "10",
    "flushIntervalConsumeQueue": "10",
    "deleteCommitLogFilesInterval": "0",
    "deleteConsumeQueueFilesInterval": "0",
}


@pytest.fixture(scope="module")
def small_files() -> Iterator[SmallCluster]:
    """A broker whose commit log has small files, so that some of them can be deleted."""
    with SmallCluster(SMALL_FILES) as running:
        yield running


def fill(cluster: SmallCluster, topic: str, count: int) -> None:
    """Return `count` messages, some dozens of which fit into a file of the log."""
    queue = MessageQueue(topic, "broker-a", 0)
    for first in range(0, count, _BATCH):
        messages = [Message(topic, bytes(_BODY_BYTES)) for _ in range(first, min(count, first + _BATCH))]
        cluster.producer.send_batch(messages, queue=queue)


def expire_log_files(cluster: SmallCluster, topic: str) -> int:
    """Make the broker delete all files of its log except the last. Return the queue's oldest offset.

    The files are made to look old. The queue's newest message must be in the last file.
    """
    queue = MessageQueue(topic, "broker-a", 0)
    log = cluster.broker.store_path / "commitlog"
    with RawPuller(cluster.address, group="aging") as puller:
        last = _position(puller, queue, cluster.admin.max_offset(queue) - 1)
        assert last is not None
        last_file = last // _LOG_FILE_BYTES * _LOG_FILE_BYTES
        files = sorted(path for path in log.iterdir() if int(path.name) < last_file)
        assert files
        for path in files:
            os.utime(path, (1_000_000_000, 1_000_000_000))
        until_in_thread(partial(_is_deleted, cluster, files), QUERY_SECONDS)

        def oldest_is_in_the_last_file() -> bool:
            position = _position(puller, queue, cluster.admin.min_offset(queue))
            return position is not None and position >= last_file

        # Queues learn of the deletion a moment later.
        until_in_thread(oldest_is_in_the_last_file, QUERY_SECONDS)
    return cluster.admin.min_offset(queue)


def _is_deleted(cluster: SmallCluster, files: list[Path]) -> bool:
    """Ask the broker to delete expired files, and return whether these are deleted.

    Files whose queue entries are not flushed yet stay.
    """

    async def delete() -> None:
        async with raw_client(cluster.broker.port) as client:
            answer = await client.ask(request(RequestCode.DELETE_EXPIRED_COMMITLOG))
            assert answer.code == ResponseCode.SUCCESS, answer.remark

    if not any(path.exists() for path in files):
        return True
    asyncio.run(delete())
    return False


def _position(puller: RawPuller, queue: MessageQueue, offset: int) -> int | None:
    """Return the position of an offset's message in the log; None if the message no longer exists."""
    answer = puller.pull(queue, offset, PullWish(max_messages=1))
    if answer.status is not PullStatus.FOUND:
        return None
    message = decode_messages(answer.body)[0]
    return message.physical_offset if message.queue_offset == offset else None


def gone(topic: str, begin: int, end: int) -> str:
    """Return the error text for offsets that no longer exist, as a regular expression."""
    queue = rf"{topic}/broker-a/0"
    return rf"{queue}: the messages from offset {begin} to {end - 1} no longer exist"


def test_stream_stopped_beyond_the_retention_time(
    spark: SparkSession,
    small_files: SmallCluster,
    topic: str,
    tmp_path: Path,
) -> None:
    cluster = small_files
    cluster.create_topic(topic, queues=1)
    fill(cluster, topic, 10)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    pipe = Pipe(spark, cluster, tmp_path, **options)
    pipe.drain()
    fill(cluster, topic, 150)
    oldest = expire_log_files(cluster, topic)
    assert oldest > 10
    with pytest.raises(StreamingQueryException, match=gone(topic, 10, oldest)):
        pipe.drain()
    assert pipe.positions() == offsets(0, 0, 10)
    Pipe(spark, cluster, tmp_path, failOnDataLoss="false", **options).drain()
    assert pipe.positions() == offsets(0, 0, 10) + offsets(0, oldest, 160)


def test_batch_read_of_expired_offsets(spark: SparkSession, small_files: SmallCluster, topic: str) -> None:
    small_files.create_topic(topic, queues=1)
    fill(small_files, topic, 150)
    oldest = expire_log_files(small_files, topic)
    begin = json.dumps({topic: {"broker-a": {"0": 3}}})
    with pytest.raises(PySparkException, match=gone(topic, 3, oldest)):
        read(spark, small_files, subscribe=topic, startingOffsets=begin).collect()
    lenient = read(spark, small_files, subscribe=topic, startingOffsets=begin, failOnDataLoss="false")
    assert positions(lenient) == offsets(0, oldest, 150)
    # All requested messages have expired.
    end = json.dumps({topic: {"broker-a": {"0": 7}}})
    where: dict[str, Any] = {"subscribe": topic, "startingOffsets": begin, "endingOffsets": end}
    with pytest.raises(PySparkException, match=gone(topic, 3, 7)):
        read(spark, small_files, **where).collect()
    assert positions(read(spark, small_files, **where, failOnDataLoss="false")) == []
    # Messages that exist are no loss.
    assert positions(read(spark, small_files, subscribe=topic)) == offsets(0, oldest, 150)


def test_messages_expire_between_plan_and_read(
    spark: SparkSession, small_files: SmallCluster, topic: str
) -> None:
    small_files.create_topic(topic, queues=1)
    fill(small_files, topic, 150)
    strict, lenient = (
        read(spark, small_files, subscribe=topic, minPartitions=2, failOnDataLoss=fails).rdd
        for fails in ("true", "false")
    )
    assert strict.getNumPartitions() == lenient.getNumPartitions() == 2
    oldest = expire_log_files(small_files, topic)
    # Either of the two tasks may fail first.
    with pytest.raises(PySparkException, match=f"{gone(topic, 0, 75)}|{gone(topic, 75, oldest)}"):
        strict.collect()
    assert sorted(row.queueOffset for row in lenient.collect()) == list(range(oldest, 150))


@pytest.mark.parametrize("fails", [True, False])
def test_messages_expire_during_a_task(
    small_files: SmallCluster, topic: str, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Without Spark, which cannot pause a task: the rows of the task, batch by batch."""
    count, batch = 30_000, 2000
    small_files.create_topic(topic, queues=1)
    small_files.send(topic, 0, (b"%0100d" % number for number in range(count)))
    options = ReadOptions.for_batch(
        {
            "rocketmq.namesrv.addr": small_files.address,
            "subscribe": topic,
            "batchMessages": str(batch),
            "failOnDataLoss": str(fails),
        }
    )
    task = ReadTask((QueueRange(QueueKey(topic, "broker-a", 0), 0, count),))
    batches = read_task(task, task_settings(options, arrow_schema(["queueOffset", "body"])))
    first = next(batches)
    oldest = expire_log_files(small_files, topic)
    rows = list(first["queueOffset"].to_pylist())
    try:
        if fails:
            with pytest.raises(DataLoss, match=r"no longer exist|had no message"):
                for more in batches:
                    rows += more["queueOffset"].to_pylist()
            # No message before the gap is missing.
            assert rows == list(range(len(rows)))
        else:
            for more in batches:
                rows += more["queueOffset"].to_pylist()
            kept = rows.index(oldest)
            assert rows[:kept] == list(range(kept))
            assert rows[kept:] == list(range(oldest, count))
            assert "no longer exist" in caplog.text
    finally:
        connection_pool().close()
    assert batch <= len(rows) < count


def test_drain_waits_for_a_broker_that_is_down(
    spark: SparkSession, own_cluster: SmallCluster, topic: str, tmp_path: Path
) -> None:
    """With retiredQueues=fail: the name server drops a broker as soon as its connection ends."""
    cluster = own_cluster
    second = cluster.add_broker("broker-b")
    cluster.create_topic(topic, queues=1)
    for name in ("broker-a", "broker-b"):
        cluster.send(topic, 0, numbered(10), name)
    options = {"subscribe": topic, "startingOffsets": "earliest", "retiredQueues": "fail"}
    pipe = Pipe(spark, cluster, tmp_path, **options)
    pipe.drain()
    for name in ("broker-a", "broker-b"):
        cluster.send(topic, 0, numbered(5), name)
    second.kill()
    with pytest.raises(StreamingQueryException, match=rf"brokerTimeout.*{topic}/broker-b/0"):
        Pipe(spark, cluster, tmp_path, brokerTimeout="1s", **options).drain()
    query = pipe.start(availableNow=True)
    cluster.restart(second)
    query.awaitTermination(QUERY_SECONDS)
    assert query.exception() is None
    assert pipe.positions() == offsets(0, 0, 15) + offsets(0, 0, 15, "broker-b")


@needs_trigger_limits
def test_drain_goes_on_without_a_broker_and_reads_the_rest_later(
    spark: SparkSession, own_cluster: SmallCluster, topic: str, tmp_path: Path
) -> None:
    cluster = own_cluster
    second = cluster.add_broker("broker-b")
    cluster.create_topic(topic, queues=1)
    for name in ("broker-a", "broker-b"):
        cluster.send(topic, 0, numbered(10), name)
    pipe = Pipe(spark, cluster, tmp_path, subscribe=topic, startingOffsets="earliest")
    pipe.drain()
    for name in ("broker-a", "broker-b"):
        cluster.send(topic, 0, numbered(5), name)

    def is_listed() -> bool:
        return "broker-b" in cluster.admin.topic_route(topic).brokers

    second.kill()
    until_in_thread(lambda: not is_listed(), QUERY_SECONDS)
    pipe.drain()
    assert pipe.positions() == offsets(0, 0, 15) + offsets(0, 0, 10, "broker-b")
    cluster.restart(second)
    until_in_thread(is_listed, QUERY_SECONDS)
    pipe.drain()
    assert pipe.positions() == offsets(0, 0, 15) + offsets(0, 0, 15, "broker-b")


def test_drain_of_a_recreated_topic_fails(
    spark: SparkSession, own_cluster: SmallCluster, topic: str, tmp_path: Path
) -> None:
    cluster = own_cluster
    cluster.create_topic(topic, queues=1)
    cluster.send(topic, 0, numbered(50))
    pipe = Pipe(spark, cluster, tmp_path, subscribe=topic, startingOffsets="earliest", brokerTimeout="1s")
    pipe.drain()
    cluster.admin.delete_topic(topic)
    cluster.create_topic(topic, queues=1)
    cluster.send(topic, 0, numbered(10))
    with pytest.raises(StreamingQueryException, match=r"was read up to 50 and ends at 10"):
        pipe.drain()


def test_unknown_topic_is_reported_with_suggestions(
    spark: SparkSession, small_files: SmallCluster, topic: str, tmp_path: Path
) -> None:
    small_files.create_topic(topic)
    options = {"subscribe": f"{topic},{topic}s", "topicTimeout": "100ms"}
    said = rf"{topic}s does not exist: .*{small_files.address}.*broker-a; did you mean {topic}\?"
    with pytest.raises(PySparkException, match=said):
        read(spark, small_files, **options).collect()
    with pytest.raises(StreamingQueryException, match=said):
        Pipe(spark, small_files, tmp_path, **options).drain()
    query = Pipe(spark, small_files, tmp_path / "other", **options).start(processingTime="100 milliseconds")
    with pytest.raises(StreamingQueryException, match=said):
        query.awaitTermination(QUERY_SECONDS)
