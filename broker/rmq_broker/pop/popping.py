"""Popping: messages are taken from the queues of a topic and of its retry topics.

Source: Apache RocketMQ 5.3.3, PopMessageProcessor. A generator walks the queues. It yields the reads that
need the disk, so that the same code answers at once if all messages are in memory. While it waits for a read,
the queue is locked for its group. It also yields between slices of a topic with many queues.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rmq_remoting.message_codec import decode_stored_message, encode_stored_message
from rmq_remoting.message_errors import MessageDecodeError, MessageEncodeError
from rmq_remoting.message_properties import PROPERTY_CRC32, PROPERTY_POP_CK
from rmq_remoting.pop_receipt import ORDER_REVIVE_QUEUE, Receipt, kind_of

from ..delivery.turns import ITEMS_PER_SLICE
from ..offsets.table import NO_OFFSET, ConsumerOffsetTable
from ..store.api import ColdRead, GetResult, GetStatus, MessageRejected, StoreUnavailable
from ..topics.names import RETRY_PREFIX
from .answer_infos import AnswerInfos
from .answer_size import fitting, records_of
from .check_point import CheckPoint, CheckPointKey, QueueKey
from .retry_topics import popped_retry_topics
from .walk import PAUSE, QueueRead, Walk

if TYPE_CHECKING:
    from ..clock import ClockMs
    from ..settings.broker import BrokerSettings
    from ..statistics.broker_statistics import BrokerStatistics
    from ..store.api import MessageStore
    from ..topics.table import TopicTable
    from .state import PopState

log = logging.getLogger("rmq.broker.pop")

START_AT_OLDEST: Final = 0

# The position is out of the queue's range: the result says where to continue.
OUT_OF_RANGE: Final = (
    GetStatus.OFFSET_TOO_SMALL,
    GetStatus.OFFSET_OVERFLOW_BADLY,
    GetStatus.OFFSET_FOUND_NULL,
)
_SKIPPED: Final = (GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING)

# Reads messages of a queue, by topic, queue id, offset and limit of messages.
Read = Callable[[str, int, int, int], "GetResult | ColdRead"]


@dataclass(slots=True)
class Pop:
    """One pop under way: the request, and the messages found so far."""

    topic: str
    group: str
    queue_id: int  # negative: any
    max_messages: int
    invisible_time_ms: int
    init_mode: int
    in_order: bool
    attempt_id: str | None
    read: Read
    pop_time: int = 0
    revive_queue_id: int = 0
    count: int = 0
    rest: int = 0  # messages that the queues hold beyond the given ones
    has_skipped: bool = False  # messages that the filter rejects were skipped, and more messages follow
    is_locked_out: bool = False  # ordered: another pop reads a queue from the disk
    size_bytes: int = 0
    is_size_reached: bool = False  # the next message does not fit into the response
    bodies: list[bytes] = field(default_factory=list)
    infos: AnswerInfos = field(default_factory=AnswerInfos)

    @property
    def is_full(self) -> bool:
        """Whether the pop has as many messages as were requested, or as fit into one response."""
        return self.count >= self.max_messages or self.is_size_reached

    @property
    def is_blocked(self) -> bool:
        """Whether the queues hold messages that a limit, a lock or a full disk keeps from the pop."""
        return self.rest > 0 or self.is_locked_out


class Popping:
    """Takes messages from queues."""

    def __init__(
        self,
        settings: BrokerSettings,
        state: PopState,
        topics: TopicTable,
        store: MessageStore,
        offsets: ConsumerOffsetTable,
        statistics: BrokerStatistics,
        now_ms: ClockMs,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._store = store
        self._offsets = offsets
        self._journal = state.journal
        self._in_flight = state.in_flight
        self._positions = state.positions
        self._orders = state.orders
        self._statistics = statistics
        self._now_ms = now_ms
        self._pops = 0
        self.chance = random.Random()
        # Queues that are being read from the disk for a group.
        self._locked: set[QueueKey] = set()
        self._is_full = False
        self._is_failing = False

    # --- which queues ---

    def walk(self, pop: Pop) -> Walk:
        """Fill a pop. Yields each read that needs the disk, and is sent its result (None: read refused).

        After each pause the caller checks again that the group may pop from the topic.
        """
        settings = self._settings
        chance = self.chance.randrange(100)
        pop.pop_time = self._now_ms()
        pop.revive_queue_id = ORDER_REVIVE_QUEUE
        if not pop.in_order:
            pop.revive_queue_id = self._pops % settings.revive_queue_nums
            self._pops += 1
        retry_first = not pop.in_order and chance < settings.pop_from_retry_probability
        if retry_first:
            yield from self._walk_retry_topics(pop, chance)
        if pop.queue_id < 0:
            yield from self._walk_topic(pop, pop.topic, chance)
        else:
            yield from self._pop_from(pop, QueueKey(pop.topic, pop.group, pop.queue_id))
        if not pop.in_order and not retry_first and not pop.is_full:
            yield from self._walk_retry_topics(pop, chance)

    def _walk_retry_topics(self, pop: Pop, chance: int) -> Walk:
        """Pop from the retry topic, or from both forms of its name.

        Receipts do not tell the two forms apart, so one pop takes messages of one form only.
        """
        topics = popped_retry_topics(self._settings, pop.topic, pop.group)
        before = pop.count
        for topic in reversed(topics) if chance % 2 == 0 else topics:
            yield from self._walk_topic(pop, topic, chance)
            if pop.count > before or pop.is_size_reached:
                return

    def _walk_topic(self, pop: Pop, name: str, chance: int) -> Walk:
        topic = self._topics.get(name)
        queues = 0 if topic is None else topic.read_queue_nums
        for number in range(queues):
            if number and number % ITEMS_PER_SLICE == 0:
                yield PAUSE
                topic = self._topics.get(name)
            queue_id = (chance + number) % queues
            if topic is None or queue_id >= topic.read_queue_nums:
                continue  # removed during a pause
            yield from self._pop_from(pop, QueueKey(name, pop.group, queue_id))

    # --- one queue ---

    def _pop_from(self, pop: Pop, key: QueueKey) -> Walk:
        if self._store.holds_reads:
            pop.rest += 1  # the pop looks again soon
            return
        if key in self._locked:
            if pop.in_order:
                pop.is_locked_out = True
            else:
                pop.rest += self._backlog(key, self._start_offset(key, pop.init_mode, commit=False))
            return
        if self._is_at_limit(key):
            pop.rest += self._backlog(key, self._start_offset(key, pop.init_mode, commit=False))
            return
        offset = self._start_offset(key, pop.init_mode, commit=True)
        if pop.in_order and self._orders.is_blocked(key, pop.attempt_id, pop.invisible_time_ms):
            # No pop may have the messages behind those in flight, so they do not count as `rest`.
            return
        if pop.is_full:
            pop.rest += self._backlog(key, offset)
            return
        self._locked.add(key)
        try:
            result = yield from self._read(pop, key, offset)
            if result is not None and result.status in OUT_OF_RANGE:
                log.warning(
                    "pop offset out of range queue=%s offset=%d; continuing at %d",
                    key,
                    offset,
                    result.next_offset,
                )
                self._positions.reset(key, result.next_offset)
                offset = result.next_offset
                result = yield from self._read(pop, key, offset)
        finally:
            self._locked.discard(key)
        fitted = None if result is None else fitting(result, pop.size_bytes)
        if result is not None and fitted is not result:
            pop.is_size_reached = True
        if fitted is None:
            pop.rest += self._backlog(key, offset)
        else:
            self._take(pop, key, offset, fitted)

    def _read(self, pop: Pop, key: QueueKey, offset: int) -> QueueRead:
        result = pop.read(key.topic, key.queue_id, offset, pop.max_messages - pop.count)
        return (yield result) if isinstance(result, ColdRead) else result

    def _take(self, pop: Pop, key: QueueKey, offset: int, result: GetResult) -> None:
        """Make the read messages invisible for other pops, and add them to this one."""
        if result.status is GetStatus.FOUND:
            records = records_of(result.body)
            offsets = tuple(queue_offset for queue_offset, _ in records)
            if not self._make_invisible(pop, key, offset, offsets, result.next_offset):
                pop.rest += len(offsets)
                return
            pop.infos.add(key.topic, key.queue_id, offset, offsets)
            bodies = self._bodies(pop, key, offset, records, result.body)
            pop.bodies += bodies
            pop.size_bytes += sum(map(len, bodies))
            pop.count += len(offsets)
            statistics = self._statistics.of_group(key.group, key.topic)
            statistics.answers += 1
            statistics.got_messages += len(offsets)
            statistics.got_bytes += len(result.body)
            statistics.filtered_messages += result.next_offset - offset - len(offsets)
        elif result.status in _SKIPPED:
            if result.status is GetStatus.NO_MATCHED_MESSAGE:
                statistics = self._statistics.of_group(key.group, key.topic)
                statistics.filtered_messages += result.next_offset - offset
            if pop.in_order:
                self._offsets.commit(key.group, key.topic, key.queue_id, result.next_offset)
            else:
                self._positions.advance(key, result.next_offset)
            pop.has_skipped |= result.next_offset < result.max_offset
        pop.rest += max(0, result.max_offset - result.next_offset)

    def _make_invisible(
        self, pop: Pop, key: QueueKey, offset: int, offsets: tuple[int, ...], next_offset: int
    ) -> bool:
        """Record the messages as in flight; False if that is not possible now."""
        if pop.in_order:
            counts = self._orders.popped(key, pop.pop_time, pop.invisible_time_ms, offsets, pop.attempt_id)
            pop.infos.add_counts(key.topic, key.queue_id, offsets, counts)
            self._offsets.commit(key.group, key.topic, key.queue_id, offset)
            return True
        name = self._settings.broker_name
        point_key = CheckPointKey(key.topic, key.group, key.queue_id, offset, pop.pop_time, name)
        if point_key in self._in_flight:
            return False  # after a reset, the same messages were popped in the same millisecond
        point = CheckPoint(point_key, pop.invisible_time_ms, offsets, pop.revive_queue_id)
        try:
            written = self._journal.check_point(point)
        except (StoreUnavailable, MessageRejected) as error:
            if not self._is_failing:
                log.warning(
                    "check points not stored queue=%s cause=%s; pops find no messages until it is resolved",
                    key,
                    error,
                )
            self._is_failing = True
            return False
        self._is_failing = False
        self._in_flight.add(point)
        self._positions.advance(key, next_offset, written)
        self._statistics.check_points.add(pop.group, pop.topic)
        return True

    def _bodies(
        self, pop: Pop, key: QueueKey, offset: int, records: list[tuple[int, bytes]], whole: bytes
    ) -> list[bytes]:
        """Return the records; those of a retry topic under the requested topic, with their receipts."""
        settings = self._settings
        if key.topic == pop.topic or settings.pop_response_returns_retry_topic:
            return [whole]
        bodies = []
        for queue_offset, record in records:
            receipt = Receipt(
                offset,
                pop.pop_time,
                pop.invisible_time_ms,
                pop.revive_queue_id,
                kind_of(key.topic),
                settings.broker_name,
                key.queue_id,
                queue_offset,
            )
            bodies.append(_under_topic(record, pop.topic, str(receipt)))
        return bodies

    # --- start offsets ---

    def start_offset(self, key: QueueKey) -> int:
        """Return the offset at which the group's next pop of a queue begins; changes nothing."""
        return self._start_offset(key, START_AT_OLDEST, commit=False)

    def _start_offset(self, key: QueueKey, init_mode: int, *, commit: bool) -> int:
        if commit:
            reset = self._offsets.take_reset(key.group, key.topic, key.queue_id)
            if reset != NO_OFFSET:
                self._orders.clear(key)
                self._positions.reset(key, reset)
                return reset
        offset = self._positions.get(key)
        if offset == NO_OFFSET:
            offset = self._initial_offset(key, init_mode)
            if commit:
                self._offsets.commit(key.group, key.topic, key.queue_id, offset)
        return offset

    def _initial_offset(self, key: QueueKey, init_mode: int) -> int:
        """Return the first offset of a group new to the queue (PopMessageProcessor.getInitOffset)."""
        topic, _, queue_id = key
        lowest = self._store.min_offset(topic, queue_id)
        if init_mode == START_AT_OLDEST or topic.startswith(RETRY_PREFIX):
            return lowest
        is_young = lowest <= 0 and self._store.is_first_in_memory(topic, queue_id)
        if self._settings.init_pop_offset_by_check_msg_in_mem and is_young:
            return 0
        return max(0, self._store.max_offset(topic, queue_id) - 1)

    def _backlog(self, key: QueueKey, offset: int) -> int:
        return max(0, self._store.max_offset(key.topic, key.queue_id) - offset)

    def _is_at_limit(self, key: QueueKey) -> bool:
        """Tell whether a limit of messages in flight is reached."""
        settings = self._settings
        is_full = len(self._in_flight) >= settings.pop_ck_max_buffer_size
        if is_full != self._is_full:
            self._is_full = is_full
            if is_full:
                log.warning(
                    "popCkMaxBufferSize reached pops_in_flight=%d; pops find no messages until some are "
                    "acknowledged",
                    len(self._in_flight),
                )
        if is_full:
            return True
        return (
            settings.enable_pop_message_threshold
            and self._in_flight.message_count(key) > settings.pop_inflight_message_threshold
        )


def _under_topic(record: bytes, topic: str, receipt: str) -> bytes:
    """Return a retry topic's record as one of the original topic, with its receipt as a property."""
    try:
        message = decode_stored_message(record, decompress_body=False)
        message.topic = topic
        message.properties.pop(PROPERTY_CRC32, None)
        message.properties.setdefault(PROPERTY_POP_CK, receipt)
        return encode_stored_message(message)
    except (MessageDecodeError, MessageEncodeError) as error:
        log.error("retry message not rewritten topic=%s cause=%s; delivering it as stored", topic, error)
        return record
