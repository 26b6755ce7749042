"""Redelivery of unacknowledged messages: through the retry topic, or to the dead-letter queue after too many.

Source: Apache RocketMQ 5.3.3, PopReviveService.reviveRetry. Apache's broker has no limit and leaves it to
clients. Here the group's `retryMaxTimes` counts, as for messages that a consumer sends back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq_remoting.integer_bounds import INT32_MAX
from rmq_remoting.message_properties import decode_properties, properties_to_string

from ..delivery.inner_message import InnerMessage, StoredMessage, read_message
from ..offsets.table import NO_OFFSET, ConsumerOffsetTable
from ..store.api import CRC_PROPERTY_BYTES, MAX_PROPERTIES_BYTES
from ..topics.names import RETRY_PREFIX, dead_letter_topic
from .retry_topics import normal_topic, pop_retry_topic

if TYPE_CHECKING:
    from rmq_remoting.bodies.group import SubscriptionGroupConfig

    from ..delivery.message_writer import MessageWriter
    from ..settings.pop import PopSettings
    from ..topics.table import TopicTable
    from .check_point import CheckPointKey

_QUEUES: Final = 1
_MOST_BYTES: Final = MAX_PROPERTIES_BYTES - CRC_PROPERTY_BYTES


class Redelivery:
    """Stores messages again for their group."""

    def __init__(
        self,
        settings: PopSettings,
        topics: TopicTable,
        offsets: ConsumerOffsetTable,
        writer: MessageWriter,
        store_host: bytes,
    ) -> None:
        self.redelivered = 0
        self.dead_letters = 0
        self._settings = settings
        self._topics = topics
        self._offsets = offsets
        self._writer = writer
        self._store_host = store_host

    def redeliver(self, key: CheckPointKey, group: SubscriptionGroupConfig, record: bytes) -> None:
        """Store the message of a record again. Raises StoreUnavailable, MessageRejected."""
        stored = read_message(record)
        if stored.message.reconsume_times >= group.retry_max_times:
            self._make_dead(key, stored)
            self.dead_letters += 1
        else:
            self._make_retry(key, stored)
            self._create_topic(key, stored.message.topic)
            self.redelivered += 1
        self._writer.put(self._once_more(stored.message))

    def retry_of(self, key: CheckPointKey, record: bytes) -> InnerMessage:
        """Return the message of a record for the group's retry topic at another broker.

        That broker makes it a dead letter if its retries are used up.
        """
        stored = read_message(record)
        self._make_retry(key, stored)
        return self._once_more(stored.message)

    def _once_more(self, message: InnerMessage) -> InnerMessage:
        message.queue_id = 0
        message.reconsume_times = min(message.reconsume_times + 1, INT32_MAX)
        message.born_host = message.store_host = self._store_host
        return message

    def _make_retry(self, key: CheckPointKey, stored: StoredMessage) -> None:
        message = stored.message
        topic = key.topic
        if not topic.startswith(RETRY_PREFIX):
            topic = pop_retry_topic(topic, key.group, version_2=self._settings.enable_retry_topic_v2)
        message.topic = topic
        fields = decode_properties(message.properties)
        if message.reconsume_times == 0 or "1ST_POP_TIME" not in fields:
            _add(stored, {"1ST_POP_TIME": str(key.pop_time)})

    def _create_topic(self, key: CheckPointKey, topic: str) -> None:
        if topic not in self._topics:
            self._topics.create_for_group(topic, _QUEUES)
            if self._offsets.query(key.group, topic, 0) == NO_OFFSET:
                self._offsets.commit(key.group, topic, 0, 0)

    def _make_dead(self, key: CheckPointKey, stored: StoredMessage) -> None:
        message = stored.message
        message.topic = dead_letter_topic(key.group)
        self._topics.create_for_group(message.topic, _QUEUES)
        fields = decode_properties(message.properties)
        origin = fields.get("RETRY_TOPIC", normal_topic(key.topic, key.group))
        stored_at = (message.store_host + stored.physical_offset.to_bytes(8, "big")).hex().upper()
        origin_id = fields.get("ORIGIN_MESSAGE_ID", stored_at)
        added = {
            "RETRY_TOPIC": origin,
            "ORIGIN_MESSAGE_ID": origin_id,
            "DLQ_ORIGIN_TOPIC": origin,
            "DLQ_ORIGIN_MESSAGE_ID": fields.get("UNIQ_KEY", origin_id),
        }
        _add(stored, added)


def _add(stored: StoredMessage, added: dict[str, str]) -> None:
    """Add properties if they fit into the record: without them the message is still redelivered."""
    fields = {**decode_properties(stored.message.properties), **added}
    raw = properties_to_string(fields).encode("utf-8", "replace")
    if len(raw) <= _MOST_BYTES:
        stored.message.properties = raw
