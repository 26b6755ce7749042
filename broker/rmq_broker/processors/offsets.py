"""Queue offsets: codes 29 to 32 (Apache RocketMQ 5.3.3, AdminBrokerProcessor).

A missing queue is not an error: it has no messages yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.headers.offsets import (
    BoundaryType,
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    SearchOffsetRequestHeader,
)

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from .store_view import StoreView


class QueueOffsetProcessor:
    """Answers queries of queue offsets. 29 and 32 read messages, so they run in a pool."""

    def __init__(self, store: StoreView) -> None:
        self._store = store

    def max_offset(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """30: the offset of the queue's next message."""
        header = GetMaxOffsetRequestHeader.decode(request.ext_fields)
        return _offset(request, self._store.max_offset(header.topic, header.queue_id))

    def min_offset(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """31: the offset of the queue's first message."""
        header = GetMinOffsetRequestHeader.decode(request.ext_fields)
        return _offset(request, self._store.reported_min_offset(header.topic, header.queue_id))

    def by_time(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """29: the offset of the first message at or after a time, or of the last one at or before it."""
        header = SearchOffsetRequestHeader.decode(request.ext_fields)
        upper = header.boundary_type is BoundaryType.UPPER
        offset = self._store.offset_by_time(header.topic, header.queue_id, header.timestamp, upper)
        return _offset(request, offset)

    def earliest_time(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """32: the store time of the queue's first message."""
        header = GetEarliestMsgStoretimeRequestHeader.decode(request.ext_fields)
        timestamp = self._store.earliest_store_time(header.topic, header.queue_id)
        return request.response(ResponseCode.SUCCESS, ext_fields={"timestamp": str(timestamp)})


def _offset(request: RemotingCommand, offset: int) -> RemotingCommand:
    return request.response(ResponseCode.SUCCESS, ext_fields={"offset": str(offset)})
