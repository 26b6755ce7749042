"""Requests of POP consumers, one call each."""

from __future__ import annotations

from dataclasses import dataclass

from rmq_remoting.bodies.assignment import (
    MessageRequestMode,
    QueryAssignmentRequestBody,
    SetMessageRequestModeRequestBody,
)
from rmq_remoting.bodies.heartbeat import MessageModel
from rmq_remoting.bodies.pop import BatchAck, BatchAckMessageRequestBody
from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from rmq_remoting.headers.pop_queries import (
    NotificationRequestHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
)
from rmq_remoting.message import MessageExt
from rmq_remoting.message_codec import decode_messages
from rmq_remoting.pop_receipt import Receipt, kind_of
from tests.support.broker_requests import succeeded

BROKER = "broker-a"
MINUTE_MS = 60_000


def pop(
    topic: str,
    group: str = "CG",
    *,
    queue_id: int = -1,
    count: int = 32,
    invisible_ms: int = MINUTE_MS,
    poll_ms: int = 0,
    born_ms: int = 0,
    init_mode: int = 0,
    expression: str | None = None,
    expression_type: str | None = None,
    order: bool = False,
    attempt_id: str | None = None,
) -> RemotingCommand:
    """A pop, held for `poll_ms` if there is no message."""
    header = PopMessageRequestHeader(
        topic=topic,
        consumer_group=group,
        queue_id=queue_id,
        max_msg_nums=count,
        invisible_time_ms=invisible_ms,
        poll_time_ms=poll_ms,
        born_time=born_ms,
        init_mode=init_mode,
        expression=expression,
        expression_type=expression_type,
        order=order,
        attempt_id=attempt_id,
    )
    return RemotingCommand.request(RequestCode.POP_MESSAGE, header.encode())


@dataclass(slots=True)
class Popped:
    """A popped message with the fields of its receipt; `topic` is the queue's own."""

    message: MessageExt
    topic: str
    receipt: Receipt
    offset: int
    queue_id: int

    @property
    def body(self) -> bytes:
        return self.message.body


def popped(answer: RemotingCommand) -> list[Popped]:
    """Return the messages of a pop with their receipts, as Apache's client does. AssertionError if none."""
    header = PopMessageResponseHeader.decode(succeeded(answer).ext_fields)
    starts = {}
    for item in (header.start_offset_info or "").split(";"):
        kind, queue_id, start = item.split(" ")
        starts[kind, int(queue_id)] = int(start)
    offsets = {}
    for item in (header.msg_offset_info or "").split(";"):
        kind, queue_id, listed = item.split(" ")
        offsets[kind, int(queue_id)] = [int(offset) for offset in listed.split(",")]
    found = []
    for message in decode_messages(answer.body, check_crc=True):
        written = message.properties.get("POP_CK")
        if written is not None:
            receipt = Receipt.parse(written)
        else:
            kind = kind_of(message.topic)
            receipt = Receipt(
                starts[kind, message.queue_id],
                header.pop_time,
                header.invisible_time_ms,
                header.revive_queue_id,
                kind,
                BROKER,
                message.queue_id,
                message.queue_offset,
            )
        listed_offsets = offsets[receipt.kind, message.queue_id]
        assert message.queue_offset == listed_offsets.pop(0)
        found.append(Popped(message, message.topic, receipt, message.queue_offset, message.queue_id))
    assert not any(offsets.values())
    return found


def ack(
    item: Popped,
    group: str = "CG",
    *,
    topic: str | None = None,
    offset: int | None = None,
    queue_id: int | None = None,
    receipt: str | Receipt | None = None,
) -> RemotingCommand:
    """An acknowledgement; the options replace its fields."""
    header = AckMessageRequestHeader(
        topic=topic or _real_topic(item, group),
        consumer_group=group,
        extra_info=str(receipt or item.receipt),
        offset=item.offset if offset is None else offset,
        queue_id=item.queue_id if queue_id is None else queue_id,
    )
    return RemotingCommand.request(RequestCode.ACK_MESSAGE, header.encode())


