"""Receipts of popped messages: what a consumer acknowledges with, or changes the invisible time by.

A broker tells most receipts in a short form, one for all messages of a queue. Each message gets a receipt of
its own here, in the property `POP_CK` (Apache RocketMQ 5.3.3, MQClientAPIImpl and ExtraInfoUtil).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rmq_remoting.headers.pop import PopMessageResponseHeader
from rmq_remoting.message import MessageExt
from rmq_remoting.message_properties import PROPERTY_FIRST_POP_TIME, PROPERTY_POP_CK
from rmq_remoting.pop_receipt import Receipt, ReceiptError, kind_of, real_topic

from ...errors import UsageError
from .pop_source import PopSource


@dataclass(frozen=True, slots=True)
class PopHandle:
    """The receipt of a message and the position that it stands for.

    `topic` is the topic that the broker stored the message in: it may be a retry topic.
    """

    topic: str
    queue_id: int
    offset: int
    receipt: Receipt


def parse_handle(message: MessageExt, topic: str, group: str) -> PopHandle:
    """Return the handle of a message that `group` popped from `topic` (both full names).

    Raises UsageError for a message without a receipt, or with one that cannot be read.
    """
    text = message.receipt_handle
    if text is None:
        raise UsageError(f"message {message.msg_id} has no receipt: it was pulled, not popped")
    try:
        receipt = Receipt.parse(text)
    except ReceiptError as error:
        raise UsageError(f"message {message.msg_id}: {error}") from error
    queue_id = message.queue_id if receipt.queue_id is None else receipt.queue_id
    offset = message.queue_offset if receipt.queue_offset is None else receipt.queue_offset
    return PopHandle(real_topic(topic, group, receipt.kind), queue_id, offset, receipt)


def assign_receipts(
    messages: Iterable[MessageExt], source: PopSource, answer: PopMessageResponseHeader
) -> None:
    """Give each message of a pop its receipt, its broker's name and its number of deliveries.

    A receipt that the broker put into the message itself stays, if it is of this pop: a producer may have
    written the property, too.
    """
    starts = _start_offsets(answer.start_offset_info)
    counts = _order_counts(answer.order_count_info)
    for message in messages:
        properties = message.properties
        if counts:
            queue_id = message.queue_id
            count = counts.get(f"qo{queue_id}%{message.queue_offset}", counts.get(str(queue_id), 0))
            message.reconsume_times = max(message.reconsume_times, count)
        if not _is_of_pop(properties.get(PROPERTY_POP_CK), answer.pop_time):
            kind = kind_of(message.topic)
            receipt = Receipt(
                starts.get((kind, message.queue_id), message.queue_offset),
                answer.pop_time,
                answer.invisible_time_ms,
                answer.revive_queue_id,
                kind,
                source.broker_name,
                message.queue_id,
                message.queue_offset,
            )
            properties[PROPERTY_POP_CK] = str(receipt)
        properties.setdefault(PROPERTY_FIRST_POP_TIME, str(answer.pop_time))
        message.broker_name = source.broker_name


def _start_offsets(info: str | None) -> dict[tuple[str, int], int]:
    """Return the offset that each queue was read from, by kind of topic and queue id.

    The format is `kind queue offset;kind queue offset`.
    """
    starts: dict[tuple[str, int], int] = {}
    for item in (info or "").split(";"):
        parts = item.split(" ")
        if len(parts) == 3 and parts[1].isdecimal() and parts[2].isdecimal():  # kind, queue id, offset
            starts[parts[0], int(parts[1])] = int(parts[2])
    return starts


def _order_counts(info: str | None) -> dict[str, int]:
    """Return how often messages that were popped in order had been delivered before: `kind place count;...`.

    A place is a message (`qo`, its queue id, `%` and its offset), or a queue id: the count of a queue is for
    its other messages (Apache RocketMQ 5.3.3, ExtraInfoUtil and MQClientAPIImpl).
    """
    counts: dict[str, int] = {}
    for item in (info or "").split(";"):
        parts = item.split(" ")
        if len(parts) == 3 and parts[2].isdecimal():  # kind, place, count
            counts[parts[1]] = int(parts[2])
    return counts


def _is_of_pop(text: str | None, pop_time: int) -> bool:
    """Whether a receipt is of the pop with that time, and not something that a producer wrote."""
    if text is None:
        return False
    try:
        return Receipt.parse(text).pop_time == pop_time
    except ReceiptError:
        return False
