"""Returning refused messages to brokers, for redelivery or as dead letters."""

from __future__ import annotations

import logging
import random
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import RequestError
from rmq_remoting.headers.consumer import ConsumerSendMsgBackRequestHeader
from rmq_remoting.headers.send import SendMessageRequestHeader, SendTarget
from rmq_remoting.message import MessageExt
from rmq_remoting.message_errors import MessageEncodeError
from rmq_remoting.message_properties import (
    MAX_PROPERTIES_BYTES,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_FIRST_POP_TIME,
    PROPERTY_MAX_RECONSUME_TIMES,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_POP_CK,
    PROPERTY_RECONSUME_TIME,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TRANSACTION_PREPARED,
    encode_properties,
    properties_to_string,
)
from rmq_remoting.message_queue import MessageQueue

from ...bodies.encoding import DEAD_LETTER_REASON
from ...clock import now_ms
from ...errors import ClientError, NoQueue, UsageError, broker_error, request_failure
from ...hooks.consume import SettlementKind
from ...hooks.consumption import ConsumptionHooks
from ...names import AUTO_CREATE_TOPIC, RETRY_TOPIC_PREFIX
from ...namespaces import Namespace
from ...network.broker_api import BrokerApi, Requester
from ...network.logical_queues import is_logical
from ...network.routing import RouteTable
from ...settings import ClientSettings
from .listener import DEAD_LETTER

log = logging.getLogger(__name__)

# Producer group of a consumer's sends (Apache RocketMQ 5.3.3, MixAll.CLIENT_INNER_PRODUCER_GROUP).
_INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
_QUEUES_OF_A_NEW_TOPIC: Final = 4
_ATTEMPTS: Final = 3
# The brokers' default of a group (Apache RocketMQ 5.3.3, SubscriptionGroupConfig).
DEFAULT_MAX_RECONSUME_TIMES: Final = 16
# Delay level of the first retry; each further retry has a level more.
FIRST_RETRY_LEVEL: Final = 3
_NOT_RESENT: Final = (
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_RECONSUME_TIME,
    PROPERTY_MAX_RECONSUME_TIMES,
    # Of the pop that delivered the message: the copy has no receipt.
    PROPERTY_POP_CK,
    PROPERTY_FIRST_POP_TIME,
)
_STORED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)


class RetryRules:
    """How often a group retries a message.

    `max_reconsume_times` None: as often as the broker is configured.
    """

    def __init__(self, group: str, max_reconsume_times: int | None) -> None:
        if max_reconsume_times is not None and max_reconsume_times < 0:
            raise UsageError(f"max_reconsume_times={max_reconsume_times}: must be at least 0")
        self.group = group
        self.retry_topic = RETRY_TOPIC_PREFIX + group
        self.max_reconsume_times = max_reconsume_times

    def is_last(self, message: MessageExt, delay_level: int) -> bool:
        """Whether the broker will make the message a dead letter, as far as this client can know."""
        limit = self.max_reconsume_times
        return delay_level <= DEAD_LETTER or (limit is not None and message.reconsume_times >= limit)

    def restore_topic(self, message: MessageExt) -> None:
        """Restore the original topic of a message of the retry topic, for the listener."""
        if message.topic == self.retry_topic:
            message.topic = message.properties.get(PROPERTY_RETRY_TOPIC, message.topic)


