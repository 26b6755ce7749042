"""A message that the broker stores itself: again, later, or in another topic.

Source: Apache RocketMQ 5.3.3, MessageExtBrokerInner, MessageDecoder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Final

from rmq_remoting.message_properties import decode_properties, properties_to_string
from rmq_remoting.sys_flags import MessageSysFlag

from ..store.api import MAGIC_V2, RECORD_HEADS

_HOST_BITS: Final = MessageSysFlag.BORN_HOST_V6 | MessageSysFlag.STORE_HOST_V6
_SYS_FLAG_AT: Final = 36
_unpack_int32: Final = Struct(">i").unpack_from
_unpack_uint16: Final = Struct(">H").unpack_from
_CRC_MARK: Final = b"__CRC32#\x01"


@dataclass(slots=True, init=False)
class InnerMessage:
    """The content of a record to be; hosts are packed as in records, body and properties are as stored.

    `sys_flag` is without the bits for the lengths of the hosts. `prepared_transaction_offset` is the physical
    offset of a committed message's half message. `unique_key` is the property UNIQ_KEY, if it has been looked
    up already.
    """

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    flag: int
    sys_flag: int
    reconsume_times: int
    born_timestamp_ms: int
    born_host: bytes
    store_host: bytes
    prepared_transaction_offset: int
    unique_key: bytes | None

    # Written out: a compiled class keeps a dataclass's own as interpreted code.
    def __init__(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes,
        flag: int,
        sys_flag: int,
        reconsume_times: int,
        born_timestamp_ms: int,
        born_host: bytes,
        store_host: bytes,
        prepared_transaction_offset: int = 0,
        unique_key: bytes | None = None,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.body = body
        self.properties = properties
        self.flag = flag
        self.sys_flag = sys_flag
        self.reconsume_times = reconsume_times
        self.born_timestamp_ms = born_timestamp_ms
        self.born_host = born_host
        self.store_host = store_host
        self.prepared_transaction_offset = prepared_transaction_offset
        self.unique_key = unique_key

    def set_properties(self, fields: Mapping[str, str]) -> None:
        """Replace the properties."""
        self.properties = properties_to_string(fields).encode("utf-8", "replace")


@dataclass(slots=True, init=False)
class StoredMessage:
    """A message read from a record, with the record's offsets."""

    message: InnerMessage
    size: int
    physical_offset: int
    queue_offset: int
    store_timestamp_ms: int

    def __init__(
        self,
        message: InnerMessage,
        size: int,
        physical_offset: int,
        queue_offset: int,
        store_timestamp_ms: int,
    ) -> None:
        self.message = message
        self.size = size
        self.physical_offset = physical_offset
        self.queue_offset = queue_offset
        self.store_timestamp_ms = store_timestamp_ms


def read_message(record: bytes, position: int = 0) -> StoredMessage:
    """Return the message of a valid record (see `parse_record`) that begins at `position`.

    A compressed body stays compressed. The record's checksum is dropped from the properties.
    """
    (sys_flag,) = _unpack_int32(record, position + _SYS_FLAG_AT)
    head = RECORD_HEADS[
        20 if sys_flag & MessageSysFlag.BORN_HOST_V6 else 8,
        20 if sys_flag & MessageSysFlag.STORE_HOST_V6 else 8,
    ]
    (
        size,
        magic,
        _,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        _,
        born_timestamp_ms,
        born_host,
        store_timestamp_ms,
        store_host,
        reconsume_times,
        _,
        body_length,
    ) = head.unpack_from(record, position)
    body_at = position + head.size
    topic_at = body_at + body_length
    body = record[body_at:topic_at]
    if magic == MAGIC_V2:
        (topic_length,) = _unpack_uint16(record, topic_at)
        topic_at += 2
    else:
        topic_length = record[topic_at]
        topic_at += 1
    properties_at = topic_at + topic_length + 2
    message = InnerMessage(
        record[topic_at : properties_at - 2].decode(),
        queue_id,
        body,
        _own_properties(record[properties_at : position + size]),
        flag,
        sys_flag & ~_HOST_BITS,
        reconsume_times,
        born_timestamp_ms,
        born_host,
        store_host,
    )
    return StoredMessage(message, size, physical_offset, queue_offset, store_timestamp_ms)


def _own_properties(properties: bytes) -> bytes:
    if properties.find(_CRC_MARK) < 0:  # `in` takes twice as long
        return properties
    fields = decode_properties(properties)
    fields.pop("__CRC32#", None)
    return properties_to_string(fields).encode("utf-8", "replace")
