"""Where a group begins in a queue that it has never consumed."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from rmq_remoting.bodies.heartbeat import ConsumeFromWhere
from rmq_remoting.message_queue import MessageQueue

from ...errors import NotAuthorized, UsageError
from ...network.broker_api import BrokerApi

ConsumeFrom: TypeAlias = Literal["first", "last"] | datetime
"""At the oldest message, after the newest, or at the first message of a time (naive: local time)."""


def check_consume_from(consume_from: ConsumeFrom) -> ConsumeFrom:
    """The value itself. Raises UsageError for anything else, and for a time that brokers cannot be told."""
    if consume_from in ("first", "last"):
        return consume_from
    if isinstance(consume_from, datetime):
        _milliseconds(consume_from)
        return consume_from
    raise UsageError(f"consume_from {consume_from!r} must be 'first', 'last' or a datetime")


def to_wire(consume_from: ConsumeFrom) -> ConsumeFromWhere:
    """As a heartbeat tells it."""
    if consume_from == "first":
        return ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    if consume_from == "last":
        return ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    return ConsumeFromWhere.CONSUME_FROM_TIMESTAMP


async def start_offset(
    api: BrokerApi, address: str, group: str, queue: MessageQueue, consume_from: ConsumeFrom
) -> int:
    """The group's committed offset, or where it begins without one. Raises ClientError."""
    # A group that begins at the end still gets the first messages of a queue that was only just made: it
    # cannot know of new queues before their first messages are there.
    committed = await api.committed_offset(
        address, group, queue, zero_for_young_queues=consume_from == "last"
    )
    if committed is not None:
        return committed
    return await offset_of(api, address, queue, consume_from)


async def offset_of(api: BrokerApi, address: str, queue: MessageQueue, consume_from: ConsumeFrom) -> int:
    """Where `consume_from` is in this queue now. Raises ClientError, UsageError for an impossible time."""
    if consume_from == "first":
        try:
            return max(0, await api.min_offset(address, queue))
        except NotAuthorized:
            # To ask takes the right `Get` beside the `Sub` of consumers. Who pulls from 0 is told where the
            # queue begins: that is all that Apache's client does (5.3.3, RebalancePushImpl).
            return 0
    if consume_from == "last":
        return await api.max_offset(address, queue)
    return await api.search_offset(address, queue, _milliseconds(consume_from))


def _milliseconds(time: datetime) -> int:
    try:
        return int(time.timestamp() * 1000)
    except (OverflowError, ValueError, OSError) as error:
        raise UsageError(f"{time} cannot be told to a broker: {error}") from error
