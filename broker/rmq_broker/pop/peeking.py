"""Peeking: reading the messages that a group would pop next, without a change.

Source: Apache RocketMQ 5.3.3, PeekMessageProcessor.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ..delivery.turns import ITEMS_PER_SLICE
from ..store.api import ColdRead, GetStatus
from .answer_size import fitting
from .check_point import QueueKey
from .popping import OUT_OF_RANGE
from .retry_topics import pop_retry_topic
from .walk import PAUSE, QueueRead, Walk

if TYPE_CHECKING:
    from ..settings.pop import PopSettings
    from ..store.api import MessageStore
    from ..topics.table import TopicTable
    from .popping import Popping

# One peek in five reads the retry topic first: the other four may be full before they get there.
_RETRY_FIRST_EVERY: Final = 5


@dataclass(slots=True)
class Peek:
    """One peek under way: the request, and the messages found so far."""

    topic: str
    group: str
    queue_id: int  # negative: any
    max_messages: int
    count: int = 0
    rest: int = 0  # messages ahead of the group, including the found ones
    size_bytes: int = 0
    is_size_reached: bool = False  # the next message does not fit into the response
    bodies: list[bytes] = field(default_factory=list)


class Peeking:
    """Reads at the positions of groups."""

    def __init__(
        self, settings: PopSettings, topics: TopicTable, store: MessageStore, popping: Popping
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._store = store
        self._popping = popping
        self.chance = random.Random()

    def walk(self, peek: Peek) -> Walk:
        """Fill a peek. Yields each read that needs the disk, and is sent its result (None: read refused)."""
        topic, group = peek.topic, peek.group
        retry_topic = pop_retry_topic(topic, group, version_2=self._settings.enable_retry_topic_v2)
        retry_first = self.chance.randrange(_RETRY_FIRST_EVERY) == 0
        if retry_first:
            yield from self._walk_topic(peek, retry_topic)
        if peek.queue_id < 0:
            yield from self._walk_topic(peek, topic)
        else:
            yield from self._look_into(peek, QueueKey(topic, group, peek.queue_id))
        if not retry_first:
            yield from self._walk_topic(peek, retry_topic)

    def _walk_topic(self, peek: Peek, topic: str) -> Walk:
        config = self._topics.get(topic)
        count = 0 if config is None else config.read_queue_nums
        first = self.chance.randrange(count) if count else 0
        for number in range(count):
            if number and number % ITEMS_PER_SLICE == 0:
                yield PAUSE
            yield from self._look_into(peek, QueueKey(topic, peek.group, (first + number) % count))

    def _look_into(self, peek: Peek, key: QueueKey) -> Walk:
        offset = self._popping.start_offset(key)
        peek.rest += max(0, self._store.max_offset(key.topic, key.queue_id) - offset)
        if peek.is_size_reached or peek.count >= peek.max_messages:
            return
        result = yield from self._read(peek, key, offset)
        if result is not None and result.status in OUT_OF_RANGE:
            result = yield from self._read(peek, key, result.next_offset)
        if result is None or result.status is not GetStatus.FOUND:
            return
        fitted = fitting(result, peek.size_bytes)
        peek.is_size_reached = fitted is not result
        if fitted is not None:
            peek.bodies.append(fitted.body)
            peek.count += fitted.count
            peek.size_bytes += len(fitted.body)

    def _read(self, peek: Peek, key: QueueKey, offset: int) -> QueueRead:
        most = peek.max_messages - peek.count
        result = self._store.get_now(key.topic, key.queue_id, offset, most, None)
        return (yield result) if isinstance(result, ColdRead) else result
