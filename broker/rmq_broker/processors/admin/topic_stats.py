"""Offsets of a topic's queues: code 202."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq_remoting.bodies.topic import TopicOffset, TopicStatsTable
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.headers.topic import GetTopicStatsInfoRequestHeader
from rmq_remoting.message_queue import MessageQueue

from ...topics.lookup import existing_topic

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ...statistics.broker_statistics import BrokerStatistics
    from ...topics.table import TopicTable
    from ..store_view import StoreView


class TopicStatsProcessor:
    """Read-only, but it reads messages, so it runs in a pool."""

    def __init__(
        self, topics: TopicTable, store: StoreView, statistics: BrokerStatistics, broker_name: str
    ) -> None:
        self._topics = topics
        self._store = store
        self._statistics = statistics
        self._broker_name = broker_name

    def get(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """202: first offset, next offset and last store time of each queue.

        The queue of a static topic ends behind messages that consumers do not see yet, too, since the logical
        offsets of the next broker begin there.
        """
        topic = GetTopicStatsInfoRequestHeader.decode(request.ext_fields).topic
        config = existing_topic(self._topics, topic)
        body = TopicStatsTable(
            offset_table={
                MessageQueue(topic, self._broker_name, queue_id): self._reach(topic, queue_id)
                for queue_id in range(max(config.read_queue_nums, config.write_queue_nums))
            },
            topic_put_tps=self._statistics.topic_put_tps(topic),
        )
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    def _reach(self, topic: str, queue_id: int) -> TopicOffset:
        first = max(0, self._store.min_offset(topic, queue_id))
        end = max(0, self._store.max_offset(topic, queue_id))
        timestamp = self._store.store_time_at(topic, queue_id, end - 1) if end > 0 else 0
        if topic in self._topics.mappings:
            end = max(end, self._store.assigned_offset(topic, queue_id))
        return TopicOffset(min_offset=first, max_offset=end, last_update_timestamp=timestamp)
