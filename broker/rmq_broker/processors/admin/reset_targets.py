"""Target offsets of a reset, checked against the contents of the queues."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError
from rmq_remoting.message_queue import MessageQueue

from ...topics.lookup import existing_topic

if TYPE_CHECKING:
    from rmq_remoting.headers.offsets import ResetOffsetRequestHeader

    from ...topics.table import TopicTable
    from ..store_view import StoreView

OffsetsByQueue = dict[MessageQueue, int]


class ResetTargets:
    """Finds target offsets in the store. A search in all queues, or by time, runs in a thread."""

    def __init__(self, topics: TopicTable, store: StoreView, broker_name: str) -> None:
        self._topics = topics
        self._store = store
        self._broker_name = broker_name

    async def of(self, header: ResetOffsetRequestHeader) -> OffsetsByQueue:
        """Return the target offset of each requested queue. Raises CommandError.

        The request names one queue or, with a negative queue id, all queues of the topic. The target is the
        given offset (for one queue only), or the offset of the given time; a negative time is the end of the
        queue.
        """
        topic = existing_topic(self._topics, header.topic)
        count = max(topic.read_queue_nums, topic.write_queue_nums)
        if header.queue_id >= count:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER,
                f"queue id {header.queue_id} is illegal: topic {header.topic} has {count} queues, counted "
                "from 0",
            )
        if header.queue_id >= 0 and header.offset is not None and header.offset != -1:
            offsets = {header.queue_id: self._checked(header.topic, header.queue_id, header.offset)}
        else:
            queue_ids = [header.queue_id] if header.queue_id >= 0 else list(range(topic.read_queue_nums))
            if not queue_ids:
                raise CommandError(ResponseCode.SYSTEM_ERROR, f"topic {header.topic} has no queue to reset")
            targets = await asyncio.get_running_loop().run_in_executor(
                None, self._by_time, header.topic, queue_ids, header.timestamp
            )
            existing_topic(self._topics, header.topic)  # it may have been deleted since
            return targets
        return self._by_queue(header.topic, offsets)

    def _by_queue(self, topic: str, offsets: dict[int, int]) -> OffsetsByQueue:
        name = self._broker_name
        return {MessageQueue(topic, name, queue_id): offset for queue_id, offset in offsets.items()}

    def _checked(self, topic: str, queue_id: int, offset: int) -> int:
        first, end = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        if not first <= offset <= end:
            remark = f"offset {offset} is outside of queue {queue_id} of topic {topic}: use {first} to {end}"
            raise CommandError(ResponseCode.SYSTEM_ERROR, remark)
        return offset

    def _by_time(self, topic: str, queue_ids: list[int], timestamp_ms: int) -> OffsetsByQueue:
        """Return the offsets of a time; runs in a thread, because there may be 65,536 queues."""
        store = self._store

        def target(queue_id: int) -> int:
            if timestamp_ms < 0:
                return store.max_offset(topic, queue_id)
            return store.offset_by_time(topic, queue_id, timestamp_ms)

        return self._by_queue(topic, {queue_id: max(0, target(queue_id)) for queue_id in queue_ids})
