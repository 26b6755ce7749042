"""Consumers' offsets: codes 14 and 15 (Apache RocketMQ 5.3.3, ConsumerManageProcessor)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError
from rmq_remoting.headers.offsets import (
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)

from ..offsets.table import NO_OFFSET
from .refusals import existing_topic, no_such_group

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ..groups.table import SubscriptionGroupTable
    from ..offsets.table import ConsumerOffsetTable
    from ..topics.table import TopicTable
    from .store_view import StoreView


class ConsumerOffsetProcessor:
    """Where groups are, and where they start."""

    def __init__(
        self,
        offsets: ConsumerOffsetTable,
        groups: SubscriptionGroupTable,
        topics: TopicTable,
        store: StoreView,
    ) -> None:
        self._offsets = offsets
        self._groups = groups
        self._topics = topics
        self._store = store

    def query(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """14: the next offset that a group wants of a queue.

        A group without one is told 0 while the queue is young (its first message still in memory):
        otherwise one that starts at the end would miss what was sent just before its first start.
        """
        header = QueryConsumerOffsetRequestHeader.decode(request.ext_fields)
        offset = self._offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset < 0:
            if header.set_zero_if_not_found is False or not self._is_young(header.topic, header.queue_id):
                raise CommandError(
                    ResponseCode.QUERY_NOT_FOUND,
                    f"group {header.consumer_group} has no offset for queue {header.queue_id} of "
                    f"{header.topic}: it has not consumed it yet",
                )
            offset = 0
        return request.response(ResponseCode.SUCCESS, ext_fields={"offset": str(offset)})

    def update(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """15: commit the next offset that a group wants of a queue."""
        header = UpdateConsumerOffsetRequestHeader.decode(request.ext_fields)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        if group not in self._groups:
            raise no_such_group(group, "create it, or have a consumer join it")
        config = existing_topic(self._topics, topic)
        self._check_place(header, max(config.read_queue_nums, config.write_queue_nums))
        if self._offsets.has_reset(group, topic, queue_id):
            # The client does not know yet that it was reset; its next pull will tell it.
            remark = "not committed: the offset has been reset since"
            return request.response(ResponseCode.SUCCESS, remark)
        self._offsets.commit(group, topic, queue_id, header.commit_offset, connection)
        return request.response(ResponseCode.SUCCESS)

    def _check_place(self, header: UpdateConsumerOffsetRequestHeader, queues: int) -> None:
        """Raises CommandError for a queue that the topic does not have, and an offset that is not in it.

        A queue that the topic has had may be committed to on: consumers finish what they have of it.
        """
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        if not 0 <= queue_id < queues and self._offsets.query(group, topic, queue_id) < 0:
            remark = f"queue id {queue_id} is illegal: topic {topic} has {queues} queues, counted from 0"
            raise CommandError(ResponseCode.INVALID_PARAMETER, remark)
        end = self._store.max_offset(topic, queue_id)
        if not NO_OFFSET <= header.commit_offset <= max(end, 0):
            remark = (
                f"offset {header.commit_offset} is outside of queue {queue_id} of {topic}: its next message "
                f"will be {end}; not committed"
            )
            raise CommandError(ResponseCode.INVALID_PARAMETER, remark)

    def _is_young(self, topic: str, queue_id: int) -> bool:
        return self._store.min_offset(topic, queue_id) <= 0 and self._store.is_in_memory(topic, queue_id, 0)
