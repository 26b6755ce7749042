"""What a consume queue consists of: code 321 (Apache RocketMQ 5.3.3, AdminBrokerProcessor)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies.checks import ConsumeQueueData, QueryConsumeQueueResponseBody
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError
from rmq_remoting.headers.query import QueryConsumeQueueRequestHeader

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ...clients.consumers import ConsumerTable
    from ..store_view import QueueEntry, QueueView

# Entries of one answer, about a megabyte; Apache gives all that are left in the queue's file.
MAX_ENTRIES: Final = 10_000

# A tags code up to here is an address in the queue's extension files (ConsumeQueueExt.isExtAddr).
_LAST_EXTENSION_ADDRESS: Final = -(2**31) - 1


class QueueViewProcessor:
    """Reads only, and from files: one for a pool."""

    def __init__(self, store: QueueView, consumers: ConsumerTable) -> None:
        self._store = store
        self._consumers = consumers

    def query(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """321: entries from an index on, and what a group has subscribed to."""
        header = QueryConsumeQueueRequestHeader.decode(request.ext_fields)
        topic, queue_id = header.topic or "", header.queue_id
        count = max(0, min(header.count, MAX_ENTRIES)) if header.index >= 0 else 0
        entries = self._store.queue_entries(topic, queue_id, header.index, count)
        if entries is None:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR,
                f"topic {topic} has no queue {queue_id} on this broker, or nothing was ever sent to it",
            )
        body = QueryConsumeQueueResponseBody(
            max_queue_index=self._store.max_offset(topic, queue_id),
            min_queue_index=self._store.min_offset(topic, queue_id),
        )
        if header.consumer_group is not None:
            self._describe_group(body, header.consumer_group, topic)
        body.queue_data = [_data(entry) for entry in entries]
        remark = None if entries or header.count <= 0 else _nothing_there(header, body)
        return request.response(ResponseCode.SUCCESS, remark, body=body.encode())

    def _describe_group(self, body: QueryConsumeQueueResponseBody, group: str, topic: str) -> None:
        subscription = self._consumers.find_subscription(group, topic)
        if subscription is None:
            body.filter_data = f"no consumer of group {group} that is subscribed to {topic} is connected"
        else:
            body.subscription_data = subscription.to_body()
            body.filter_data = "null"  # Apache's JSON of no compiled filter, which tags do not need


def _nothing_there(header: QueryConsumeQueueRequestHeader, body: QueryConsumeQueueResponseBody) -> str:
    """Apache's remark for this comes without a body, which its own client cannot read."""
    return (
        f"queue {header.queue_id} of topic {header.topic} has nothing at {header.index}: it goes from "
        f"{body.min_queue_index} to {body.max_queue_index - 1}"
    )


def _data(entry: QueueEntry) -> ConsumeQueueData:
    physical_offset, size, tags_code = entry
    message = None
    if tags_code <= _LAST_EXTENSION_ADDRESS:
        message = f"the tags code is the address {tags_code} in an extension file that is not there"
    return ConsumeQueueData(
        physical_offset=physical_offset, physical_size=size, tags_code=tags_code, msg=message
    )
