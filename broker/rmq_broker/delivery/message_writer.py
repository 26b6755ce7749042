"""Storing what the broker itself stores, at once or with a delay.

This is where messages become delayed ones: whoever has a message that is to come later gives it here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rmq_remoting.java_hash import tags_code
from rmq_remoting.message_properties import decode_properties, find_property, properties_to_string

from ..store.delay_levels import DelayLevels, queue_of_level
from ..store.errors import MessageRejected
from ..store.log.record import RecordTemplate
from ..topics.names import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from ..statistics import BrokerStatistics
    from ..store.message_store import MessageStore
    from .inner_message import InnerMessage


# When a timer message is to come.
TIMER_PROPERTIES: Final = ("TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC")

_END_OF_PROPERTY: Final = 2


class Placed(NamedTuple):
    """Where a message was stored."""

    physical_offset: int
    queue_offset: int
    size: int


class MessageWriter:
    """Appends messages and counts them; belongs to the loop's thread."""

    def __init__(
        self,
        store: MessageStore,
        statistics: BrokerStatistics,
        levels: DelayLevels,
        *,
        append_crc: bool = False,
    ) -> None:
        self._store = store
        self._statistics = statistics
        self._append_crc = append_crc
        self.levels = levels

    def put(self, message: InnerMessage, delay_level: int = 0) -> Placed:
        """Store a message in its topic, or, with a level above 0, for later.

        Raises StoreUnavailable, MessageRejected.
        """
        if delay_level > 0:
            return self._put_delayed(message, self.levels.in_range(delay_level))
        return self._append(message, message.topic, message.queue_id, message.properties, None)

    def put_due(self, message: InnerMessage) -> None:
        """Store a message that has waited. Raises StoreUnavailable, MessageRejected."""
        placed = self.put(message)
        self._count_delayed(message.topic, placed.size)

    def _put_delayed(self, message: InnerMessage, level: int) -> Placed:
        """Into the queue of the level; where it belongs travels along.

        (Apache RocketMQ 5.3.3, HookUtils.transformDelayLevelMessage.)
        """
        properties = delayed_properties(message, level)
        delay_ms = self.levels.delay_ms(level)
        placed = self._append(message, SCHEDULE_TOPIC, queue_of_level(level), properties, delay_ms)
        self._count_delayed(SCHEDULE_TOPIC, placed.size)
        return placed

    def _count_delayed(self, topic: str, size: int) -> None:
        counted = self._statistics.of_topic(topic)
        counted.delayed_messages += 1
        counted.delayed_bytes += size

    def _append(
        self, message: InnerMessage, topic: str, queue_id: int, properties: bytes, delay_ms: int | None
    ) -> Placed:
        template = RecordTemplate(
            topic,
            queue_id,
            flag=message.flag,
            sys_flag=message.sys_flag,
            reconsume_times=message.reconsume_times,
            born_host_bytes=len(message.born_host),
            store_host=message.store_host,
            append_crc=self._append_crc,
        )
        if properties and properties[-1] != _END_OF_PROPERTY and self._append_crc:
            properties += b"\x02"  # the checksum is a property of its own behind them
        if len(properties) > template.max_properties_bytes:
            raise MessageRejected(
                f"the message's properties take {len(properties)} bytes in the store, the limit is "
                f"{template.max_properties_bytes}"
            )
        physical_offset, queue_offset = self._store.put(
            self._store.queues.get_or_create(topic, queue_id),
            template,
            message.body,
            properties,
            tags_code=_tags_code_of(properties),
            born_timestamp_ms=message.born_timestamp_ms,
            born_host=message.born_host,
            delay_ms=delay_ms,
        )
        size = template.fixed_bytes + len(message.body) + len(properties)
        counted = self._statistics.of_topic(topic)
        counted.put_messages += 1
        counted.put_bytes += size
        counted.put_sizes.observe(size)
        return Placed(physical_offset, queue_offset, size)


def delayed_properties(message: InnerMessage, level: int) -> bytes:
    """The properties of a message that waits: its level, and the topic and queue that it is for."""
    fields = decode_properties(message.properties)
    for name in TIMER_PROPERTIES:  # the level counts (HookUtils.checkIfTimerMessage)
        fields.pop(name, None)
    fields["DELAY"] = str(level)
    fields["REAL_TOPIC"] = message.topic
    fields["REAL_QID"] = str(message.queue_id)
    return properties_to_string(fields).encode("utf-8", "replace")


def _tags_code_of(properties: bytes) -> int:
    tags = find_property(properties, b"TAGS")
    return tags_code(tags.decode("utf-8", "replace")) if tags else 0
