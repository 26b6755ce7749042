"""POP requests of simple and push consumers: pop, notification, acknowledge, change the invisible time.

The request codes of POP do not fit into binary headers, which have 16 bits for them. So these requests are in
JSON.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
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
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from rmq_remoting.headers.pop_queries import NotificationRequestHeader, NotificationResponseHeader
from rmq_remoting.message import MessageExt
from rmq_remoting.pop_receipt import Receipt

from ...errors import Busy, ReceiptExpired, broker_error, readable, request_failure
from ...namespaces import Namespace
from ...network.broker_api import Requester
from ...response_decoding import ResponseDecoding
from ...settings import ClientSettings
from ..subscription import Subscription
from .pop_receipts import PopHandle, assign_receipts, parse_handle
from .pop_source import PopSource
from .pull_client import check_decoding

log = logging.getLogger(__name__)

# The most messages of one pop (Apache RocketMQ 5.3.3, PopMessageProcessor).
MAX_POPPED: Final = 32

# Timeout of a pop beyond the time that the broker holds it.
_ANSWER_MARGIN_SECONDS: Final = 10.0
# Brokers refuse requests older than their poll time. A pop that does not wait must never be too old.
_BORN_TIME_AHEAD_MS: Final = 3_600_000
_NOTHING_THERE: Final = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_TIMEOUT})
_ALREADY_ACKNOWLEDGED: Final = frozenset({ResponseCode.NO_MESSAGE})


@dataclass(slots=True)
class PopResult:
    """Result of a pop: `messages` match the subscription, `unwanted` have another tag with the same hash
    code.

    `undecoded` are beyond the limit of a response, and their bodies are still compressed. The caller makes
    them visible again, so that another pop returns them.
    """

    messages: list[MessageExt]
    unwanted: list[MessageExt]
    undecoded: list[MessageExt] = field(default_factory=list)


class PopClient:
    """Sends POP requests of one group."""

    def __init__(
        self,
        requester: Requester,
        group: str,
        settings: ClientSettings,
        now_ms: Callable[[], int],
        *,
        from_newest: bool = False,
    ) -> None:
        """`group` is the full name.

        `from_newest`: begin at the end of a queue that the group never consumed.
        """
        self._requester = requester
        self._group = group
        self._settings = settings
        self._namespace = Namespace(settings.namespace)
        self._now_ms = now_ms
        self._init_mode = int(from_newest)
        # Least lead of a broker's clock over this one: the answer's time in flight counts as lag.
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
        """Pop up to `max_messages`, which stay invisible to other consumers for `invisible_ms`.

        Without a message the broker waits for up to `poll_ms`. `in_order`: the broker returns no more
        messages of a queue that has unacknowledged ones of the group. A repeated request with the same
        `attempt_id`, after an answer was lost, returns the messages of that answer. An unreadable
        message is not acknowledged, so it is redelivered. Raises BrokerError, UnreachableError.
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
        decoding = ResponseDecoding(response.body, self._settings.max_unpacked_body_bytes)
        if decoding.needs_thread:
            await decoding.finish_in_thread()
        check_decoding(decoding, source.queue, address, about)
        messages, undecoded = decoding.messages, decoding.undecoded()
        topic = self._namespace.unwrap(source.topic)
        for received in (messages, undecoded):
            assign_receipts(received, source, answer)
            for message in received:
                message.topic = topic
        wanted = subscription.select(messages)
        if len(wanted) == len(messages):
            return PopResult(wanted, [], undecoded)
        unwanted = [message for message in messages if message.tags not in subscription.tags]
        return PopResult(wanted, unwanted, undecoded)

    async def has_messages(
        self, address: str, source: PopSource, poll_ms: int, *, in_order: bool = False
    ) -> bool:
        """Whether there are messages to pop (`in_order`: in order), now or within `poll_ms`.

        Raises Busy if too many consumers ask the broker, BrokerError, UnreachableError.
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
        """400: return the queues that the broker assigns to this client, None if it cannot tell.

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

    # --- acknowledging ---

    async def ack(self, address: str, held: PopHandle) -> None:
        """Acknowledge one message.

        Raises ReceiptExpired if it no longer belongs to this consumer, BrokerError, UnreachableError.
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
        """Acknowledge messages of one topic (or of its retry topics) and one broker.

        Returns whether all were acknowledged. Raises BrokerError, UnreachableError.
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
        """Make a message visible again `invisible_ms` from now, and return its new receipt.

        Raises ReceiptExpired if it no longer belongs to this consumer, BrokerError, UnreachableError.
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
        """Return the full name of the topic that a message was popped from."""
        return self._namespace.wrap(message.topic)

    def overdue_ms(self, receipt: Receipt) -> int:
        """Return for how long a message has been visible again, by its broker's clock; negative: still
        invisible.

        The result is a lower bound, as long as the clocks run at the same speed.
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


def _check_acknowledged(response: RemotingCommand, address: str, about: str) -> None:
    if response.code in _ALREADY_ACKNOWLEDGED:
        raise ReceiptExpired(response.code, response.remark, address, about)
    if response.code != ResponseCode.SUCCESS:
        raise broker_error(response.code, response.remark, address, about)
