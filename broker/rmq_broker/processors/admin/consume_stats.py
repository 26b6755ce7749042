"""Progress of groups: codes 208, 303 and 317 (Apache RocketMQ 5.3.3, AdminBrokerProcessor)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq_remoting.bodies.offsets import ConsumeStats, ConsumeStatsList, QueryConsumeTimeSpanBody
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.headers.consumer import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
)

from ...offsets.table import NO_OFFSET
from ...topics.lookup import existing_topic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmq_remoting.connection import Connection

    from ...clients.consumers import ConsumerTable
    from ...groups.table import SubscriptionGroupTable
    from ...offsets.table import ConsumerOffsetTable
    from ...topics.table import TopicTable
    from .consume_progress import ConsumeProgress


class ConsumeStatsProcessor:
    """Read-only, but it reads messages, so it runs in a pool. `broker_address` is the one clients use."""

    def __init__(
        self,
        progress: ConsumeProgress,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        offsets: ConsumerOffsetTable,
        consumers: ConsumerTable,
        broker_address: str,
    ) -> None:
        self._progress = progress
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers
        self._broker_address = broker_address

    def of_group(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """208: the position of a group in the requested topics, or in all that it consumes.

        An unknown group has not consumed anything; that is not an error.
        """
        header = GetConsumeStatsRequestHeader.decode(request.ext_fields)
        group = header.consumer_group
        merged = ConsumeStats()
        for topic in self._topics_asked_for(header):
            config = self._topics.get(topic)
            if config is None:
                continue
            # mqadmin searches the physical queues of a logical queue for the newest one with an offset.
            uncommitted = NO_OFFSET if topic in self._topics.mappings else 0
            stats = self._progress.stats(group, topic, config.read_queue_nums, uncommitted)
            merged.offset_table.update(stats.offset_table)
            merged.consume_tps += stats.consume_tps
        return request.response(ResponseCode.SUCCESS, body=merged.encode())

    def time_spans(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """303: the first and last store time of each queue, and the time up to which a group has consumed."""
        header = QueryConsumeTimeSpanRequestHeader.decode(request.ext_fields)
        config = existing_topic(self._topics, header.topic)
        spans = self._progress.time_spans(header.group, header.topic, config.write_queue_nums)
        body = QueryConsumeTimeSpanBody(consume_time_span_set=spans)
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    def of_all_groups(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """317: the position of each group in all topics with offsets of it, or only in ordered topics."""
        ordered_only = GetConsumeStatsInBrokerHeader.decode(request.ext_fields).order
        topics_by_group = self._topics_by_group()
        body = ConsumeStatsList(broker_addr=self._broker_address)
        for config in self._groups.configs():
            group = config.group_name
            each = self._stats_of(group, sorted(topics_by_group.get(group, ())), ordered_only)
            body.consume_stats_list.append({group: each})
            reaches = [reach for stats in each for reach in stats.offset_table.values()]
            body.total_diff += sum(reach.broker_offset - reach.consumer_offset for reach in reaches)
            body.total_inflight_diff += sum(reach.pull_offset - reach.consumer_offset for reach in reaches)
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    def _topics_asked_for(self, header: GetConsumeStatsRequestHeader) -> list[str]:
        listed = (header.topic_list or "").strip()
        if listed:
            return list(dict.fromkeys(filter(None, listed.split(";"))))
        topic = (header.topic or "").strip()
        topics = [topic] if topic else sorted(self._offsets.topics_of(header.consumer_group))
        return [topic for topic in topics if self._consumers.may_consume(header.consumer_group, topic)]

    def _topics_by_group(self) -> dict[str, list[str]]:
        """Return the topics by group, by a single iteration over the offsets."""
        topics: dict[str, list[str]] = {}
        for group, topic, _ in self._offsets.entries():
            topics.setdefault(group, []).append(topic)
        return topics

    def _stats_of(self, group: str, topics: Iterable[str], ordered_only: bool) -> list[ConsumeStats]:
        stats: list[ConsumeStats] = []
        for topic in topics:
            config = self._topics.get(topic)
            if config is None or (ordered_only and not config.order):
                continue
            if not self._consumers.may_consume(group, topic):
                continue
            stats.append(self._progress.stats(group, topic, config.write_queue_nums))
        return stats