class SendBack:
    """Sends messages back. Belongs to the network loop."""

    def __init__(
        self,
        rules: RetryRules,
        api: BrokerApi,
        requester: Requester,
        routes: RouteTable,
        settings: ClientSettings,
        hooks: ConsumptionHooks | None = None,
    ) -> None:
        """`hooks` get each message that is sent back."""
        self.rules = rules
        self._hooks = hooks
        self._api = api
        self._requester = requester
        self._routes = routes
        self._settings = settings
        self._namespace = Namespace(settings.namespace)

    async def send_back(self, message: MessageExt, queue: MessageQueue, delay_level: int) -> None:
        """36: have the message redelivered; if its broker refuses, send a copy to the retry topic.

        `queue` is the queue of the message. A message with a reason why it becomes a dead letter is always
        sent as a copy: brokers take the properties of refused messages from their store. Raises ClientError
        if neither worked.
        """
        with self._told(message, delay_level):
            await self._send_back(message, queue, delay_level)

    async def _send_back(self, message: MessageExt, queue: MessageQueue, delay_level: int) -> None:
        if is_logical(queue.broker_name):
            # The message may be on another broker than the leader, and its offset in the log is of that one.
            # So Apache's client sends a copy, too (5.3.3, DefaultMQPushConsumerImpl.sendMessageBack).
            await self._resend(message, delay_level)
            return
        if delay_level <= DEAD_LETTER and DEAD_LETTER_REASON in message.properties:
            try:
                await self._resend(message, delay_level)
                return
            except ClientError as error:
                log.warning("dead letter sent without its reason id=%s cause=%s", message.msg_id, error)
                await self._to_its_broker(message, queue, delay_level)
                return
        try:
            await self._to_its_broker(message, queue, delay_level)
        except ClientError as error:
            log.warning("message not sent back cause=%s; a copy is sent to the retry topic", error)
            await self._resend(message, delay_level)

    def _told(self, message: MessageExt, delay_level: int) -> AbstractContextManager[None]:
        if self._hooks is None:
            return nullcontext()
        is_last = self.rules.is_last(message, delay_level)
        kind = SettlementKind.DEAD_LETTER if is_last else SettlementKind.RETRY
        return self._hooks.settling(kind, [message], automatic=True)

    async def resend(self, message: MessageExt, delay_level: int = 0) -> None:
        """Send a copy to the retry topic, with the delay level, or 0 for that of its attempts.

        A broker makes it a dead letter after too many attempts. Raises ClientError.
        """
        with self._told(message, delay_level):
            await self._resend(message, delay_level)

    async def _resend(self, message: MessageExt, delay_level: int) -> None:
        topic = self.rules.retry_topic
        properties = self._resend_properties(message, delay_level)
        limit = self.rules.max_reconsume_times
        max_times = DEFAULT_MAX_RECONSUME_TIMES if limit is None else limit
        if delay_level <= DEAD_LETTER:
            max_times = 0  # the copy counts as a second attempt: one too many
        route = await self._routes.route_to_publish(topic, _QUEUES_OF_A_NEW_TOPIC)
        queues = list(route.write_queues)
        random.shuffle(queues)
        failure: ClientError = NoQueue(f"no queue of {topic} can be written")
        for queue in queues[:_ATTEMPTS]:
            address = route.broker_address(queue.broker_name)
            if address is None:
                continue
            target = SendTarget(
                producer_group=_INNER_PRODUCER_GROUP,
                topic=topic,
                default_topic=AUTO_CREATE_TOPIC,
                default_topic_queue_nums=_QUEUES_OF_A_NEW_TOPIC,
                queue_id=queue.queue_id,
                sys_flag=0,
                flag=message.flag,
                reconsume_times=message.reconsume_times + 1,
                max_reconsume_times=max_times,
                broker_name=queue.broker_name,
            )
            try:
                await self._send(address, SendMessageRequestHeader(target, now_ms(), properties), message)
                return
            except ClientError as error:
                failure = error
        raise failure

    async def _to_its_broker(self, message: MessageExt, queue: MessageQueue, delay_level: int) -> None:
        rules = self.rules
        route = await self._routes.route(queue.topic)
        address = route.known_address(queue.broker_name, queue)
        header = ConsumerSendMsgBackRequestHeader(
            group=rules.group,
            origin_topic=self._namespace.wrap(message.topic),
            offset=message.physical_offset,
            delay_level=delay_level,
            origin_msg_id=message.msg_id,
            max_reconsume_times=rules.max_reconsume_times,
            broker_name=queue.broker_name,
        )
        await self._api.call(
            address,
            RequestCode.CONSUMER_SEND_MSG_BACK,
            header,
            about=f"send message {message.msg_id} of {queue} back",
        )

    def _resend_properties(self, message: MessageExt, delay_level: int) -> bytes:
        """Return the properties of a copy, with its history (Apache RocketMQ 5.3.3,
        DefaultMQPushConsumerImpl).
        """
        properties = dict(message.properties)
        for name in _NOT_RESENT:
            properties.pop(name, None)
        properties.setdefault(PROPERTY_ORIGIN_MESSAGE_ID, message.msg_id)
        properties[PROPERTY_RETRY_TOPIC] = self._namespace.wrap(message.topic)
        if delay_level <= 0:
            delay_level = FIRST_RETRY_LEVEL + message.reconsume_times
        properties[PROPERTY_DELAY_TIME_LEVEL] = str(delay_level)
        try:
            if len(properties_to_string(properties).encode("utf-8", "replace")) > MAX_PROPERTIES_BYTES:
                properties.pop(DEAD_LETTER_REASON, None)  # of all properties, the one that was added here
            return encode_properties(properties)
        except MessageEncodeError as error:
            raise UsageError(f"message {message.msg_id} cannot be sent again: {error}") from error

    async def _send(self, address: str, header: SendMessageRequestHeader, message: MessageExt) -> None:
        about = f"send message {message.msg_id} to {self.rules.retry_topic}"
        request = RemotingCommand.request(
            RequestCode.SEND_MESSAGE_V2,
            header.encode_v2(),
            message.body,
            serialization=self._settings.serialization,
        )
        try:
            response = await self._requester.request(address, request, self._settings.request_timeout_seconds)
        except RequestError as error:
            raise request_failure(error, about) from error
        if response.code not in _STORED:
            raise broker_error(response.code, response.remark, address, about)
