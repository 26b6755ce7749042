"""Entries of a consume queue: code 321 (Apache RocketMQ 5.3.3, AdminBrokerProcessor)."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies import fastjson
from rmq_remoting.bodies.checks import ConsumeQueueData, QueryConsumeQueueResponseBody
from rmq_remoting.bodies.heartbeat import TAG_EXPRESSION
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError
from rmq_remoting.headers.query import QueryConsumeQueueRequestHeader

from ...filtering.bloom import may_contain
from ...filtering.filter_table import data_of
from ...store.api import EXT_UNIT, is_ext_address

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ...clients.consumers import ConsumerTable
    from ...clients.subscription import Subscription
    from ...filtering.filter_table import ConsumerFilter, ConsumerFilterTable
    from ...store.api import ExtUnit
    from ..store_view import QueueEntry, QueueView

# Entries of one response, about a megabyte; Apache returns all remaining entries of the queue's file.
MAX_ENTRIES: Final = 10_000

# Bytes of a bit map per line (BitsArray.toString).
_LINE_BYTES: Final = 8
_Takes = Callable[["ExtUnit"], bool]


class QueueViewProcessor:
    """Read-only, but it reads files, so it runs in a pool."""

    def __init__(self, store: QueueView, consumers: ConsumerTable, filters: ConsumerFilterTable) -> None:
        self._store = store
        self._consumers = consumers
        self._filters = filters

    def query(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """321: queue entries from an index on, and the subscription of a group."""
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
        takes: _Takes | None = None
        if header.consumer_group is not None:
            takes = self._describe_group(body, header.consumer_group, topic)
        body.queue_data = [self._data(topic, queue_id, entry, takes) for entry in entries]
        remark = None if entries or header.count <= 0 else _nothing_there(header, body)
        return request.response(ResponseCode.SUCCESS, remark, body=body.encode())

    def _describe_group(self, body: QueryConsumeQueueResponseBody, group: str, topic: str) -> _Takes | None:
        """Add the group's filter to the body; return the function that applies it to extension units."""
        subscription = self._consumers.find_subscription(group, topic)
        if subscription is None:
            body.filter_data = f"no consumer of group {group} that is subscribed to {topic} is connected"
            return None
        known = self._filters.find(topic, group)
        body.subscription_data = subscription.to_body()
        # Apache's JSON for a missing compiled filter; tags need none.
        body.filter_data = "null" if known is None else data_of(known).encode_pretty().decode()
        return partial(_takes, subscription, known)

    def _data(self, topic: str, queue_id: int, entry: QueueEntry, takes: _Takes | None) -> ConsumeQueueData:
        physical_offset, size, tags_code = entry
        data = ConsumeQueueData(physical_offset=physical_offset, physical_size=size, tags_code=tags_code)
        if is_ext_address(tags_code):
            unit = self._store.ext_unit(topic, queue_id, tags_code)
            if unit is None:
                data.msg = f"the tags code is an extension address, but no file has a unit at {tags_code}"
            else:
                data.extend_data_json = _unit_text(unit)
                data.bit_map = _bits(unit.bit_map) if unit.bit_map else None
                data.eval = takes is not None and takes(unit)
        return data


def _nothing_there(header: QueryConsumeQueueRequestHeader, body: QueryConsumeQueueResponseBody) -> str:
    """Return the remark for an index outside of the queue. Apache omits the body, so its client fails."""
    return (
        f"queue {header.queue_id} of topic {header.topic} has nothing at {header.index}: it goes from "
        f"{body.min_queue_index} to {body.max_queue_index - 1}"
    )


def _takes(subscription: Subscription, known: ConsumerFilter | None, unit: ExtUnit) -> bool:
    """Whether a message may match, by its unit (ExpressionMessageFilter.isMatchedByConsumeQueue)."""
    if subscription.expression_type == TAG_EXPRESSION:
        return subscription.takes_all or unit.tags_code in subscription.code_set
    if known is None or unit.store_timestamp_ms <= known.judged_after_ms:
        return True
    return may_contain(unit.bit_map, known.bloom)


def _unit_text(unit: ExtUnit) -> str:
    """Return an extension unit in the form of Apache's tool."""
    members: dict[str, object] = {
        "msgStoreTime": unit.store_timestamp_ms,
        "size": EXT_UNIT.size + len(unit.bit_map),
        "tagsCode": unit.tags_code,
    }
    if unit.bit_map:
        members = {"filterBitMap": base64.b64encode(unit.bit_map).decode(), **members}
    return fastjson.dumps(members).decode()


def _bits(bit_map: bytes) -> str:
    """Return the bits from last to first, in lines."""
    lines = [bit_map[at : at + _LINE_BYTES] for at in range(0, len(bit_map), _LINE_BYTES)]
    # A line ends after its first byte, which is written last.
    return "".join("".join([f"{byte:08b}" for byte in reversed(line)]) + "\n" for line in reversed(lines))
