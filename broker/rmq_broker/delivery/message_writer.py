"""Storing what the broker itself stores, at once or with a delay.

This is where messages become delayed and timed ones: who has a message that is to come later gives it here.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from rmq_remoting.java_hash import tags_code
from rmq_remoting.message_properties import (
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_OUT_MS,
    decode_properties,
    find_property,
    properties_to_string,
)

from ..store.api import DelayLevels, MessageRejected, RecordTemplate, queue_of_level
from ..topics.names import SCHEDULE_TOPIC, TIMER_TOPIC, stored_topic_problem
from .timer_admission import TIMER_PROPERTIES
from .timer_entry import TIMER_QUEUE_ID, TimerEntry

if TYPE_CHECKING:
    from ..statistics.broker_statistics import BrokerStatistics
    from ..store.api import MessageStore
    from .inner_message import InnerMessage
    from .timer_admission import Timed, TimerAdmission


_END_OF_PROPERTY: Final = 2
_MAX_TEMPLATES: Final = 4096
# Topic, queue id, flag, system flag, reconsume times, length of the born host, store host.
_TemplateKey = tuple[str, int, int, int, int, int, bytes]


class Written(NamedTuple):
    """Where a message was stored; of one with a time, the slot that it waits in."""

    physical_offset: int
    queue_offset: int
    size_bytes: int
    timer_out_ms: int | None = None


class MessageWriter:
    """Appends messages and counts them; belongs to the loop's thread."""

    def __init__(
        self,
        store: MessageStore,
        statistics: BrokerStatistics,
        levels: DelayLevels,
        timers: TimerAdmission,
        *,
        append_crc: bool = False,
    ) -> None:
        self._store = store
        self._timers = timers
        self._statistics = statistics
        self._append_crc = append_crc
        self._templates: dict[_TemplateKey, RecordTemplate] = {}
        self.levels = levels

    def put(self, message: InnerMessage, delay_level: int = 0) -> Written:
        """Store a message in its topic, or for later: with a level above 0, or with a time in its properties.

        Raises StoreUnavailable, MessageRejected.
        """
        problem = stored_topic_problem(message.topic)
        if problem is not None:
            raise MessageRejected(problem)
        if delay_level > 0:
            return self._put_delayed(message, self.levels.in_range(delay_level))
        timed = self._timers.admit(message)
        if timed is not None:
            return self._put_timed(message, timed)
        return self._append(message, message.topic, message.queue_id, message.properties, None)

    def put_due(self, message: InnerMessage) -> None:
        """Store a message that has waited. Raises StoreUnavailable, MessageRejected."""
        written = self.put(message)
        self._count_delayed(message.topic, written.size_bytes)

    def put_rolled(self, message: InnerMessage, entry: TimerEntry) -> None:
        """Let a message that has waited go on waiting; `entry` is the one that it had.

        Raises StoreUnavailable, MessageRejected.
        """
        written = self._append(message, TIMER_TOPIC, TIMER_QUEUE_ID, message.properties, None)
        self._timers.stored(
            entry._replace(
                queue_offset=written.queue_offset,
                physical_offset=written.physical_offset,
                size=written.size_bytes,
            )
        )

    def _put_timed(self, message: InnerMessage, timed: Timed) -> Written:
        """Into the timer's queue; where it belongs and when its turn comes travel along.

        (Apache RocketMQ 5.3.3, HookUtils.transformTimerMessage.)
        """
        fields = timed.fields
        fields[PROPERTY_TIMER_OUT_MS] = str(timed.out_ms)
        fields[PROPERTY_REAL_TOPIC] = message.topic
        fields[PROPERTY_REAL_QUEUE_ID] = str(message.queue_id)
        properties = properties_to_string(fields).encode("utf-8", "replace")
        written = self._append(message, TIMER_TOPIC, TIMER_QUEUE_ID, properties, None)
        self._count_delayed(TIMER_TOPIC, written.size_bytes)
        self._timers.stored(
            TimerEntry(
                written.queue_offset,
                written.physical_offset,
                written.size_bytes,
                timed.out_ms,
                message.topic,
                PROPERTY_TIMER_DEL_UNIQKEY in fields,
            )
        )
        return written._replace(timer_out_ms=timed.out_ms)

    def _put_delayed(self, message: InnerMessage, level: int) -> Written:
        """Into the queue of the level; where it belongs travels along.

        (Apache RocketMQ 5.3.3, HookUtils.transformDelayLevelMessage.)
        """
        properties = delayed_properties(message, level)
        delay_ms = self.levels.delay_ms(level)
        written = self._append(message, SCHEDULE_TOPIC, queue_of_level(level), properties, delay_ms)
        self._count_delayed(SCHEDULE_TOPIC, written.size_bytes)
        return written

    def _count_delayed(self, topic: str, size: int) -> None:
        counted = self._statistics.of_topic(topic)
        counted.delayed_messages += 1
        counted.delayed_bytes += size

    def _append(
        self, message: InnerMessage, topic: str, queue_id: int, properties: bytes, delay_ms: int | None
    ) -> Written:
        template = self._template(message, topic, queue_id)
        if properties and properties[-1] != _END_OF_PROPERTY and self._append_crc:
            properties += b"\x02"  # the checksum is a property of its own behind them
        if len(properties) > template.max_properties_bytes:
            raise MessageRejected(
                f"the message's properties take {len(properties)} bytes in the store, the limit is "
                f"{template.max_properties_bytes}"
            )
        physical_offset, queue_offset, size = self._store.put(
            self._store.queues.get_or_create(topic, queue_id),
            template,
            message.body,
            properties,
            tags_code=_tags_code_of(properties),
            born_timestamp_ms=message.born_timestamp_ms,
            born_host=message.born_host,
            unique_key=message.unique_key,
            delay_ms=delay_ms,
            prepared_transaction_offset=message.prepared_transaction_offset,
        )
        counted = self._statistics.of_topic(topic)
        counted.put_messages += 1
        counted.put_bytes += size
        counted.put_sizes.observe(size)
        return Written(physical_offset, queue_offset, size)

    def _template(self, message: InnerMessage, topic: str, queue_id: int) -> RecordTemplate:
        key = (
            topic,
            queue_id,
            message.flag,
            message.sys_flag,
            message.reconsume_times,
            len(message.born_host),
            message.store_host,
        )
        template = self._templates.get(key)
        if template is None:
            if len(self._templates) >= _MAX_TEMPLATES:
                self._templates.clear()
            template = self._templates[key] = RecordTemplate(
                topic,
                queue_id,
                flag=message.flag,
                sys_flag=message.sys_flag,
                reconsume_times=message.reconsume_times,
                born_host_bytes=len(message.born_host),
                store_host=message.store_host,
                append_crc=self._append_crc,
            )
        return template


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
    return _hash_of(tags) if tags else 0


@lru_cache(maxsize=4096)
def _hash_of(tags: bytes) -> int:
    return tags_code(tags.decode("utf-8", "replace"))
