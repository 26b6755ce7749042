"""Requests of POP to brokers: pop, acknowledge, change the invisible time, and forward to the dead letters.

Source: Apache RocketMQ 5.3.3, ConsumerProcessor, ProducerProcessor and MQClientAPIImpl.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from rmq_client.consumer.requests.pop_receipts import assign_receipts
from rmq_client.consumer.requests.pop_source import PopSource
from rmq_client.errors import ClientError, broker_error, readable
from rmq_remoting.bodies.heartbeat import SubscriptionData
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.headers.consumer import ConsumerSendMsgBackRequestHeader
from rmq_remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from rmq_remoting.message import MessageExt
from rmq_remoting.message_codec import decode_messages
from rmq_remoting.message_properties import PROPERTY_POP_CK
from rmq_remoting.pop_receipt import Receipt

from .brokers import Brokers
from .messages import unpack_bodies
from .protocol.definition_pb2 import Code
from .receipt_handles import ReceiptHandle
from .statuses import Refusal

log = logging.getLogger("rmq.proxy")

# Apache RocketMQ 5.3.3, ProxyUtils.MAX_MSG_NUMS_FOR_POP_REQUEST.
MAX_POPPED: Final = 32
_ANSWER_MARGIN_SECONDS: Final = 10.0
# A consumer group without offsets begins at the end of a queue (ConsumeInitMode.MAX).
_FROM_NEWEST: Final = 1
_NOTHING_THERE: Final = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_TIMEOUT})
_TO_DEAD_LETTERS: Final = -1


@dataclass(frozen=True, slots=True)
class PopRequest:
    """One pop of a group: how many messages, for how long invisible, and how long the broker may hold it."""

    group: str
    topic: str
    broker_name: str
    subscription: SubscriptionData
    most: int
    invisible_ms: int
    poll_ms: int
    in_order: bool
    attempt_id: str | None


@dataclass(slots=True)
class Popped:
    """A pop's messages, each with its handle in the property POP_CK.

    `is_full`: the broker holds too many pops. `found`: it found messages at all.
    """

    messages: list[MessageExt] = field(default_factory=list)
    found: bool = False
    is_full: bool = False


def _now_ms() -> int:
    return int(time.time() * 1000)


class Pops:
    """Sends requests of POP."""

    def __init__(self, brokers: Brokers, now_ms: Callable[[], int] = _now_ms) -> None:
        self._brokers = brokers
        self._now_ms = now_ms

    async def pop(self, address: str, request: PopRequest) -> Popped:
        """Pop messages. Raises BrokerError, UnreachableError."""
        header = PopMessageRequestHeader(
            consumer_group=request.group,
            topic=request.topic,
            queue_id=-1,
            max_msg_nums=min(request.most, MAX_POPPED),
            invisible_time_ms=request.invisible_ms,
            poll_time_ms=request.poll_ms,
            born_time=self._now_ms(),
            init_mode=_FROM_NEWEST,
            expression_type=request.subscription.expression_type,
            expression=request.subscription.sub_string,
            order=request.in_order,
            attempt_id=request.attempt_id,
            broker_name=request.broker_name,
        )
        about = f"pop of {request.topic} of {request.broker_name} for group {request.group}"
        response = await self._brokers.ask(
            address,
            RequestCode.POP_MESSAGE,
            header.encode(),
            about=about,
            timeout_seconds=request.poll_ms / 1000 + _ANSWER_MARGIN_SECONDS,
        )
        if response.code in _NOTHING_THERE:
            return Popped()
        if response.code == ResponseCode.POLLING_FULL:
            return Popped(is_full=True)
        if response.code != ResponseCode.SUCCESS:
            raise broker_error(response.code, response.remark, address, about)
        with readable(address, about):
            answer = PopMessageResponseHeader.decode(response.ext_fields)
            messages = decode_messages(response.body, decompress_bodies=False)
        assign_receipts(messages, PopSource(request.topic, request.broker_name), answer)
        for message in messages:
            properties = message.properties
            properties[PROPERTY_POP_CK] = f"{properties[PROPERTY_POP_CK]} {message.physical_offset}"
            message.topic = request.topic
        await unpack_bodies(messages)
        return Popped(messages, found=True)

    async def acknowledge(self, group: str, topic: str, handle: ReceiptHandle) -> bool:
        """Acknowledge a message; return whether it was still the consumer's.

        Raises Refusal for an expired handle or an unknown broker, and UnreachableError.
        """
        handle.check_not_expired(self._now_ms())
        receipt = handle.receipt
        address = await self._address(handle)
        real = handle.topic(topic, group)
        header = AckMessageRequestHeader(
            consumer_group=group,
            topic=real,
            queue_id=handle.queue_id,
            extra_info=str(receipt),
            offset=handle.queue_offset,
            broker_name=receipt.broker_name,
        )
        about = f"acknowledge message {handle.queue_offset} of {real}"
        response = await self._brokers.ask(address, RequestCode.ACK_MESSAGE, header.encode(), about=about)
        return response.code == ResponseCode.SUCCESS

    async def change_invisible(
        self, group: str, topic: str, handle: ReceiptHandle, invisible_ms: int
    ) -> ReceiptHandle | None:
        """Make a message visible again `invisible_ms` from now, and return its new handle.

        None: the message is no longer the consumer's. Raises as `acknowledge`.
        """
        handle.check_not_expired(self._now_ms())
        old = handle.receipt
        address = await self._address(handle)
        real = handle.topic(topic, group)
        header = ChangeInvisibleTimeRequestHeader(
            consumer_group=group,
            topic=real,
            queue_id=handle.queue_id,
            extra_info=str(old),
            offset=handle.queue_offset,
            invisible_time_ms=invisible_ms,
            broker_name=old.broker_name,
        )
        about = f"change of the invisible time of message {handle.queue_offset} of {real}"
        response = await self._brokers.ask(
            address, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header.encode(), about=about
        )
        if response.code != ResponseCode.SUCCESS:
            return None
        with readable(address, about):
            answer = ChangeInvisibleTimeResponseHeader.decode(response.ext_fields)
        receipt = Receipt(
            old.start_offset if old.is_order else handle.queue_offset,
            answer.pop_time,
            answer.invisible_time_ms,
            answer.revive_queue_id,
            old.kind,
            old.broker_name,
            handle.queue_id,
            handle.queue_offset,
        )
        return ReceiptHandle(receipt, handle.queue_id, handle.queue_offset, handle.commit_log_offset)

    async def forward_to_dead_letters(
        self, group: str, topic: str, handle: ReceiptHandle, message_id: str
    ) -> None:
        """Copy a message into the group's dead letters, then acknowledge it. Raises Refusal, ClientError.

        A failed acknowledgement is no failure: the client would repeat the request, and make more copies.
        """
        if handle.commit_log_offset < 0:
            raise Refusal(Code.INVALID_RECEIPT_HANDLE, "commit log offset is empty")
        address = await self._address(handle)
        header = ConsumerSendMsgBackRequestHeader(
            offset=handle.commit_log_offset,
            group=group,
            delay_level=_TO_DEAD_LETTERS,
            origin_msg_id=message_id,
            origin_topic=handle.topic(topic, group),
            max_reconsume_times=0,
            broker_name=handle.receipt.broker_name,
        )
        about = f"dead letter of message {message_id} of group {group}"
        await self._brokers.call(address, RequestCode.CONSUMER_SEND_MSG_BACK, header.encode(), about=about)
        try:
            await self.acknowledge(group, topic, handle)
        except (ClientError, Refusal) as error:
            log.info("dead letter not acknowledged id=%s group=%s cause=%s", message_id, group, error)

    async def _address(self, handle: ReceiptHandle) -> str:
        return await self._brokers.address(handle.receipt.broker_name, Code.INVALID_RECEIPT_HANDLE)
