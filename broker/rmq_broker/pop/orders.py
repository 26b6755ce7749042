"""Ordered pops: the messages that a group has in flight of a queue block the queue for the group.

Source: Apache RocketMQ 5.3.3, ConsumerOrderInfoManager and ConsumerOrderInfoLockManager.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import Enum
from typing import Final

from rmq_remoting.bodies import fastjson
from rmq_remoting.bodies.pop import OrderInfo, OrderInfoTable

from ..clock import Clocks, ClockSteps
from ..groups.table import SubscriptionGroupTable
from ..topics.table import TopicTable
from .check_point import QueueKey

_SEPARATOR: Final = "@"
# Entries of a group that has consumed nothing for this long are dropped.
_KEEP_MS: Final = 24 * 3600 * 1000
# How many stale times the heap may hold in addition to two per queue.
_MAX_STALE: Final = 1000
# Queues that are woken in one iteration of the loop: 0.6 ms.
_MOST_WOKEN: Final = 128
# Entries that are encoded in one step: 0.6 ms.
_ENTRIES_PER_STEP: Final = 128


class OrderAckProblem(Enum):
    """Why an acknowledgement changes nothing."""

    NOT_POPPED = "the message is not among those popped last"
    POPPED_AGAIN = "the messages have been popped again since"


class OrderTable:
    """Messages in flight by topic, group and queue, and their persistent form (`consumerOrderInfo.json`)."""

    def __init__(
        self,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        clocks: Clocks,
        on_blocked: Callable[[], None],
    ) -> None:
        """`on_blocked` is called when `wake_unblocked` gets work."""
        self.revision = 0
        self._on_blocked = on_blocked
        self._topics = topics
        self._groups = groups
        self._now_ms = clocks.now_ms
        self._steps = ClockSteps(clocks)
        self._table: dict[str, dict[int, OrderInfo]] = {}
        # Their encoded form, by the same names and queue ids, as far as it is up to date.
        self._encoded: dict[str, dict[int, bytes]] = {}
        # Times at which queues can be popped again although messages are unacknowledged.
        self._unblock_heap: list[tuple[int, QueueKey]] = []
        # The valid time of each queue; all others in the heap are stale.
        self._unblock_time: dict[QueueKey, int] = {}

    def get(self, key: QueueKey) -> OrderInfo | None:
        """Return the messages of a queue that a group has in flight, or had last."""
        return self._table.get(_name(key), {}).get(key.queue_id)

    def popped(
        self,
        key: QueueKey,
        pop_time: int,
        invisible_time_ms: int,
        offsets: Sequence[int],
        attempt_id: str | None,
    ) -> dict[int, int]:
        """Note a pop, and return how often each message was delivered before, for those that were.

        A repeated pop with the same attempt id does not count: its client did not get the first response.
        """
        now_ms = self._follow_clock()
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
            last_consume_timestamp=now_ms,
            attempt_id=attempt_id,
        )
        self.restore(key, info)
        return {offset: times for offset, times in counts.items() if offset in set(offsets)}

    def is_blocked(self, key: QueueKey, attempt_id: str | None, invisible_time_ms: int) -> bool:
        """Tell whether the group has messages of the queue in flight that are still invisible."""
        now_ms = self._follow_clock()
        info = self.get(key)
        if info is None or not info.offset_list:
            return False
        if info.attempt_id is not None and info.attempt_id == attempt_id:
            return False
        return any(now_ms < visible for _, visible in self._visible_times(info, invisible_time_ms))

    def ack(self, key: QueueKey, offset: int, pop_time: int) -> int | OrderAckProblem:
        """Acknowledge a message, and return the offset to commit."""
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

    def change_visible_time(
        self, key: QueueKey, offset: int, pop_time: int, visible_at_ms: int
    ) -> OrderAckProblem | None:
        """Set the time at which a message becomes visible again."""
        self._follow_clock()
        info = self.get(key)
        if info is None or offset not in info.queue_offsets():
            return OrderAckProblem.NOT_POPPED
        if pop_time != info.pop_time:
            return OrderAckProblem.POPPED_AGAIN
        info.offset_next_visible_time = {**(info.offset_next_visible_time or {}), offset: visible_at_ms}
        self._changed(key, info)
        return None

    def clear(self, key: QueueKey) -> None:
        """Forget the messages that the group has in flight."""
        if self._table.get(_name(key), {}).pop(key.queue_id, None) is not None:
            self._outdate(_name(key), key.queue_id)
            self.revision += 1

    def restore(self, key: QueueKey, info: OrderInfo) -> None:
        """Set the messages that a group has in flight."""
        self._table.setdefault(_name(key), {})[key.queue_id] = info
        self._changed(key, info)

    def forget_consumed(self, committed: Callable[[QueueKey], int]) -> None:
        """Forget messages before the groups' committed offsets."""
        for name, by_queue in self._table.items():
            topic, _, group = name.partition(_SEPARATOR)
            for queue_id, info in list(by_queue.items()):
                offsets = info.queue_offsets()
                if offsets and offsets[-1] < committed(QueueKey(topic, group, queue_id)):
                    del by_queue[queue_id]
                    self._outdate(name, queue_id)
                    self.revision += 1

    def clear_all(self) -> None:
        """Forget all messages in flight."""
        self._table.clear()
        self._encoded.clear()
        self._unblock_time.clear()
        self._unblock_heap.clear()

    def forget_topics(self, topics: Collection[str]) -> None:
        """Forget deleted topics."""
        for name in [name for name in self._table if name.partition(_SEPARATOR)[0] in topics]:
            del self._table[name]
            self._encoded.pop(name, None)
            self.revision += 1

    def forget_group(self, group: str) -> None:
        """Forget a deleted group."""
        for name in [name for name in self._table if name.partition(_SEPARATOR)[2] == group]:
            del self._table[name]
            self._encoded.pop(name, None)
            self.revision += 1

    # --- the end of invisible times ---

    @property
    def is_any_blocked(self) -> bool:
        """Whether a queue can be popped again at a known time."""
        return bool(self._unblock_heap)

    def wake_unblocked(self, wake: Callable[[QueueKey], None], most: int = _MOST_WOKEN) -> bool:
        """Call `wake` with queues that can be popped again by now; tell whether there may be more.

        Called every tick, and at once if there may be more.
        """
        now_ms = self._follow_clock()
        for _ in range(most):
            if not self._unblock_heap or self._unblock_heap[0][0] > now_ms:
                return False
            unblock_at, key = heapq.heappop(self._unblock_heap)
            if self._unblock_time.get(key) != unblock_at:
                continue
            del self._unblock_time[key]
            if not self.is_blocked(key, None, 0):
                wake(key)
        return True

    # --- persistence ---

    def prepare(self) -> Iterator[None]:
        """Encode changed entries ahead of `encode`, a slice in each step."""
        for name in list(self._table):
            for number, queue_id in enumerate(list(self._table.get(name, ())), start=1):
                if queue_id in self._table.get(name, ()):
                    self._encoded_entry(name, queue_id)
                if number % _ENTRIES_PER_STEP == 0:
                    yield

    def encode(self) -> bytes:
        """Return the content of `consumerOrderInfo.json`, without obsolete entries."""
        self._clean()
        tables: list[bytes] = []
        for name, by_queue in self._table.items():
            encoded = self._encoded.get(name, {})
            if len(encoded) != len(by_queue):
                for queue_id in by_queue:
                    self._encoded_entry(name, queue_id)
                encoded = self._encoded.get(name, {})
            tables.append(b"%b:{%b}" % (fastjson.dumps(name), b",".join(encoded.values())))
        return b'{"table":{%b}}' % b",".join(tables)

    def _outdate(self, name: str, queue_id: int) -> None:
        """Drop an entry's encoded form, because the entry has changed or is gone."""
        self._encoded.get(name, {}).pop(queue_id, None)

    def _encoded_entry(self, name: str, queue_id: int) -> bytes:
        encoded = self._encoded.setdefault(name, {})
        entry = encoded.get(queue_id)
        if entry is None:
            entry = encoded[queue_id] = b"%d:%b" % (queue_id, self._table[name][queue_id].encode())
        return entry

    def decode(self, content: bytes) -> None:
        """Load the content of `consumerOrderInfo.json`. Raises BodyError."""
        self._table = OrderInfoTable.decode(content).table
        self._encoded.clear()
        now_ms = self._follow_clock()
        for key, info in self._entries():
            visible = dict(self._visible_times(info, 0))
            # The clock was set back while the broker was down. Times before the pop's were moved earlier.
            if info.pop_time > now_ms and min(visible.values(), default=0) >= info.pop_time:
                self._move_visible_times(info, now_ms - info.pop_time)
            self._note_unblock_time(key, info)

    # --- inside ---

    def _entries(self) -> Iterator[tuple[QueueKey, OrderInfo]]:
        for name, by_queue in self._table.items():
            topic, _, group = name.partition(_SEPARATOR)
            for queue_id, info in by_queue.items():
                yield QueueKey(topic, group, queue_id), info

    def _follow_clock(self) -> int:
        """Return the time in ms; if the clock was set, move the ends of invisible times by that step.

        Otherwise a step back would block queues for as long, and a step forward would redeliver messages.
        """
        now_ms, step_ms = self._steps.look()
        if step_ms:
            for key, info in self._entries():
                self._move_visible_times(info, step_ms)
                self._changed(key, info)
        return now_ms

    def _move_visible_times(self, info: OrderInfo, step_ms: int) -> None:
        moved = {offset: visible_ms + step_ms for offset, visible_ms in self._visible_times(info, 0)}
        if moved:
            info.offset_next_visible_time = moved

    def _changed(self, key: QueueKey, info: OrderInfo) -> None:
        self.revision += 1
        self._outdate(_name(key), key.queue_id)
        self._note_unblock_time(key, info)

    def _note_unblock_time(self, key: QueueKey, info: OrderInfo) -> None:
        unblock_at = max([visible for _, visible in self._visible_times(info, 0)], default=0)
        if unblock_at > self._now_ms() and self._unblock_time.get(key) != unblock_at:
            self._unblock_time[key] = unblock_at
            if len(self._unblock_heap) > 2 * len(self._unblock_time) + _MAX_STALE:
                self._unblock_heap = [(time, queue) for queue, time in self._unblock_time.items()]
                heapq.heapify(self._unblock_heap)
            else:
                heapq.heappush(self._unblock_heap, (unblock_at, key))
            self._on_blocked()

    @staticmethod
    def _open(info: OrderInfo) -> Iterator[int]:
        """Yield the unacknowledged offsets."""
        for index, offset in enumerate(info.queue_offsets()):
            if not info.commit_offset_bit >> index & 1:
                yield offset

    def _visible_times(self, info: OrderInfo, invisible_time_ms: int) -> Iterator[tuple[int, int]]:
        """Yield each unacknowledged offset with the time at which the message becomes visible again."""
        changed = info.offset_next_visible_time or {}
        usual = info.pop_time + (info.invisible_time_ms or invisible_time_ms)
        for offset in self._open(info):
            yield offset, changed.get(offset, usual)

    def _clean(self) -> None:
        now_ms = self._now_ms()
        for name, by_queue in list(self._table.items()):
            topic_name, _, group = name.partition(_SEPARATOR)
            topic = self._topics.get(topic_name)
            if topic is None or group not in self._groups:
                del self._table[name]
                self._encoded.pop(name, None)
                continue
            queues, keep_from_ms = topic.read_queue_nums, now_ms - _KEEP_MS
            obsolete = [
                queue_id
                for queue_id, info in by_queue.items()
                if queue_id >= queues or info.last_consume_timestamp < keep_from_ms
            ]
            for queue_id in obsolete:
                del by_queue[queue_id]
                self._outdate(name, queue_id)
            if not by_queue:
                del self._table[name]
                self._encoded.pop(name, None)


def _name(key: QueueKey) -> str:
    return f"{key.topic}{_SEPARATOR}{key.group}"
