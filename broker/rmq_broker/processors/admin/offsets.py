"""Offsets of groups, compared and copied: codes 43, 308 and 314.

Source of the rules: Apache RocketMQ 5.3.3, AdminBrokerProcessor and ConsumerOffsetManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies.offsets import QueryCorrectionOffsetBody
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.dispatch import Result
from rmq_remoting.errors import CommandError
from rmq_remoting.headers.offsets import CloneGroupOffsetRequestHeader, QueryCorrectionOffsetHeader
from rmq_remoting.integers import INT64_MAX

from ...offsets.table import NO_OFFSET
from ...topics.lookup import existing_topic
from .settling import Settle, answer_when_settled

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ...clients.consumers import ConsumerTable
    from ...groups.table import SubscriptionGroupTable
    from ...offsets.table import ConsumerOffsetTable
    from ...topics.table import TopicTable

log = logging.getLogger("rmq.broker.processors")

_NOTHING_TO_CORRECT: Final = INT64_MAX


class OffsetAdminProcessor:
    """Shows offsets; runs on the loop, as encoding them remembers what it has encoded.

    `min_offset` tells where a queue of a topic begins.
    """

    def __init__(self, offsets: ConsumerOffsetTable, min_offset: Callable[[str, int], int]) -> None:
        self._offsets = offsets
        self._min_offset = min_offset

    def get_all(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """43: every committed offset, in the form of `consumerOffset.json`."""
        return request.response(ResponseCode.SUCCESS, body=self._offsets.encode())

    def correction(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """308: by queue, the lowest offset that any group has of a topic, where messages are still there.

        Groups can be left out of that (Apache's broker deletes their offsets then). Where the compared group
        is behind all others there is nothing to correct, and Java's largest number stands.
        """
        header = QueryCorrectionOffsetHeader.decode(request.ext_fields)
        left_out = set((header.filter_groups or "").split(","))
        lowest: dict[int, int] = {}
        for group in self._offsets.groups_of(header.topic) - left_out:
            for queue_id, offset in self._offsets.offsets_of(group, header.topic).items():
                if offset >= self._min_offset(header.topic, queue_id):
                    lowest[queue_id] = min(offset, lowest.get(queue_id, offset))
        for queue_id, offset in self._offsets.offsets_of(header.compare_group, header.topic).items():
            if lowest.get(queue_id, NO_OFFSET) > offset:
                lowest[queue_id] = _NOTHING_TO_CORRECT
        body = QueryCorrectionOffsetBody(correction_offsets=lowest)
        return request.response(ResponseCode.SUCCESS, body=body.encode())


class OffsetCloneProcessor:
    """Gives a group the offsets of another; `settle` waits until they are on disk."""

    def __init__(
        self,
        offsets: ConsumerOffsetTable,
        groups: SubscriptionGroupTable,
        topics: TopicTable,
        consumers: ConsumerTable,
        settle: Settle,
    ) -> None:
        self._offsets = offsets
        self._groups = groups
        self._topics = topics
        self._consumers = consumers
        self._settle = settle

    def clone(self, connection: Connection, request: RemotingCommand) -> Result:
        """314: copy the offsets of one topic, or of all topics that the source group has offsets of.

        Unless it is said that the source is offline, topics that its connected members have given up are left
        out. Raises CommandError for a group or a topic that does not exist.
        """
        header = CloneGroupOffsetRequestHeader.decode(request.ext_fields)
        source, target = header.source_group, header.destination_group
        if target not in self._groups:
            problem = f"consumer group {target} does not exist on this broker: create it first"
            raise CommandError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, problem)
        wanted = (header.topic or "").strip()
        if wanted:
            existing_topic(self._topics, wanted)
        known = self._offsets.topics_of(source)
        topics = [
            topic
            for topic in sorted(known & {wanted} if wanted else known)
            if self._topics.get(topic) is not None
            and (header.offline or self._consumers.may_consume(source, topic))
        ]
        for topic in topics:
            self._offsets.copy_group(source, target, topic)
        log.info("%s gives %s the offsets of %s in %s", connection.peer, target, source, topics)
        remark = None if topics else f"nothing to copy: group {source} has no offsets of such a topic"
        return answer_when_settled(request.response(ResponseCode.SUCCESS, remark), self._settle)
