"""Where a group begins in a queue that it has never consumed."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from rmq_remoting.bodies.heartbeat import ConsumeFromWhere
from rmq_remoting.message_queue import MessageQueue

from ...checks import check_time_ms, refuse
from ...errors import NotAuthorized
from ...network.broker_api import BrokerApi

ConsumeFrom: TypeAlias = Literal["first", "last"] | datetime
"""At the oldest message, after the newest, or at the first message of a time, which must have a time zone."""


def check_consume_from(consume_from: ConsumeFrom) -> ConsumeFrom:
    """Return the value. Raises InvalidArgumentError for any other, and for a time without a time zone."""
    if isinstance(consume_from, datetime):
        check_time_ms("consume_from", consume_from)
        return consume_from
    if not isinstance(consume_from, str) or consume_from not in ("first", "last"):
        raise refuse("consume_from", consume_from, "must be 'first', 'last' or a datetime with a time zone")
    return consume_from


def to_wire(consume_from: ConsumeFrom) -> ConsumeFromWhere:
    """Return the value of a heartbeat."""
    if consume_from == "first":
        return ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    if consume_from == "last":
        return ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    return ConsumeFromWhere.CONSUME_FROM_TIMESTAMP


async def start_offset(
    api: BrokerApi, address: str, group: str, queue: MessageQueue, consume_from: ConsumeFrom
) -> int:
    """Return the group's committed offset, or where it begins without one. Raises ClientError."""
    # A group that begins at the end still gets the first messages of a new queue: it cannot know of the queue
    # before these messages are there.
    committed = await api.committed_offset(
        address, group, queue, zero_for_young_queues=consume_from == "last"
    )
    if committed is not None:
        return committed
    return await offset_of(api, address, queue, consume_from)


async def offset_of(api: BrokerApi, address: str, queue: MessageQueue, consume_from: ConsumeFrom) -> int:
    """Return the offset of `consume_from` in this queue now.

    Raises ClientError.
    """
    if consume_from == "first":
        try:
            return max(0, await api.min_offset(address, queue))
        except NotAuthorized:
            # This request requires the right `Get` besides the `Sub` of consumers. The answer to a pull from
            # 0 contains the first offset: Apache's client does just that (5.3.3, RebalancePushImpl).
            return 0
    if consume_from == "last":
        return await api.max_offset(address, queue)
    return await api.search_offset(address, queue, check_time_ms("time", consume_from))
