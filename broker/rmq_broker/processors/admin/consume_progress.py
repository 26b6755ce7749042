"""Progress of a group in a topic, by queue, for requests 208, 303 and 317."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq_remoting.bodies.offsets import ConsumeStats, OffsetWrapper, QueueTimeSpan
from rmq_remoting.message_queue import MessageQueue

if TYPE_CHECKING:
    from ...clock import ClockMs
    from ...offsets.table import ConsumerOffsetTable
    from ...statistics.broker_statistics import BrokerStatistics
    from ..store_view import StoreView


class ConsumeProgress:
    """Compares stored with committed offsets. Read-only; it reads messages."""

    def __init__(
        self,
        store: StoreView,
        offsets: ConsumerOffsetTable,
        statistics: BrokerStatistics,
        broker_name: str,
        now_ms: ClockMs,
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._statistics = statistics
        self._broker_name = broker_name
        self._now_ms = now_ms

    def stats(self, group: str, topic: str, queue_count: int, uncommitted: int = 0) -> ConsumeStats:
        """Return a group's position in the first `queue_count` queues of a topic.

        A queue without a committed offset has the offset `uncommitted`.
        """
        return ConsumeStats(
            offset_table={
                MessageQueue(topic, self._broker_name, queue_id): self._reach(
                    group, topic, queue_id, uncommitted
                )
                for queue_id in range(queue_count)
            },
            consume_tps=self._statistics.group_get_tps(group, topic),
        )

    def time_spans(self, group: str, topic: str, queue_count: int) -> list[QueueTimeSpan]:
        """Return store times in ms instead of offsets; -1 if there is no message."""
        return [self._time_span(group, topic, queue_id) for queue_id in range(queue_count)]

    def _reach(self, group: str, topic: str, queue_id: int, uncommitted: int) -> OffsetWrapper:
        end = max(0, self._store.max_offset(topic, queue_id))
        committed = max(uncommitted, self._offsets.query(group, topic, queue_id))
        pulled = self._offsets.pulled(group, topic, queue_id)
        timestamp = self._store.store_time_at(topic, queue_id, committed - 1) if committed > 0 else -1
        return OffsetWrapper(
            broker_offset=end,
            consumer_offset=committed,
            pull_offset=max(committed, pulled),
            last_timestamp=max(0, timestamp),
        )

    def _time_span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        store = self._store
        first, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        begin_ms = store.earliest_store_time(topic, queue_id)
        committed = self._offsets.query(group, topic, queue_id)
        # A group without a commit, or whose next message was deleted, continues at the first message;
        # Apache looks at offset -1 there and tells a delay since 1970.
        following = max(committed, first)
        waiting_since_ms = store.store_time_at(topic, queue_id, following) if following < end else -1
        return QueueTimeSpan(
            message_queue=MessageQueue(topic, self._broker_name, queue_id),
            min_timestamp=begin_ms,
            max_timestamp=store.store_time_at(topic, queue_id, end - 1) if end > first else -1,
            consume_timestamp=(
                store.store_time_at(topic, queue_id, committed - 1) if committed > 0 else begin_ms
            ),
            delay_time_ms=max(0, self._now_ms() - waiting_since_ms) if waiting_since_ms > 0 else 0,
        )
