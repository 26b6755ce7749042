"""Offsets of consumer groups: codes 14 and 15 (Apache RocketMQ 5.3.3, ConsumerManageProcessor)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError
from rmq_remoting.headers.offsets import (
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)

from ..groups.lookup import no_such_group
from ..offsets.table import NO_OFFSET
from ..topics.lookup import existing_topic

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ..clients.first_subscriptions import FirstSubscriptions
    from ..groups.table import SubscriptionGroupTable
    from ..offsets.table import ConsumerOffsetTable
    from ..topics.table import TopicTable
    from .store_view import StoreView


class ConsumerOffsetProcessor:
    """Answers which offset a group consumes next, and takes its commits."""

    def __init__(
        self,
        offsets: ConsumerOffsetTable,
        groups: SubscriptionGroupTable,
        topics: TopicTable,
        store: StoreView,
        first_subscriptions: FirstSubscriptions,
    ) -> None:
        self._offsets = offsets
        self._groups = groups
        self._topics = topics
        self._store = store
        self._first_subscriptions = first_subscriptions

    def query(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """14: the offset that a group consumes next from a queue.

        A group without a committed offset is answered with `_first_offset`. Where that leaves the choice to
        the client, and for a client that asked with `setZeroIfNotFound=false`, the answer is QUERY_NOT_FOUND.
        """
        header = QueryConsumerOffsetRequestHeader.decode(request.ext_fields)
        offset = self._offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset < 0 and header.set_zero_if_not_found is not False:
            offset = self._first_offset(header.consumer_group, header.topic, header.queue_id)
        if offset < 0:
            raise CommandError(
                ResponseCode.QUERY_NOT_FOUND,
                f"group {header.consumer_group} has no offset for queue {header.queue_id} of "
                f"{header.topic}: it has not consumed from the queue yet",
            )
        return request.response(ResponseCode.SUCCESS, ext_fields={"offset": str(offset)})

    def update(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """15: commit the offset that a group consumes next from a queue."""
        header = UpdateConsumerOffsetRequestHeader.decode(request.ext_fields)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        if group not in self._groups:
            raise no_such_group(group, "create it, or have a consumer join it")
        config = existing_topic(self._topics, topic)
        self._check_place(header, max(config.read_queue_nums, config.write_queue_nums))
        if self._offsets.has_reset(group, topic, queue_id):
            # The client does not know of the reset yet; the answer to its next pull carries the new offset.
            remark = "not committed: the offset has been reset since"
            return request.response(ResponseCode.SUCCESS, remark)
        self._offsets.commit(group, topic, queue_id, header.commit_offset, connection)
        return request.response(ResponseCode.SUCCESS)

    def _check_place(self, header: UpdateConsumerOffsetRequestHeader, queues: int) -> None:
        """Raise CommandError for a queue that the topic does not have, or an offset outside of the queue.

        After a topic has lost a queue, groups that have an offset of the queue may go on committing: their
        consumers finish the messages that they already have.
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

    def _first_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Return where a group without an offset begins; NO_OFFSET: the client decides (ConsumeFromWhere).

        A client that is told NO_OFFSET and starts at the end asks for the end in a second request, and skips
        each message that is stored between the two. The broker therefore answers itself where it can:

        1. An empty queue begins at its end, which is 0 for a queue that has never held a message. All values
           of ConsumeFromWhere lead there.
        2. A queue whose first message, offset 0, still exists begins at 0 if this message is in memory by the
           broker's estimate (as with Apache), or
        3. if it was stored after the group first subscribed to the topic at this broker. A subscriber expects
           every message from then on.

        A queue whose first message has been deleted, or is older than the subscription and no longer in
        memory, is left to the client, so CONSUME_FROM_LAST_OFFSET skips the messages of an old topic.
        Apache's broker knows rule 2 alone.
        """
        begin, end = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        if begin >= end:
            return max(end, 0) if self._has_queue(topic, queue_id) else NO_OFFSET
        if begin > 0:
            return NO_OFFSET
        if self._store.is_first_in_memory(topic, queue_id):
            return 0
        first = self._store.first_physical_offset(topic, queue_id)
        is_newer = first is not None and self._first_subscriptions.is_older(group, topic, first)
        return 0 if is_newer else NO_OFFSET

    def _has_queue(self, topic: str, queue_id: int) -> bool:
        config = self._topics.get(topic)
        return config is not None and 0 <= queue_id < max(config.read_queue_nums, config.write_queue_nums)
