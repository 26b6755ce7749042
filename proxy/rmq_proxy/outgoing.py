"""Messages of clients as the brokers store them: checks, properties, and the flag.

Source: Apache RocketMQ 5.3.3, SendMessageActivity.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from rmq_remoting.message import Message
from rmq_remoting.message_properties import (
    KEY_SEPARATOR,
    PROPERTY_BORN_HOST,
    PROPERTY_BORN_TIMESTAMP,
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
    PROPERTY_KEYS,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_RECONSUME_TIME,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRACE_CONTEXT,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
    RESERVED_NAMES,
)
from rmq_remoting.sys_flags import MessageSysFlag

from .protocol import definition_pb2 as pb
from .protocol.definition_pb2 import Code
from .settings import ProxySettings
from .statuses import Refusal
from .validation import check_characters, check_key, check_message_group, check_tag, check_time_ms

# protobuf looks up the name of a code anew at each use.
_PROPERTY_KEY: Final = Code.ILLEGAL_MESSAGE_PROPERTY_KEY
_BAD_REQUEST: Final = Code.BAD_REQUEST
_MESSAGE_ID: Final = Code.ILLEGAL_MESSAGE_ID
_TRANSACTION: Final = pb.TRANSACTION
_GZIP: Final = pb.GZIP


def _now_ms() -> int:
    return int(time.time() * 1000)


class OutgoingMessages:
    """Turns messages of clients into those of brokers."""

    def __init__(self, settings: ProxySettings, now_ms: Callable[[], int] = _now_ms) -> None:
        self._settings = settings
        self._now_ms = now_ms

    def convert(self, message: pb.Message, peer: str) -> Message:
        """Return the message to store. `peer`: the client's address. Raises Refusal."""
        body = message.body
        self._check_body(body)
        converted = Message(message.topic.name, body)
        converted.properties = self._properties(message, peer)
        return converted

    def _check_body(self, body: bytes) -> None:
        if not body and self._settings.enable_message_body_empty_check:
            raise Refusal(Code.MESSAGE_BODY_EMPTY, "message body cannot be empty")
        most = self._settings.max_message_size
        if 0 < most < len(body):
            raise Refusal(Code.MESSAGE_BODY_TOO_LARGE, f"message body cannot exceed the max {most}")

    def _properties(self, message: pb.Message, peer: str) -> dict[str, str]:
        system = message.system_properties
        properties = self._user_properties(message.user_properties, system)
        message_id = system.message_id
        if not message_id.strip():
            raise Refusal(_MESSAGE_ID, "message id cannot be empty")
        check_characters(message_id, _MESSAGE_ID, "message id")
        properties[PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX] = message_id
        if system.message_type == _TRANSACTION:
            properties[PROPERTY_TRANSACTION_PREPARED] = "true"
            if system.HasField("orphaned_transaction_recovery_duration"):
                seconds = system.orphaned_transaction_recovery_duration.seconds
                properties[PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS] = str(self._recovery_seconds(seconds))
        if system.HasField("delivery_timestamp"):
            delivery_ms = self._delivery_ms(
                check_time_ms(system.delivery_timestamp, Code.ILLEGAL_DELIVERY_TIME, "the delivery timestamp")
            )
            properties[PROPERTY_TIMER_DELIVER_MS] = str(delivery_ms)
        properties[PROPERTY_RECONSUME_TIME] = str(system.delivery_attempt)
        # Brokers check the transactions of a topic with its producers: the group is named after the topic.
        properties[PROPERTY_PRODUCER_GROUP] = message.topic.name
        if message_group := system.message_group:
            check_message_group(message_group, self._settings.max_message_group_size)
            properties[PROPERTY_SHARDING_KEY] = message_group
        if trace_context := system.trace_context:
            check_characters(trace_context, _PROPERTY_KEY, "the trace context")
            properties[PROPERTY_TRACE_CONTEXT] = trace_context
        born_host = system.born_host
        if not born_host.strip():
            born_host = peer
        if born_host:
            check_characters(born_host, _PROPERTY_KEY, "the born host")
            properties[PROPERTY_BORN_HOST] = born_host
        if system.HasField("born_timestamp"):
            born_ms = check_time_ms(system.born_timestamp, _BAD_REQUEST, "the born timestamp")
            properties[PROPERTY_BORN_TIMESTAMP] = str(born_ms)
        return properties

    def _user_properties(self, given: Mapping[str, str], system: pb.SystemProperties) -> dict[str, str]:
        """Return the application's properties with tag and keys, which count into their limit."""
        settings = self._settings
        if len(given) > settings.user_property_max_num:
            raise Refusal(
                Code.MESSAGE_PROPERTIES_TOO_LARGE,
                f"too many user properties, max is {settings.user_property_max_num}",
            )
        size = 0
        properties: dict[str, str] = {}
        for name, value in given.items():
            if name in RESERVED_NAMES:
                raise Refusal(_PROPERTY_KEY, f"property is used by system: {name}")
            check_characters(name, _PROPERTY_KEY, "the key of property")
            check_characters(value, _PROPERTY_KEY, "the value of property")
            size += len(name.encode()) + len(value.encode())
            if value:
                properties[name] = value
        if tag := system.tag:
            check_tag(tag)
            size += len(tag.encode())
            properties[PROPERTY_TAGS] = tag
        for key in (keys := system.keys):
            check_key(key)
            size += len(key.encode())
        if any(keys):
            properties[PROPERTY_KEYS] = KEY_SEPARATOR.join(keys)
        if size > settings.max_user_property_size:
            raise Refusal(
                Code.MESSAGE_PROPERTIES_TOO_LARGE,
                f"the total size of user property is too large, max is {settings.max_user_property_size}",
            )
        return properties

    def _recovery_seconds(self, seconds: int) -> int:
        most = self._settings.max_transaction_recovery_seconds
        if 0 < most < seconds:
            raise Refusal(
                Code.BAD_REQUEST,
                f"the max transaction recovery time of message is too large, max is {most}",
            )
        return seconds

    def _delivery_ms(self, delivery_ms: int) -> int:
        most = self._settings.max_delay_time_ms
        if 0 < most < delivery_ms - self._now_ms():
            raise Refusal(
                Code.ILLEGAL_DELIVERY_TIME, f"the max delay time of message is too large, max is {most}"
            )
        return delivery_ms


def sys_flag_of(message: pb.Message) -> int:
    """Return the system flag of a message: compression and transaction."""
    system, flag = message.system_properties, 0
    if system.body_encoding == _GZIP:
        flag |= MessageSysFlag.COMPRESSED
    if system.message_type == _TRANSACTION:
        flag |= MessageSysFlag.TRANSACTION_PREPARED
    return flag
