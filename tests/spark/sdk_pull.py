"""Pulls a topic with the SDK, message by message, as the rows that Spark should return."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from pyspark.sql import Row

from rmq_client import MessageExt, PullStatus
from rmq_client.blocking import RawPuller
from rmq_remoting.message_codec import decode_messages
from tests.spark.small_cluster import ClusterClient

Position = tuple[str, str, int, int]


def pulled(cluster: ClusterClient, topic: str) -> list[MessageExt]:
    """Pull all messages of a topic, queue by queue."""
    messages: list[MessageExt] = []
    with RawPuller(cluster.address, group="plain-pulls") as puller:
        for queue in cluster.admin.topic_route(topic).read_queues:
            offset, end = cluster.admin.min_offset(queue), cluster.admin.max_offset(queue)
            while offset < end:
                answer = puller.pull(queue, offset)
                assert answer.status is PullStatus.FOUND, f"{queue}, offset {offset}: {answer.status}"
                for message in decode_messages(answer.body):
                    message.broker_name = queue.broker_name
                    messages.append(message)
                offset = answer.next_offset
    return messages


def as_rows(messages: Iterable[MessageExt]) -> dict[Position, dict[str, Any]]:
    """Return the expected row of each message, by topic, broker, queue and offset."""
    return {
        (message.topic, message.broker_name, message.queue_id, message.queue_offset): {
            "topic": message.topic,
            "brokerName": message.broker_name,
            "queueId": message.queue_id,
            "queueOffset": message.queue_offset,
            "msgId": message.msg_id,
            "offsetMsgId": message.offset_msg_id,
            "keys": message.properties.get("KEYS"),
            "tags": message.properties.get("TAGS"),
            "body": message.body,
            "properties": message.properties,
            "bornTimestamp": message.born_timestamp,
            "storeTimestamp": message.store_timestamp,
            "bornHost": message.born_host[0],
            "reconsumeTimes": message.reconsume_times,
            "flag": message.flag,
        }
        for message in messages
    }


def spark_rows(rows: Iterable[Row]) -> dict[Position, dict[str, Any]]:
    """Convert rows collected by Spark to the same form. Duplicate messages are an error."""
    found: dict[Position, dict[str, Any]] = {}
    for row in rows:
        position = (row.topic, row.brokerName, row.queueId, row.queueOffset)
        assert position not in found, f"{position} is duplicated"
        found[position] = {name: _plain(value) for name, value in row.asDict().items()}
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    return bytes(value) if isinstance(value, bytearray) else value
