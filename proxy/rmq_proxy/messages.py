"""Messages of brokers as messages of the gRPC protocol.

Source: Apache RocketMQ 5.3.3, GrpcConverter.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from typing import Final

from rmq_client.names import split_prefix
from rmq_client.response_decoding import decompress_body
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
_GZIP: Final = b"\x1f\x8b"
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
    return Message(
        topic=resource(received.topic),
        user_properties=received.user_properties,
        system_properties=_system_properties(received),
        body=received.body,
    )


def resource(full_name: str) -> Resource:
    """Return a topic or group with its namespace apart (Apache RocketMQ 5.3.3, NamespaceUtil)."""
    prefix, rest = split_prefix(full_name)
    namespace, separator, name = rest.partition(_NAMESPACE_SEPARATOR)
    if not separator or not namespace:
        return Resource(name=full_name)
    return Resource(resource_namespace=namespace, name=f"{prefix}{name}")


def _system_properties(received: MessageExt) -> SystemProperties:
    properties = received.properties
    system = SystemProperties(
        message_id=received.msg_id,
        body_encoding=Encoding.GZIP if received.sys_flag & MessageSysFlag.COMPRESSED else Encoding.IDENTITY,
        message_type=_TYPES.get(type_of(properties), MessageType.NORMAL),
        born_host=properties.get(PROPERTY_BORN_HOST) or received.born_host[0],
        store_host=address_text(received.store_host),
        queue_id=received.queue_id,
        queue_offset=received.queue_offset,
        delivery_attempt=received.delivery_attempt,
    )
    system.body_digest.type = DigestType.MD5
    system.body_digest.checksum = hashlib.md5(received.body, usedforsecurity=False).hexdigest().upper()
    system.born_timestamp.FromMilliseconds(received.born_timestamp)
    system.store_timestamp.FromMilliseconds(received.store_timestamp)
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
    return system


def _delivery_ms(received: MessageExt) -> int | None:
    """Return the time at which a scheduled message is due, in ms since 1970."""
    properties = received.properties
    try:
        if PROPERTY_TIMER_DELAY_SEC in properties:
            return int(time.time() * 1000) + int(properties[PROPERTY_TIMER_DELAY_SEC]) * 1000
        if PROPERTY_TIMER_DELIVER_MS in properties:
            return int(properties[PROPERTY_TIMER_DELIVER_MS])
    except ValueError:
        return None
    return None