def ack_batch(items: list[Popped], group: str = "CG") -> RemotingCommand:
    """Acknowledge messages of one queue and one pop."""
    receipt = items[0].receipt
    batch = BatchAck(
        consumer_group=group,
        topic=items[0].topic,
        retry=receipt.kind,
        start_offset=receipt.start_offset,
        queue_id=items[0].queue_id,
        revive_queue_id=receipt.revive_queue_id,
        pop_time=receipt.pop_time,
        invisible_time_ms=receipt.invisible_time_ms,
        bit_set=sum(1 << (item.offset - receipt.start_offset) for item in items),
    )
    body = BatchAckMessageRequestBody(broker_name=receipt.broker_name, acks=[batch])
    return RemotingCommand.request(RequestCode.BATCH_ACK_MESSAGE, body=body.encode())


def hide(
    item: Popped, invisible_ms: int, group: str = "CG", *, receipt: str | Receipt | None = None
) -> RemotingCommand:
    """A change of the invisible time of a message."""
    header = ChangeInvisibleTimeRequestHeader(
        topic=_real_topic(item, group),
        consumer_group=group,
        extra_info=str(receipt or item.receipt),
        offset=item.offset,
        queue_id=item.queue_id,
        invisible_time_ms=invisible_ms,
    )
    return RemotingCommand.request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header.encode())


def hidden(item: Popped, answer: RemotingCommand) -> Popped:
    """Return the message with its new receipt."""
    header = ChangeInvisibleTimeResponseHeader.decode(succeeded(answer).ext_fields)
    old = item.receipt
    new = Receipt(
        old.start_offset if old.is_order else item.offset,
        header.pop_time,
        header.invisible_time_ms,
        header.revive_queue_id,
        old.kind,
        old.broker_name,
        item.queue_id,
        item.offset,
    )
    return Popped(item.message, item.topic, new, item.offset, item.queue_id)


def notify(
    topic: str,
    group: str = "CG",
    *,
    queue_id: int = -1,
    poll_ms: int = 0,
    born_ms: int = 0,
    order: bool = False,
) -> RemotingCommand:
    """Ask whether there are messages to pop."""
    header = NotificationRequestHeader(
        topic=topic,
        consumer_group=group,
        queue_id=queue_id,
        poll_time_ms=poll_ms,
        born_time=born_ms,
        order=order,
    )
    return RemotingCommand.request(RequestCode.NOTIFICATION, header.encode())


def peek(topic: str, group: str = "CG", *, queue_id: int = -1, count: int = 32) -> RemotingCommand:
    """Ask for the messages that a pop would return."""
    header = PeekMessageRequestHeader(
        topic=topic, consumer_group=group, queue_id=queue_id, max_msg_nums=count
    )
    return RemotingCommand.request(RequestCode.PEEK_MESSAGE, header.encode())


def set_mode(topic: str, group: str, mode: MessageRequestMode) -> RemotingCommand:
    """Set whether a group pops or pulls a topic, as `mqadmin setConsumeMode` does."""
    body = SetMessageRequestModeRequestBody(consumer_group=group, topic=topic, mode=mode)
    return RemotingCommand.request(RequestCode.SET_MESSAGE_REQUEST_MODE, body=body.encode())


def polling_info(topic: str, group: str = "CG", *, queue_id: int = -1) -> RemotingCommand:
    """Ask for the number of held pops."""
    header = PollingInfoRequestHeader(topic=topic, consumer_group=group, queue_id=queue_id)
    return RemotingCommand.request(RequestCode.POLLING_INFO, header.encode())


def polling_count(answer: RemotingCommand) -> int:
    """Return the number of held pops."""
    return PollingInfoResponseHeader.decode(succeeded(answer).ext_fields).polling_num


def _real_topic(item: Popped, group: str) -> str:
    separator = {"0": None, "1": "_", "2": "+"}[item.receipt.kind]
    return item.topic if separator is None else f"%RETRY%{group}{separator}{item.topic}"


def query_assignment(topic: str, group: str = "CG", client_id: str = "c1") -> RemotingCommand:
    """400: all queues of a topic, as for a broadcasting consumer."""
    body = QueryAssignmentRequestBody(
        topic=topic,
        consumer_group=group,
        client_id=client_id,
        strategy_name="AVG",
        message_model=MessageModel.BROADCASTING,
    )
    return RemotingCommand.request(RequestCode.QUERY_ASSIGNMENT, body=body.encode())
