"""Popping: messages are taken from a topic's queues and those of its retry topic (PopMessageProcessor).

The queues are walked by a generator, so that one code serves what is in memory, which is answered at once,
and what has to be read from the disk: there the generator waits, and with it the queue for its group.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rmq_remoting.message_codec import decode_stored_message, encode_stored_message
from rmq_remoting.message_errors import MessageDecodeError, MessageEncodeError
from rmq_remoting.message_properties import PROPERTY_CRC32, PROPERTY_POP_CK
from rmq_remoting.pop_receipt import ORDER_REVIVE_QUEUE, Receipt, kind_of

from ..offsets.table import NO_OFFSET, ConsumerOffsetTable
from ..store.api import ColdRead, GetResult, GetStatus, MessageRejected, StoreUnavailable
from ..topics.names import RETRY_PREFIX
from .answer_infos import AnswerInfos
from .answer_size import fitting, records_of
from .check_point import CheckPoint, CheckPointKey, QueueKey
from .retry_topics import popped_retry_topics

if TYPE_CHECKING:
    from ..clock import ClockMs
    from ..settings.broker import BrokerSettings
    from ..statistics.broker_statistics import BrokerStatistics
    from ..store.api import MessageStore
    from ..topics.table import TopicTable
    from .state import PopState

log = logging.getLogger("rmq.broker.pop")

START_AT_OLDEST: Final = 0

# What was committed is not there (any more): the result says where the queue goes on.
MISPLACED: Final = (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_FOUND_NULL)
_PASSED_OVER: Final = (GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING)

# Reads messages of a queue: topic, queue id, offset, most messages.
Read = Callable[[str, int, int, int], "GetResult | ColdRead"]


@dataclass(slots=True)
class Pop:
    """One pop under way: what is asked for, and what was found so far."""

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
    rest: int = 0  # messages that are there and were not given
    passed_over: bool = False  # some that are not wanted, and more may follow
    locked_out: bool = False  # in order: of a queue that is being read from the disk for another
    size_bytes: int = 0
    has_no_room: bool = False  # what comes next does not go into the same answer
    bodies: list[bytes] = field(default_factory=list)
    infos: AnswerInfos = field(default_factory=AnswerInfos)

    @property
    def is_full(self) -> bool:
        """Whether there are as many messages as were asked for, or as go into one answer."""
        return self.count >= self.max_messages or self.has_no_room

    @property
    def is_held_up(self) -> bool:
        """Whether something stands in the way that may be gone soon, with no message coming."""
        return self.rest > 0 or self.locked_out


Walk = Generator[ColdRead, GetResult | None, None]


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
        self._random = random.Random()
        # Queues that a group is reading from the disk.
        self._locked: set[QueueKey] = set()
        self._is_full = False
        self._is_failing = False

    # --- which queues ---

    def walk(self, pop: Pop) -> Walk:
        """Fill a pop; yields what has to be read from the disk, and wants the result of that."""
        settings = self._settings
        chance = self._random.randrange(100)
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
        """The retry topic, or both forms of it.

        Receipts cannot tell the forms apart: only one of them gives something in a pop.
        """
        topics = popped_retry_topics(self._settings, pop.topic, pop.group)
        before = pop.count
        for topic in reversed(topics) if chance % 2 == 0 else topics:
            yield from self._walk_topic(pop, topic, chance)
            if pop.count > before or pop.has_no_room:
                return

    def _walk_topic(self, pop: Pop, name: str, chance: int) -> Walk:
        topic = self._topics.get(name)
        queues = 0 if topic is None else topic.read_queue_nums
        for number in range(queues):
            yield from self._pop_from(pop, QueueKey(name, pop.group, (chance + number) % queues))

    # --- one queue ---

    def _pop_from(self, pop: Pop, key: QueueKey) -> Walk:
        if key in self._locked:
            if pop.in_order:
                pop.locked_out = True
            else:
                pop.rest += self._waiting(key, self._begin(key, pop.init_mode, commit=False))
            return
        if self._must_stop(key):
            pop.rest += self._waiting(key, self._begin(key, pop.init_mode, commit=False))
            return
        offset = self._begin(key, pop.init_mode, commit=True)
        if pop.in_order and self._orders.is_blocked(key, pop.attempt_id, pop.invisible_time_ms):
            # What stands behind is no reason to wake anybody: nobody may have it now.
            return
        if pop.is_full:
            pop.rest += self._waiting(key, offset)
            return
        self._locked.add(key)
        try:
            result = yield from self._read(pop, key, offset)
            if result is not None and result.status in MISPLACED:
                log.warning("%s went on at %d: %d is not there", key, result.next_offset, offset)
                self._positions.reset(key, result.next_offset)
                offset = result.next_offset
                result = yield from self._read(pop, key, offset)
        finally:
            self._locked.discard(key)
        fitted = None if result is None else fitting(result, pop.size_bytes)
        if result is not None and fitted is not result:
            pop.has_no_room = True
        if fitted is None:
            pop.rest += self._waiting(key, offset)
        else:
            self._take(pop, key, offset, fitted)

    def _read(
        self, pop: Pop, key: QueueKey, offset: int
    ) -> Generator[ColdRead, GetResult | None, GetResult | None]:
        result = pop.read(key.topic, key.queue_id, offset, pop.max_messages - pop.count)
        return (yield result) if isinstance(result, ColdRead) else result

    def _take(self, pop: Pop, key: QueueKey, offset: int, result: GetResult) -> None:
        """Hide what was read from others, and give it."""
        if result.status is GetStatus.FOUND:
            records = list(records_of(result.body))
            offsets = tuple(queue_offset for queue_offset, _ in records)
            if not self._hide(pop, key, offset, offsets, result.next_offset):
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
        elif result.status in _PASSED_OVER:
            if result.status is GetStatus.NO_MATCHED_MESSAGE:
                statistics = self._statistics.of_group(key.group, key.topic)
                statistics.filtered_messages += result.next_offset - offset
            if pop.in_order:
                self._offsets.commit(key.group, key.topic, key.queue_id, result.next_offset)
            else:
                self._positions.advance(key, result.next_offset)
            pop.passed_over |= result.next_offset < result.max_offset
        pop.rest += max(0, result.max_offset - result.next_offset)

    def _hide(self, pop: Pop, key: QueueKey, offset: int, offsets: tuple[int, ...], next_offset: int) -> bool:
        """Note that the group has the messages in its hands; False where that cannot be noted."""
        if pop.in_order:
            counts = self._orders.popped(key, pop.pop_time, pop.invisible_time_ms, offsets, pop.attempt_id)
            pop.infos.add_counts(key.topic, key.queue_id, offsets, counts)
            self._offsets.commit(key.group, key.topic, key.queue_id, offset)
            return True
        name = self._settings.broker_name
        point_key = CheckPointKey(key.topic, key.group, key.queue_id, offset, pop.pop_time, name)
        if point_key in self._in_flight:
            return False  # the same messages were popped in the same millisecond: after a reset
        point = CheckPoint(point_key, pop.invisible_time_ms, offsets, pop.revive_queue_id)
        try:
            written = self._journal.check_point(point)
        except (StoreUnavailable, MessageRejected) as error:
            if not self._is_failing:
                log.warning("nothing is popped from %s and others: %s", key, error)
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
        """The records as they are; those of a retry topic under the topic asked for, with receipts."""
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

    # --- where to begin ---

    def begin(self, key: QueueKey) -> int:
        """Where the group would go on in a queue; nothing is noted."""
        return self._begin(key, START_AT_OLDEST, commit=False)

    def _begin(self, key: QueueKey, init_mode: int, *, commit: bool) -> int:
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
        """Where a group begins that has not consumed from the queue (PopMessageProcessor.getInitOffset)."""
        topic, _, queue_id = key
        lowest = self._store.min_offset(topic, queue_id)
        if init_mode == START_AT_OLDEST or topic.startswith(RETRY_PREFIX):
            return lowest
        is_young = lowest <= 0 and self._store.is_in_memory(topic, queue_id, 0)
        if self._settings.init_pop_offset_by_check_msg_in_mem and is_young:
            return 0
        return max(0, self._store.max_offset(topic, queue_id) - 1)

    def _waiting(self, key: QueueKey, offset: int) -> int:
        return max(0, self._store.max_offset(key.topic, key.queue_id) - offset)

    def _must_stop(self, key: QueueKey) -> bool:
        """Whether too much is in consumers' hands already."""
        settings = self._settings
        is_full = len(self._in_flight) >= settings.pop_ck_max_buffer_size
        if is_full != self._is_full:
            self._is_full = is_full
            if is_full:
                log.warning(
                    "%d pops wait for their acknowledgements (popCkMaxBufferSize): no more for now",
                    len(self._in_flight),
                )
        if is_full:
            return True
        return (
            settings.enable_pop_message_threshold
            and self._in_flight.messages_of(key) > settings.pop_inflight_message_threshold
        )


def _under_topic(record: bytes, topic: str, receipt: str) -> bytes:
    """A retry topic's record as one of the topic that it came from, with its receipt as a property."""
    try:
        message = decode_stored_message(record, decompress_body=False)
        message.topic = topic
        message.properties.pop(PROPERTY_CRC32, None)
        message.properties.setdefault(PROPERTY_POP_CK, receipt)
        return encode_stored_message(message)
    except (MessageDecodeError, MessageEncodeError) as error:
        log.error("a message cannot be given as one of %s, its consumer gets it as it is: %s", topic, error)
        return record
