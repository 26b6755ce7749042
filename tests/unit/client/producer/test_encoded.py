"""Sends of encoded messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_client import ClientSettings, Message, NotRunning, RetryPolicy, TopicNotFound, UsageError
from rmq_client.producer.encoded import EncodedProducer
from rmq_client.producer.encoding import Outgoing
from rmq_remoting.message_batch import encode_batch
from tests.support.clusters import RunningCluster, running_cluster


def _producer(cluster: RunningCluster) -> EncodedProducer:
    return EncodedProducer(cluster.address, "g", ClientSettings(), RetryPolicy())


async def test_encoded_batches_and_messages_are_sent_unchanged(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, {"broker-a": {"T": 2}}) as cluster:
        producer = _producer(cluster)
        await producer.start()
        try:
            queues = await producer.queues("T", 3.0)
            batch = encode_batch([Message("T", b"1", tags="a"), Message("T", b"2")])
            stored = await producer.send("T", queues[1], Outgoing(batch, b"", batch=True), 3.0)
            assert stored.queue_id == 1
            await producer.send("T", None, Outgoing(b"3", b"TAGS\x01b\x02"), 3.0)
            assert await producer.has_brokers()
        finally:
            await producer.stop()
        messages = cluster.broker.messages()
        assert [message.body for message in messages] == [b"1", b"2", b"3"]
        assert messages[0].tags == "a"


async def test_a_topic_without_a_route_raises(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        producer = _producer(cluster)
        await producer.start()
        try:
            with pytest.raises(TopicNotFound):
                await producer.send("U", None, Outgoing(b"1", b""), 3.0)
        finally:
            await producer.stop()


async def test_an_encoded_producer_starts_once(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        producer = _producer(cluster)
        with pytest.raises(NotRunning):
            await producer.queues("T", 1.0)
        with pytest.raises(NotRunning):
            await producer.has_brokers()
        await producer.start()
        with pytest.raises(UsageError, match="started already"):
            await producer.start()
        await producer.stop()
        with pytest.raises(NotRunning):
            await producer.send("T", None, Outgoing(b"1", b""), 1.0)


def test_bad_group_names() -> None:
    with pytest.raises(UsageError):
        EncodedProducer("127.0.0.1:9876", "not a group", ClientSettings(), RetryPolicy())
