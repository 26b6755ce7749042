"""Popping in order: what each group has in its hands of a queue, so that it gets no more of it meanwhile.

Source: Apache RocketMQ 5.3.3, ConsumerOrderInfoManager and ConsumerOrderInfoLockManager.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import Enum
from typing import Final

from rmq_remoting.bodies.pop import OrderInfo, OrderInfoTable

from ..clock import ClockMs
from ..groups.table import SubscriptionGroupTable
from ..topics.table import TopicTable
from .check_point import QueueKey

_SEPARATOR: Final = "@"
# What nobody has consumed for so long is forgotten.
_KEEP_MS: Final = 24 * 3600 * 1000
# So many noted times may not count any more, besides one for each queue.
_MAX_STALE: Final = 1000


class OrderAckProblem(Enum):
    """Why an acknowledgement changes nothing."""

    NOT_POPPED = "the message is none of those that were popped last"
    POPPED_AGAIN = "the messages have been popped again since"


class OrderTable:
    """Messages in hand by topic, group and queue, with its persistent form (`consumerOrderInfo.json`)."""

    def __init__(self, topics: TopicTable, groups: SubscriptionGroupTable, now_ms: ClockMs) -> None:
        self.revision = 0
        self._topics = topics
        self._groups = groups
        self._now_ms = now_ms
        self._table: dict[str, dict[int, OrderInfo]] = {}
        # When queues may be popped again though not all was acknowledged.
        self._free_at: list[tuple[int, QueueKey]] = []
        # Of each queue the only one of these times that counts.
        self._free_times: dict[QueueKey, int] = {}

    def get(self, key: QueueKey) -> OrderInfo | None:
        """What a group has in its hands."""
        return self._table.get(_name(key), {}).get(key.queue_id)

    def popped(
        self,
        key: QueueKey,
        pop_time: int,
        invisible_time_ms: int,
        offsets: Sequence[int],
        attempt_id: str | None,
    ) -> dict[int, int]:
        """Messages were given out; how often each was given before, where it was.

        Who asks again with the same attempt id has not had the answer: that does not count.
        """
        before = self.get(key)
        counts: dict[int, int] = {}
        if before is not None:
            known = before.offset_consumed_count or {}
            if before.attempt_id is not None and before.attempt_id == attempt_id:
                counts = known
            else:
                given = set(before.queue_offsets())
                counts = {offset: known.get(offset, 0) + 1 for offset in offsets if offset in given}
        first = offsets[0]
        info = OrderInfo(
            pop_time=pop_time,
            invisible_time_ms=invisible_time_ms,
            offset_list=[first, *(offset - first for offset in offsets[1:])],
            offset_consumed_count=None if before is None else counts,
            last_consume_timestamp=self._now_ms(),
            attempt_id=attempt_id,
        )
        self.restore(key, info)
        return {offset: times for offset, times in counts.items() if offset in set(offsets)}

    def is_blocked(self, key: QueueKey, attempt_id: str | None, invisible_time_ms: int) -> bool:
        """Whether the group has messages of the queue in its hands that still are invisible."""
        info = self.get(key)
        if info is None or not info.offset_list:
            return False
        if info.attempt_id is not None and info.attempt_id == attempt_id:
            return False
        now_ms = self._now_ms()
        return any(now_ms < visible for visible in self._visible_times(info, invisible_time_ms))

    def ack(self, key: QueueKey, offset: int, pop_time: int) -> int | OrderAckProblem:
        """A message was consumed: the offset to commit."""
        info = self.get(key)
        if info is None:
            return offset + 1
        offsets = info.queue_offsets()
        if offsets and pop_time != info.pop_time:
            return OrderAckProblem.POPPED_AGAIN
        if offset not in offsets:
            return OrderAckProblem.NOT_POPPED
        info.commit_offset_bit |= 1 << offsets.index(offset)
        self._changed(key, info)
        return next(self._open(info), offsets[-1] + 1)

    def hide(self, key: QueueKey, offset: int, pop_time: int, visible_at_ms: int) -> OrderAckProblem | None:
        """Have a message become visible at another time."""
        info = self.get(key)
        if info is None or offset not in info.queue_offsets():
            return OrderAckProblem.NOT_POPPED
        if pop_time != info.pop_time:
            return OrderAckProblem.POPPED_AGAIN
        info.offset_next_visible_time = {**(info.offset_next_visible_time or {}), offset: visible_at_ms}
        self._changed(key, info)
        return None

    def clear(self, key: QueueKey) -> None:
        """Forget what the group has in its hands."""
        if self._table.get(_name(key), {}).pop(key.queue_id, None) is not None:
            self.revision += 1

    def restore(self, key: QueueKey, info: OrderInfo) -> None:
        """Take over what a group has in its hands."""
        self._table.setdefault(_name(key), {})[key.queue_id] = info
        self._changed(key, info)

    def forget_consumed(self, committed: Callable[[QueueKey], int]) -> None:
        """Forget what stands before the groups' committed offsets: they have gone past it."""
        for name, by_queue in self._table.items():
            topic, _, group = name.partition(_SEPARATOR)
            for queue_id, info in list(by_queue.items()):
                offsets = info.queue_offsets()
                if offsets and offsets[-1] < committed(QueueKey(topic, group, queue_id)):
                    del by_queue[queue_id]
                    self.revision += 1

    def forget_topics(self, topics: Collection[str]) -> None:
        """Topics were deleted."""
        for name in [name for name in self._table if name.partition(_SEPARATOR)[0] in topics]:
            del self._table[name]
            self.revision += 1

    def forget_group(self, group: str) -> None:
        """A group was deleted."""
        for name in [name for name in self._table if name.partition(_SEPARATOR)[2] == group]:
            del self._table[name]
            self.revision += 1

    # --- when queues get free by themselves ---

    def freed(self, wake: Callable[[QueueKey], None]) -> None:
        """Tell of the queues that may be popped by now; to be called from time to time."""
        now_ms = self._now_ms()
        while self._free_at and self._free_at[0][0] <= now_ms:
            free_at, key = heapq.heappop(self._free_at)
            if self._free_times.get(key) != free_at:
                continue
            del self._free_times[key]
            if not self.is_blocked(key, None, 0):
                wake(key)

    # --- persistence ---

    def encode(self) -> bytes:
        """The content of `consumerOrderInfo.json`, less what nobody needs any more."""
        self._clean()
        return OrderInfoTable(table=self._table).encode()

    def decode(self, content: bytes) -> None:
        """Take over what `consumerOrderInfo.json` holds; raises BodyError."""
        self._table = OrderInfoTable.decode(content).table
        for name, by_queue in self._table.items():
            topic, _, group = name.partition(_SEPARATOR)
            for queue_id, info in by_queue.items():
                self._note_free_time(QueueKey(topic, group, queue_id), info)

    # --- inside ---

    def _changed(self, key: QueueKey, info: OrderInfo) -> None:
        self.revision += 1
        self._note_free_time(key, info)

    def _note_free_time(self, key: QueueKey, info: OrderInfo) -> None:
        free_at = max(self._visible_times(info, 0), default=0)
        if free_at > self._now_ms() and self._free_times.get(key) != free_at:
            self._free_times[key] = free_at
            if len(self._free_at) > 2 * len(self._free_times) + _MAX_STALE:
                self._free_at = [(time, queue) for queue, time in self._free_times.items()]
                heapq.heapify(self._free_at)
            else:
                heapq.heappush(self._free_at, (free_at, key))

    @staticmethod
    def _open(info: OrderInfo) -> Iterator[int]:
        """The offsets that are not acknowledged."""
        for index, offset in enumerate(info.queue_offsets()):
            if not info.commit_offset_bit >> index & 1:
                yield offset

    def _visible_times(self, info: OrderInfo, invisible_time_ms: int) -> Iterator[int]:
        """When each message becomes visible that is not acknowledged."""
        changed = info.offset_next_visible_time or {}
        usual = info.pop_time + (info.invisible_time_ms or invisible_time_ms)
        for offset in self._open(info):
            yield changed.get(offset, usual)

    def _clean(self) -> None:
        now_ms = self._now_ms()
        for name, by_queue in list(self._table.items()):
            topic_name, _, group = name.partition(_SEPARATOR)
            topic = self._topics.get(topic_name)
            if topic is None or group not in self._groups:
                del self._table[name]
                continue
            for queue_id, info in list(by_queue.items()):
                is_old = now_ms - info.last_consume_timestamp > _KEEP_MS
                if queue_id >= topic.read_queue_nums or is_old:
                    del by_queue[queue_id]
            if not by_queue:
                del self._table[name]


def _name(key: QueueKey) -> str:
    return f"{key.topic}{_SEPARATOR}{key.group}"
