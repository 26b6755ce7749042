"""Store messages on behalf of the broker, at once or for later.

Every part of the broker that stores a message itself, or that has one with a delay, hands it to the message
writer. Delayed messages go to the queue of their level, timed messages to the queue of the timer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rmq_remoting.bounded_cache import ENTRY_OVERHEAD_BYTES, BoundedCache, size_by_key
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
# Takes half of the time of `Written(...)` or less, which calls a Python function first.
_new_tuple: Final = tuple.__new__
_MAX_TEMPLATES: Final = 4096
# A template with its key, but without the topic's name, which is in both.
_TEMPLATE_BYTES: Final = 3 * ENTRY_OVERHEAD_BYTES
_MAX_TEMPLATES_BYTES: Final = 8 * 1024 * 1024
_MAX_TAGS: Final = 4096
_MAX_TAGS_BYTES: Final = 2 * 1024 * 1024
_LONGEST_CACHED_TAGS_BYTES: Final = 255

# Topic, queue id, flag, system flag, reconsume times, length of the born host, store host.
_TemplateKey = tuple[str, int, int, int, int, int, bytes]


class Written(NamedTuple):
    """Where a message was stored.

    `timer_out_ms` is the timer slot of a timed message, None for every other message.
    """

    physical_offset: int
    queue_offset: int
    size_bytes: int
    timer_out_ms: int | None = None


class MessageWriter:
    """Stores messages and counts them; belongs to the loop's thread."""

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
        self._templates: BoundedCache[_TemplateKey, RecordTemplate] = BoundedCache(
            "record_templates",
            max_entries=_MAX_TEMPLATES,
            max_bytes=_MAX_TEMPLATES_BYTES,
            size_of=_template_bytes,
        )
        self._tags_codes: BoundedCache[bytes, int] = BoundedCache(
            "written_tags_codes",
            max_entries=_MAX_TAGS,
            max_bytes=_MAX_TAGS_BYTES,
            size_of=size_by_key,
            max_entry_bytes=ENTRY_OVERHEAD_BYTES + _LONGEST_CACHED_TAGS_BYTES,
        )
        self.levels = levels

    @property
    def caches(self) -> tuple[BoundedCache[Any, Any], ...]:
        """The bounded caches of the writer, for their metrics."""
        return (self._templates, self._tags_codes)

    def put(self, message: InnerMessage, delay_level: int = 0) -> Written:
        """Store a message in its topic, or for later.

        With a level above 0 it is delayed. Otherwise it is timed if its properties have a delivery time that
        has not passed. Raises StoreUnavailable, MessageRejected.
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
        """Store a delayed or timed message that is due. Raises StoreUnavailable, MessageRejected."""
        written = self.put(message)
        self._count_delayed(message.topic, written.size_bytes)

    def put_rolled(self, message: InnerMessage, entry: TimerEntry) -> None:
        """Store a timed message once more in the timer's queue, to wait on; `entry` is its previous entry.

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
        """Store a message in the timer's queue, with its slot and its own queue in its properties.

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
        """Store a message in the queue of its level, with its own queue in its properties.

        (Apache RocketMQ 5.3.3, HookUtils.transformDelayLevelMessage.)
        """
        properties = delayed_properties(message, level)
        delay_ms = self.levels.delay_ms(level)
        written = self._append(message, SCHEDULE_TOPIC, queue_of_level(level), properties, delay_ms)
        self._count_delayed(SCHEDULE_TOPIC, written.size_bytes)
        return written

    def _count_delayed(self, topic: str, size_bytes: int) -> None:
        counted = self._statistics.of_topic(topic)
        counted.delayed_messages += 1
        counted.delayed_bytes += size_bytes

    def _append(
        self, message: InnerMessage, topic: str, queue_id: int, properties: bytes, delay_ms: int | None
    ) -> Written:
        template = self._template(message, topic, queue_id)
        if properties and properties[-1] != _END_OF_PROPERTY and self._append_crc:
            properties += b"\x02"  # the checksum is appended as a property of its own
        if len(properties) > template.max_properties_bytes:
            raise MessageRejected(
                f"the message's properties take {len(properties)} bytes in the store, the limit is "
                f"{template.max_properties_bytes}"
            )
        physical_offset, queue_offset, size_bytes = self._store.put(
            self._store.queues.get_or_create(topic, queue_id),
            template,
            message.body,
            properties,
            tags_code=self._tags_code(properties),
            born_timestamp_ms=message.born_timestamp_ms,
            born_host=message.born_host,
            unique_key=message.unique_key,
            delay_ms=delay_ms,
            prepared_transaction_offset=message.prepared_transaction_offset,
        )
        counted = self._statistics.of_topic(topic)
        counted.put_messages += 1
        counted.put_bytes += size_bytes
        counted.put_sizes.observe(size_bytes)
        return _new_tuple(Written, (physical_offset, queue_offset, size_bytes, None))

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
            self._templates.put(key, template)
        return template

    def _tags_code(self, properties: bytes) -> int:
        tags = find_property(properties, b"TAGS")
        if not tags:
            return 0
        code = self._tags_codes.get(tags)
        if code is None:
            code = self._tags_codes.put(tags, tags_code(tags.decode("utf-8", "replace")))
        return code


def _template_bytes(key: _TemplateKey, template: RecordTemplate) -> int:
    return _TEMPLATE_BYTES + 2 * len(key[0])


def delayed_properties(message: InnerMessage, level: int) -> bytes:
    """Return the properties of a delayed message: with its level, and the topic and queue that it is for."""
    properties = message.properties
    delay = b"DELAY\x01%d\x02" % level
    # Most messages have the level and none of the other properties: appending saves 3 µs of decoding them.
    if (
        properties.count(b"DELAY\x01") == 1
        and (properties.startswith(delay) or b"\x02" + delay in properties)
        and b"TIMER_D" not in properties
        and b"REAL_" not in properties
    ):
        end = b"" if properties[-1] == _END_OF_PROPERTY else b"\x02"
        own_queue = b"REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02" % (message.topic.encode(), message.queue_id)
        return properties + end + own_queue
    fields = decode_properties(properties)
    for name in TIMER_PROPERTIES:  # the level takes precedence (HookUtils.checkIfTimerMessage)
        fields.pop(name, None)
    fields["DELAY"] = str(level)
    fields["REAL_TOPIC"] = message.topic
    fields["REAL_QID"] = str(message.queue_id)
    return properties_to_string(fields).encode("utf-8", "replace")
