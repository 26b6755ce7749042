"""Popping: the requests, their outcomes, and the messages in them. Used by simple and push consumers alike.

The codes of POP do not fit into binary headers, which have 16 bits for them: these requests go in JSON.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from rmq_remoting.bodies.assignment import (
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
)
from rmq_remoting.bodies.pop import BatchAck, BatchAckMessageRequestBody
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.errors import RequestError
from rmq_remoting.headers.base import TypedHeader
from rmq_remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    NotificationRequestHeader,
    NotificationResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from rmq_remoting.message import MessageExt
from rmq_remoting.message_codec import decode_messages, decode_until_damage
from rmq_remoting.message_errors import DecompressionError
from rmq_remoting.pop_receipt import Receipt

from ...errors import BrokerError, Busy, ReceiptExpired, broker_error, readable, request_failure
from ...namespaces import Namespace
from ...network.broker_api import Requester
from ...settings import ClientSettings
from ..subscription import Subscription
from .pop_receipts import PopHandle, assign_receipts, parse_handle
from .pop_source import PopSource
from .pull_client import unpack

log = logging.getLogger("rmq.client.pop")

# What brokers give at once (Apache RocketMQ 5.3.3, PopMessageProcessor).
MAX_POPPED: Final = 32

# How much longer than the broker's hold a pop is waited for.
_ANSWER_MARGIN_SECONDS: Final = 10.0
# Brokers refuse what is older than its client waits for it. What does not wait cannot be too old.
_BORN_TIME_AHEAD_MS: Final = 3_600_000
_NOTHING_THERE: Final = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_TIMEOUT})
_ALREADY_ACKNOWLEDGED: Final = frozenset({ResponseCode.NO_MESSAGE})


@dataclass(slots=True)
class PopResult:
    """What a pop brought: `messages` are wanted; `unwanted` have another tag with the same hash code."""

    messages: list[MessageExt]
    unwanted: list[MessageExt]


class PopClient:
    """Pops from the brokers of one group's topics, and settles what was popped."""

    def __init__(
        self,
        requester: Requester,
        group: str,
        settings: ClientSettings,
        now_ms: Callable[[], int],
        *,
        from_newest: bool = False,
    ) -> None:
        """`group`: its full name. `from_newest`: where it begins in a queue that it has never consumed."""
        self._requester = requester
        self._group = group
        self._settings = settings
        self._namespace = Namespace(settings.namespace)
        self._now_ms = now_ms
        self._init_mode = int(from_newest)
        # How far a broker's clock is ahead of this one's, or less: answers are under way for some time.
        self._clock_lead_ms: dict[str, int] = {}

    async def pop(
        self,
        address: str,
        source: PopSource,
        subscription: Subscription,
        max_messages: int,
        invisible_ms: int,
        poll_ms: int = 0,
        *,
        in_order: bool = False,
        attempt_id: str | None = None,
    ) -> PopResult:
        """Up to `max_messages`, of which no other consumer sees anything for `invisible_ms`.

        Where nothing is there, the broker waits for `poll_ms`. `in_order`: of a queue of which the group has
        something in its hands nothing more is given; who asks again with the same `attempt_id`, because no
        answer came, gets what that one would have brought. Raises BrokerError, UnreachableError.
        """
        about = f"pop from {source.topic} of {source.broker_name}"
        data = subscription.data
        header = PopMessageRequestHeader(
            topic=source.topic,
            consumer_group=self._group,
            queue_id=source.queue_id,
            max_msg_nums=min(max_messages, MAX_POPPED),
            invisible_time_ms=invisible_ms,
            poll_time_ms=poll_ms,
            born_time=self._born_ms(source, poll_ms),
            init_mode=self._init_mode,
            expression=data.sub_string,
            expression_type=data.expression_type,
            order=in_order,
            attempt_id=attempt_id,
            broker_name=source.broker_name,
        )
        response = await self._request(address, RequestCode.POP_MESSAGE, header, about, poll_ms=poll_ms)
        if response.code in _NOTHING_THERE:
            return PopResult([], [])
        if response.code != ResponseCode.SUCCESS:
            raise broker_error(response.code, response.remark, address, about)
        with readable(address, about):
            answer = PopMessageResponseHeader.decode(response.ext_fields)
        self._clock_lead_ms[source.broker_name] = answer.pop_time - self._now_ms()
        messages = self._messages(response.body, address, source, about)
        assign_receipts(messages, source, answer)
        topic = self._namespace.unwrap(source.topic)
        for message in messages:
            message.topic = topic
        wanted = subscription.select(messages)
        if len(wanted) == len(messages):
            return PopResult(wanted, [])
        return PopResult(wanted, [message for message in messages if message.tags not in subscription.tags])

    async def has_messages(
        self, address: str, source: PopSource, poll_ms: int, *, in_order: bool = False
    ) -> bool:
        """Whether there is something to pop (in order, perhaps), now or within `poll_ms`.

        Raises Busy where too many ask the broker, BrokerError, UnreachableError.
        """
        about = f"wait for messages of {source.topic} of {source.broker_name}"
        header = NotificationRequestHeader(
            topic=source.topic,
            consumer_group=self._group,
            queue_id=source.queue_id,
            poll_time_ms=poll_ms,
            born_time=self._born_ms(source, poll_ms),
            order=in_order,
            broker_name=source.broker_name,
        )
        response = await self._request(address, RequestCode.NOTIFICATION, header, about, poll_ms=poll_ms)
        if response.code != ResponseCode.SUCCESS:
            raise broker_error(response.code, response.remark, address, about)
        with readable(address, about):
            answer = NotificationResponseHeader.decode(response.ext_fields)
        if answer.polling_full:
            raise Busy(ResponseCode.POLLING_FULL, "too many consumers wait", address, about)
        return answer.has_msg

    async def assignments(
        self, address: str, topic: str, client_id: str, strategy_name: str
    ) -> list[MessageQueueAssignment] | None:
        """400: the queues that the broker gives this client; None where it cannot tell.

        Raises BrokerError, UnreachableError.
        """
        about = f"assignment of {topic} to group {self._group}"
        body = QueryAssignmentRequestBody(
            client_id=client_id, consumer_group=self._group, strategy_name=strategy_name, topic=topic
        )
        response = await self._request(address, RequestCode.QUERY_ASSIGNMENT, None, about, body.encode())
        if response.code != ResponseCode.SUCCESS:
            raise broker_error(response.code, response.remark, address, about)
        with readable(address, about):
            return QueryAssignmentResponseBody.decode(response.body).message_queue_assignments

    # --- settling ---

    async def ack(self, address: str, held: PopHandle) -> None:
        """The message is done with.

        Raises ReceiptExpired where it is not this consumer's any more, BrokerError, UnreachableError.
        """
        about = f"acknowledge message {held.offset} of {held.topic}"
        header = AckMessageRequestHeader(
            topic=held.topic,
            consumer_group=self._group,
            extra_info=str(held.receipt),
            offset=held.offset,
            queue_id=held.queue_id,
            broker_name=held.receipt.broker_name,
        )
        response = await self._request(address, RequestCode.ACK_MESSAGE, header, about)
        _check_acknowledged(response, address, about)

    async def ack_batch(self, address: str, topic: str, held: Iterable[PopHandle]) -> bool:
        """Messages of a topic (or of its retry topics) and of one broker are done with.

        Returns whether that is so of all of them. Raises BrokerError, UnreachableError.
        """
        by_pop: defaultdict[Receipt, int] = defaultdict(int)
        for one in held:
            receipt = replace(one.receipt, queue_id=one.queue_id, queue_offset=None)
            by_pop[receipt] |= 1 << (one.offset - receipt.start_offset)
        body = BatchAckMessageRequestBody(
            broker_name=next(iter(by_pop)).broker_name,
            acks=[
                BatchAck(
                    consumer_group=self._group,
                    topic=topic,
                    retry=receipt.kind,
                    start_offset=receipt.start_offset,
                    queue_id=receipt.queue_id or 0,
                    revive_queue_id=receipt.revive_queue_id,
                    pop_time=receipt.pop_time,
                    invisible_time_ms=receipt.invisible_time_ms,
                    bit_set=bits,
                )
                for receipt, bits in by_pop.items()
            ],
        )
        about = f"acknowledge messages of {topic}"
        response = await self._request(address, RequestCode.BATCH_ACK_MESSAGE, None, about, body.encode())
        _check_acknowledged(response, address, about)
        return not response.remark

    async def change_invisible_time(self, address: str, held: PopHandle, invisible_ms: int) -> Receipt:
        """The message comes back `invisible_ms` from now; returns the receipt that is good from now on.

        Raises ReceiptExpired where it is not this consumer's any more, BrokerError, UnreachableError.
        """
        about = f"change of the invisible time of message {held.offset} of {held.topic}"
        old = held.receipt
        header = ChangeInvisibleTimeRequestHeader(
            topic=held.topic,
            consumer_group=self._group,
            extra_info=str(old),
            offset=held.offset,
            queue_id=held.queue_id,
            invisible_time_ms=invisible_ms,
            broker_name=old.broker_name,
        )
        response = await self._request(address, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header, about)
        _check_acknowledged(response, address, about)
        with readable(address, about):
            answer = ChangeInvisibleTimeResponseHeader.decode(response.ext_fields)
        return Receipt(
            old.start_offset if old.is_order else held.offset,
            answer.pop_time,
            answer.invisible_time_ms,
            answer.revive_queue_id,
            old.kind,
            old.broker_name,
            held.queue_id,
            held.offset,
        )

    def handle_of(self, message: MessageExt) -> PopHandle:
        """Return what the receipt of a message says. Raises UsageError for a message without a valid one."""
        return parse_handle(message, self.topic_of(message), self._group)

    def topic_of(self, message: MessageExt) -> str:
        """The full name of the topic that a message was popped of."""
        return self._namespace.wrap(message.topic)

    def overdue_ms(self, receipt: Receipt) -> int:
        """For how long others may have got the message, by its broker's clock; negative: they cannot yet.

        What is said is the least, as far as clocks go evenly.
        """
        now_ms = self._now_ms() + self._clock_lead_ms.get(receipt.broker_name, 0)
        return now_ms - receipt.revive_time

    # --- parts ---

    async def _request(
        self,
        address: str,
        code: RequestCode,
        header: TypedHeader | None,
        about: str,
        body: bytes = b"",
        poll_ms: int | None = None,
    ) -> RemotingCommand:
        fields = None if header is None else header.encode()
        request = RemotingCommand.request(code, fields, body, serialization=Serialization.JSON)
        seconds = self._settings.request_timeout_seconds
        if poll_ms is not None:
            seconds = poll_ms / 1000 + _ANSWER_MARGIN_SECONDS
        try:
            return await self._requester.request(address, request, seconds)
        except RequestError as error:
            raise request_failure(error, about) from error

    def _born_ms(self, source: PopSource, poll_ms: int) -> int:
        now_ms = self._now_ms()
        if poll_ms <= 0:
            return now_ms + _BORN_TIME_AHEAD_MS
        return now_ms + self._clock_lead_ms.get(source.broker_name, 0)

    def _messages(self, body: bytes, address: str, source: PopSource, about: str) -> list[MessageExt]:
        """The messages of an answer. What cannot be read is not acknowledged: it comes again."""
        limit = self._settings.max_unpacked_body_bytes
        messages, damage = decode_until_damage(body, max_body_bytes=limit)
        if damage is None:
            return messages
        if isinstance(damage, DecompressionError):
            messages = decode_messages(body, decompress_bodies=False)
            return [message for message in messages if unpack(message, source.queue, limit)]
        if not messages:
            remark = f"unreadable messages: {damage}"
            raise BrokerError(ResponseCode.SUCCESS, remark, address, about) from damage
        log.error("%s: %s; the messages before it are used", about, damage)
        return messages


def _check_acknowledged(response: RemotingCommand, address: str, about: str) -> None:
    if response.code in _ALREADY_ACKNOWLEDGED:
        raise ReceiptExpired(response.code, response.remark, address, about)
    if response.code != ResponseCode.SUCCESS:
        raise broker_error(response.code, response.remark, address, about)
