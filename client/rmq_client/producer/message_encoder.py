"""Encoding of messages for a send: an id, the properties as bytes, and a compressed body if configured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rmq_remoting.compression import compress
from rmq_remoting.message import Message
from rmq_remoting.message_errors import MessageEncodeError
from rmq_remoting.message_ids import UniqueKeyGenerator
from rmq_remoting.message_properties import (
    MAX_PROPERTIES_BYTES,
    PROPERTY_INSTANCE_ID,
    PROPERTY_MESSAGE_TYPE,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
    encode_properties,
)
from rmq_remoting.sys_flags import MessageSysFlag

from ..compression_threads import run_in_compression_thread
from ..errors import UsageError
from ..replies import REPLY_TYPE
from .encoding import Outgoing
from .plain_messages import PlainEncoder
from .policies import Compression

# Compressing more than this blocks a loop for too long, so it runs in a thread.
_COMPRESS_IN_THREAD_BYTES: Final = 64 * 1024
_UNIQUE_KEY_PROPERTY: Final = f"{PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX}\x01"


class MessageEncoder:
    """Encodes the messages of one producer. The messages stay as they are: they can be sent again."""

    __slots__ = ("_compression", "_next_key", "_of_all", "compress_from_bytes", "plain")

    def __init__(
        self, unique_keys: UniqueKeyGenerator, compression: Compression | None, namespace: str = ""
    ) -> None:
        self._next_key = unique_keys.next_key
        # Properties of every message (Apache RocketMQ 5.3.3, DefaultMQProducerImpl.sendKernelImpl).
        self._of_all = f"{PROPERTY_INSTANCE_ID}\x01{namespace}\x02".encode() if namespace else b""
        self.plain = PlainEncoder(unique_keys, _UNIQUE_KEY_PROPERTY.encode(), b"\x02" + self._of_all)
        self._compression = compression
        # None means never: no body is this large.
        self.compress_from_bytes = compression.threshold_bytes if compression else 1 << 62

    def properties(self, message: Message) -> tuple[bytes, str]:
        """Return the encoded properties with the message's id, and the id. Raises UsageError."""
        properties = message.properties
        msg_id = properties.get(PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
        if msg_id:
            return _encode(properties, self._of_all), msg_id
        msg_id = self._next_key()
        own = f"{_UNIQUE_KEY_PROPERTY}{msg_id}\x02".encode() + self._of_all
        return (_encode(properties, own) if properties else own), msg_id

    async def outgoing(self, message: Message) -> tuple[Outgoing, str]:
        """Return the encoded message and its id. Raises UsageError."""
        properties, msg_id = self.properties(message)
        body = message.body
        reply, sys_flag = False, MessageSysFlag.TRANSACTION_NOT
        if message.properties:
            reply = message.properties.get(PROPERTY_MESSAGE_TYPE) == REPLY_TYPE
            if PROPERTY_TRANSACTION_PREPARED in message.properties:
                sys_flag = MessageSysFlag.TRANSACTION_PREPARED
        compression = self._compression
        if compression is None or len(body) < self.compress_from_bytes:
            return Outgoing(body, properties, sys_flag, message.flag, False, reply), msg_id
        if len(body) < _COMPRESS_IN_THREAD_BYTES:
            packed = compress(body, compression.type, compression.level)
        else:
            packed = await run_in_compression_thread(compress, body, compression.type, compression.level)
        if len(packed) >= len(body):  # random data grows, possibly beyond the broker's limit
            return Outgoing(body, properties, sys_flag, message.flag, False, reply), msg_id
        sys_flag |= compression.type.sys_flag
        return Outgoing(packed, properties, sys_flag, message.flag, False, reply), msg_id


def _encode(properties: Mapping[str, str], own: bytes) -> bytes:
    """Encode a message's properties, followed by those of the SDK."""
    try:
        raw = encode_properties(properties) + own
    except MessageEncodeError as error:
        raise UsageError(str(error)) from error
    if len(raw) > MAX_PROPERTIES_BYTES:
        raise UsageError(
            f"the properties take {len(raw)} bytes, the limit is {MAX_PROPERTIES_BYTES}: move large values "
            "into the body"
        )
    return raw
