"""Comparison and copies of group offsets: codes 43, 308 and 314.

Source of the rules: Apache RocketMQ 5.3.3, AdminBrokerProcessor and ConsumerOffsetManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rmq_remoting.answers import Result
from rmq_remoting.bodies.offsets import QueryCorrectionOffsetBody
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.daemon.deferred_answers import Persist, answer_when_persisted
from rmq_remoting.errors import CommandError
from rmq_remoting.headers.offsets import CloneGroupOffsetRequestHeader, QueryCorrectionOffsetHeader
from rmq_remoting.integer_bounds import INT64_MAX

from ...offsets.table import NO_OFFSET
from ...topics.lookup import existing_topic

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ...clients.consumers import ConsumerTable
    from ...groups.table import SubscriptionGroupTable
    from ...offsets.table import ConsumerOffsetTable
    from ...topics.table import TopicTable

log = logging.getLogger("rmq.broker.processors")

_NOTHING_TO_CORRECT: Final = INT64_MAX


class OffsetAdminProcessor:
    """Read-only view of offsets. `get_all` runs on the loop, because encoding offsets updates a cache.

    `correction` runs in a pool: it looks at all queues of a topic, for each group. `min_offset` returns the
    first offset of a queue.
    """

    def __init__(self, offsets: ConsumerOffsetTable, min_offset: Callable[[str, int], int]) -> None:
        self._offsets = offsets
        self._min_offset = min_offset

    def get_all(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """43: every committed offset, in the form of `consumerOffset.json`."""
        return request.response(ResponseCode.SUCCESS, body=self._offsets.encode())

    def correction(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """308: by queue, the lowest offset of any group in a topic, not below the queue's first message.

        The request can exclude groups (Apache's broker deletes the offsets of these). If the compared group
        is behind all others, nothing needs correction, and the value is Java's largest number.
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
    """Copies offsets from one group to another; `persist` waits until they are persisted."""

    def __init__(
        self,
        offsets: ConsumerOffsetTable,
        groups: SubscriptionGroupTable,
        topics: TopicTable,
        consumers: ConsumerTable,
        persist: Persist,
    ) -> None:
        self._offsets = offsets
        self._groups = groups
        self._topics = topics
        self._consumers = consumers
        self._persist = persist

    def clone(self, connection: Connection, request: RemotingCommand) -> Result:
        """314: copy the offsets of one topic, or of all topics for which the source group has offsets.

        Unless the request declares the source offline, topics that its connected members no longer subscribe
        to are left out. Raises CommandError for a group or a topic that does not exist.
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
        log.info(
            "offsets copied peer=%s target=%s source=%s topics=%s", connection.peer, target, source, topics
        )
        remark = None if topics else f"nothing to copy: group {source} has no offsets of such a topic"
        return answer_when_persisted(request.response(ResponseCode.SUCCESS, remark), self._persist)
