"""Attributes of spans and metrics by OpenTelemetry's conventions for messaging and for RocketMQ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from rmq_remoting.codes import ResponseCode
from rmq_remoting.message import Message, MessageExt
from rmq_remoting.message_properties import (
    PROPERTY_CORRELATION_ID,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRANSACTION_PREPARED,
)
from rmq_remoting.message_queue import MessageQueue

from ..clock import now_ms
from ..errors import BrokerError

Value: TypeAlias = str | int | Sequence[str]
Attributes: TypeAlias = dict[str, Value]

BATCH_COUNT: Final = "messaging.batch.message_count"
CLIENT_ID: Final = "messaging.client.id"
CONSUMER_GROUP: Final = "messaging.consumer.group.name"
CONSUMPTION_MODEL: Final = "messaging.rocketmq.consumption_model"
CONVERSATION_ID: Final = "messaging.message.conversation_id"
DELAY_TIME_LEVEL: Final = "messaging.rocketmq.message.delay_time_level"
DELIVERY_TIMESTAMP: Final = "messaging.rocketmq.message.delivery_timestamp"
DESTINATION: Final = "messaging.destination.name"
ERROR_TYPE: Final = "error.type"
MESSAGE_GROUP: Final = "messaging.rocketmq.message.group"
MESSAGE_ID: Final = "messaging.message.id"
MESSAGE_KEYS: Final = "messaging.rocketmq.message.keys"
MESSAGE_TAG: Final = "messaging.rocketmq.message.tag"
MESSAGE_TYPE: Final = "messaging.rocketmq.message.type"
NAMESPACE: Final = "messaging.rocketmq.namespace"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
PARTITION: Final = "messaging.destination.partition.id"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
SYSTEM: Final = "messaging.system"

# Not in the conventions: which of RocketMQ's settlements a "settle" span is.
SETTLEMENT: Final = "messaging.rocketmq.settlement"

_TYPES: Final = frozenset({"create", "send", "receive", "process", "settle"})
# Attributes of spans that metrics have, too. Those of a single message would make a series of each message.
_OF_METRICS: Final = (
    OPERATION_NAME,
    SYSTEM,
    ERROR_TYPE,
    CONSUMER_GROUP,
    DESTINATION,
    PARTITION,
    SERVER_ADDRESS,
    SERVER_PORT,
)
_DELAYS: Final = frozenset(
    {
        PROPERTY_DELAY_TIME_LEVEL,
        PROPERTY_TIMER_DELAY_MS,
        PROPERTY_TIMER_DELAY_SEC,
        PROPERTY_TIMER_DELIVER_MS,
    }
)
_RESPONSE_CODES: Final = frozenset(code.value for code in ResponseCode)


class ClientIdentity:
    """The attributes that all spans of one client have, and those of its operations."""

    def __init__(self, namespace: str, client_id: Callable[[], str | None]) -> None:
        """`client_id` returns the id once the client is started, and None before."""
        self._common: Attributes = {SYSTEM: "rocketmq", NAMESPACE: namespace}
        self._client_id = client_id

    def operation(self, name: str, topic: str | None) -> Attributes:
        """Return the attributes of an operation. `topic` None: it concerns several topics."""
        if CLIENT_ID not in self._common and (client_id := self._client_id()):
            self._common[CLIENT_ID] = client_id
        attributes = {**self._common, OPERATION_NAME: name}
        if name in _TYPES:
            attributes[OPERATION_TYPE] = name
        if topic is not None:
            attributes[DESTINATION] = topic
        return attributes


class ConsumerIdentity(ClientIdentity):
    """The attributes that all spans of one consumer have, and those of its operations."""

    def __init__(
        self, namespace: str, client_id: Callable[[], str | None], group: str, *, broadcasting: bool
    ) -> None:
        """`group` is the name without the namespace."""
        super().__init__(namespace, client_id)
        model = "broadcasting" if broadcasting else "clustering"
        self._common |= {CONSUMER_GROUP: group, CONSUMPTION_MODEL: model}


def of_metric(attributes: Attributes, *, with_type: bool = False) -> Attributes:
    """Return the attributes of a span that its metrics have."""
    names = (*_OF_METRICS, OPERATION_TYPE) if with_type else _OF_METRICS
    return {name: attributes[name] for name in names if name in attributes}


def of_message(message: Message) -> Attributes:
    """Return the attributes of one message."""
    properties = message.properties
    kind = _type_of(message)
    attributes: Attributes = {MESSAGE_TYPE: kind}
    message_id = message.msg_id if isinstance(message, MessageExt) else message.unique_key
    if message_id:
        attributes[MESSAGE_ID] = message_id
    if message.tags:
        attributes[MESSAGE_TAG] = message.tags
    if keys := message.keys:
        attributes[MESSAGE_KEYS] = keys
    if kind == "fifo" and message.sharding_key:
        attributes[MESSAGE_GROUP] = message.sharding_key
    if PROPERTY_CORRELATION_ID in properties:
        attributes[CONVERSATION_ID] = properties[PROPERTY_CORRELATION_ID]
    return attributes


def of_delay(message: Message) -> Attributes:
    """Return when a message that is sent now will be delivered, if it is delayed."""
    if level := message.delay_level:
        return {DELAY_TIME_LEVEL: level}
    properties = message.properties
    try:
        if time_ms := properties.get(PROPERTY_TIMER_DELIVER_MS):
            return {DELIVERY_TIMESTAMP: int(time_ms)}
        if delay_ms := properties.get(PROPERTY_TIMER_DELAY_MS):
            return {DELIVERY_TIMESTAMP: now_ms() + int(delay_ms)}
        if delay_seconds := properties.get(PROPERTY_TIMER_DELAY_SEC):
            return {DELIVERY_TIMESTAMP: now_ms() + 1000 * int(delay_seconds)}
    except ValueError:  # not a number: the broker refuses the message
        pass
    return {}


def of_received(messages: Sequence[MessageExt]) -> Attributes:
    """Return the attributes of received messages: of one, or those that all have in common."""
    attributes = of_server(_common_server(messages))
    if (queue := _common_queue(messages)) is not None:
        attributes[PARTITION] = str(queue)
    if len(messages) == 1:
        attributes |= of_message(messages[0])
    return attributes


def of_queues(queues: Iterable[MessageQueue]) -> Attributes:
    """Return the partition, if it is one."""
    numbers = {queue.queue_id for queue in queues}
    return {PARTITION: str(numbers.pop())} if len(numbers) == 1 else {}


def of_server(address: str) -> Attributes:
    """Return the attributes of a broker's address, `host:port`; nothing for an empty one."""
    if not address:
        return {}
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return {SERVER_ADDRESS: address}
    return {SERVER_ADDRESS: host.strip("[]"), SERVER_PORT: int(port)}


def of_error(error: BaseException) -> Attributes:
    """Return the type of an error, and the server that answered with it."""
    attributes: Attributes = {ERROR_TYPE: error_type(error)}
    return attributes | of_server(error.address) if isinstance(error, BrokerError) else attributes


def error_type(error: BaseException) -> str:
    """Return the type of an error: the name of a broker's answer, or that of the exception's class."""
    if isinstance(error, BrokerError):
        return ResponseCode(error.code).name if error.code in _RESPONSE_CODES else str(error.code)
    return type(error).__qualname__


def _type_of(message: Message) -> str:
    if message.properties.get(PROPERTY_TRANSACTION_PREPARED) == "true":
        return "transaction"
    if _DELAYS.isdisjoint(message.properties):
        return "normal" if message.sharding_key is None else "fifo"
    return "delay"


def _common_server(messages: Sequence[MessageExt]) -> str:
    hosts = {message.store_host for message in messages}
    if len(hosts) != 1:
        return ""
    host, port = hosts.pop()
    return f"{host}:{port}" if port else ""


def _common_queue(messages: Sequence[MessageExt]) -> int | None:
    queues = {(message.broker_name, message.queue_id) for message in messages}
    return queues.pop()[1] if len(queues) == 1 else None
