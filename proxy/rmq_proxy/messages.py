"""Messages of brokers as messages of the gRPC protocol.

Source: Apache RocketMQ 5.3.3, GrpcConverter.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from rmq_client.names import split_prefix
from rmq_client.response_decoding import decompress_body
from rmq_remoting.integer_bounds import INT32_MAX
from rmq_remoting.message import MessageExt
from rmq_remoting.message_errors import MessageDecodeError
from rmq_remoting.message_properties import (
    KEY_SEPARATOR,
    PROPERTY_BORN_HOST,
    PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_KEYS,
    PROPERTY_POP_CK,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRACE_CONTEXT,
)
from rmq_remoting.peer_address import address_text
from rmq_remoting.sys_flags import MessageSysFlag

from .metadata import TopicType, type_of
from .protocol.definition_pb2 import DigestType, Encoding, Message, MessageType, Resource, SystemProperties

_NAMESPACE_SEPARATOR: Final = "%"
_TYPES: Final = {
    TopicType.NORMAL: MessageType.NORMAL,
    TopicType.FIFO: MessageType.FIFO,
    TopicType.DELAY: MessageType.DELAY,
    TopicType.TRANSACTION: MessageType.TRANSACTION,
}
# protobuf looks up the name of a value anew at each use.
_NORMAL: Final = MessageType.NORMAL
_COMPRESSED: Final = Encoding.GZIP
_PLAIN: Final = Encoding.IDENTITY
_MD5: Final = DigestType.MD5
_CACHED_NAMES: Final = 1024
_GZIP: Final = b"\x1f\x8b"
# The end of the year 9999: the last time of protobuf's timestamps.
_LAST_MS: Final = 253_402_300_799_999
# Decompressed bodies of one response are at most this size together. Further ones stay compressed.
_MAX_UNPACKED_BYTES: Final = 128 * 1024 * 1024


async def unpack_bodies(messages: Iterable[MessageExt]) -> None:
    """Decompress the bodies of a response, except those in gzip.

    The 5.x clients know gzip alone, while senders of the remoting protocol use zlib, LZ4 and Zstandard.
    """
    left = _MAX_UNPACKED_BYTES
    for message in messages:
        if message.sys_flag & MessageSysFlag.COMPRESSED and message.body and left > 0:
            if message.body.startswith(_GZIP):
                continue
            try:
                message.body = await decompress_body(message.body, message.sys_flag, left)
            except MessageDecodeError:
                continue
            message.sys_flag &= ~MessageSysFlag.COMPRESSED
            left -= len(message.body)


def message_of(received: MessageExt) -> Message:
    """Return a message for a client; the body counts as gzip if its flag says that it is compressed."""
    message = Message()
    fill(message, received)
    return message


def fill(message: Message, received: MessageExt) -> None:
    """Set a new message of a response as `message_of` does, without a copy of it."""
    namespace, message.topic.name = _split(received.topic)
    if namespace:
        message.topic.resource_namespace = namespace
    message.body = received.body
    if user_properties := received.user_properties:
        message.user_properties.update(user_properties)
    _set_system_properties(message.system_properties, received)


def resource(full_name: str) -> Resource:
    """Return a topic or group with its namespace apart."""
    namespace, name = _split(full_name)
    return Resource(resource_namespace=namespace, name=name)


@lru_cache(_CACHED_NAMES)
def _split(full_name: str) -> tuple[str, str]:
    """Return the namespace, which may be empty, and the rest (Apache RocketMQ 5.3.3, NamespaceUtil)."""
    prefix, rest = split_prefix(full_name)
    namespace, separator, name = rest.partition(_NAMESPACE_SEPARATOR)
    if not separator or not namespace:
        return "", full_name
    return namespace, f"{prefix}{name}"


def _set_system_properties(system: SystemProperties, received: MessageExt) -> None:
    properties = received.properties
    system.message_id = received.msg_id
    system.body_encoding = _COMPRESSED if received.sys_flag & MessageSysFlag.COMPRESSED else _PLAIN
    system.message_type = _TYPES.get(type_of(properties), _NORMAL)
    system.born_host = properties.get(PROPERTY_BORN_HOST) or received.born_host[0]
    system.store_host = address_text(received.store_host)
    system.queue_id = received.queue_id
    system.queue_offset = received.queue_offset
    system.delivery_attempt = min(received.delivery_attempt, INT32_MAX)
    digest = system.body_digest
    digest.type = _MD5
    digest.checksum = hashlib.md5(received.body, usedforsecurity=False).hexdigest().upper()
    _set_time(system.born_timestamp, received.born_timestamp)
    _set_time(system.store_timestamp, received.store_timestamp)
    if received.tags is not None:
        system.tag = received.tags
    if PROPERTY_KEYS in properties:
        system.keys.extend(key for key in properties[PROPERTY_KEYS].split(KEY_SEPARATOR) if key)
    delivery_ms = _delivery_ms(received)
    if delivery_ms is not None:
        system.delivery_timestamp.FromMilliseconds(delivery_ms)
    if PROPERTY_SHARDING_KEY in properties:
        system.message_group = properties[PROPERTY_SHARDING_KEY]
    if PROPERTY_POP_CK in properties:
        system.receipt_handle = properties[PROPERTY_POP_CK]
    if PROPERTY_TRACE_CONTEXT in properties:
        system.trace_context = properties[PROPERTY_TRACE_CONTEXT]
    origin, origin_id = (
        properties.get(PROPERTY_DLQ_ORIGIN_TOPIC),
        properties.get(PROPERTY_DLQ_ORIGIN_MESSAGE_ID),
    )
    if origin is not None and origin_id is not None:
        system.dead_letter_queue.topic = origin
        system.dead_letter_queue.message_id = origin_id


def _set_time(timestamp: Timestamp, milliseconds: int) -> None:
    """Set a timestamp by ms since 1970. The library's own method takes three times as long."""
    seconds, rest = divmod(milliseconds, 1000)
    timestamp.seconds, timestamp.nanos = seconds, rest * 1_000_000


def _delivery_ms(received: MessageExt) -> int | None:
    """Return the time at which a scheduled message is due, in ms since 1970.

    None without a time, and for one that the protocol cannot express: it must not keep the message back.
    """
    properties = received.properties
    try:
        if PROPERTY_TIMER_DELAY_SEC in properties:
            due_ms = int(time.time() * 1000) + int(properties[PROPERTY_TIMER_DELAY_SEC]) * 1000
        elif PROPERTY_TIMER_DELIVER_MS in properties:
            due_ms = int(properties[PROPERTY_TIMER_DELIVER_MS])
        else:
            return None
    except ValueError:
        return None
    return due_ms if 0 <= due_ms <= _LAST_MS else None
