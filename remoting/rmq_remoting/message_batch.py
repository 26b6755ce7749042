"""A client's batch: several messages of one topic as the body of one send request.

One item, big endian::

    int32 size | int32 0 | int32 0 | int32 flag | int32 body length, body
    int16 properties length, properties

The size counts the whole item. The zeros are at the places of a stored record's magic and CRC (Apache
RocketMQ 5.3.3, MessageDecoder.encodeMessages and decodeMessages).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from .message import Message
from .message_errors import DecompressedTooLargeError, MessageDecodeError, MessageEncodeError
from .message_properties import MAX_PROPERTIES_BYTES, encode_properties

_ITEM_HEADER: Final = struct.Struct(">iiiii")
_MIN_ITEM_BYTES: Final = _ITEM_HEADER.size + 2
# A compressed batch of 53 KB can hold this number, and its messages take 400 MB. A frame of 16 MiB holds
# at most 762,600 messages of an uncompressed batch.
MAX_BATCH_MESSAGES: Final = 1_000_000


class BatchItem(NamedTuple):
    """One message of a batch; its properties are still encoded."""

    flag: int
    body: bytes
    raw_properties: bytes


def encode_batch(messages: Iterable[Message]) -> bytes:
    """Encode the body of a batch request. Raises MessageEncodeError if a message does not fit an item."""
    parts: list[bytes] = []
    for message in messages:
        body = message.body
        properties = encode_properties(message.properties)
        size = _MIN_ITEM_BYTES + len(body) + len(properties)
        try:
            parts.append(_ITEM_HEADER.pack(size, 0, 0, message.flag, len(body)))
        except struct.error as error:
            raise MessageEncodeError(
                f"flag {message.flag} or a body of {len(body)} bytes does not fit in 32 bits"
            ) from error
        parts += (body, len(properties).to_bytes(2, "big"), properties)
    return b"".join(parts)


def decode_batch(batch: bytes) -> list[BatchItem]:
    """Decode the body of a batch request.

    Raises MessageDecodeError unless all items are whole, DecompressedTooLargeError above MAX_BATCH_MESSAGES.
    """
    items: list[BatchItem] = []
    position, end = 0, len(batch)
    while position < end:
        if end - position < _MIN_ITEM_BYTES:
            raise MessageDecodeError(f"{end - position} bytes are too few for an item of a batch", position)
        size, _, _, flag, body_length = _ITEM_HEADER.unpack_from(batch, position)
        body_start = position + _ITEM_HEADER.size
        body_end = body_start + body_length
        if body_length < 0 or body_end + 2 > end:
            raise MessageDecodeError(f"a body of {body_length} bytes does not fit into the batch", position)
        properties_start = body_end + 2
        properties_length = batch[body_end] << 8 | batch[body_end + 1]
        properties_end = properties_start + properties_length
        if properties_length > MAX_PROPERTIES_BYTES or properties_end > end:
            raise MessageDecodeError(
                f"properties of {properties_length} bytes do not fit into the batch", position
            )
        if properties_end - position != size:
            raise MessageDecodeError(
                f"the fields of an item take {properties_end - position} bytes, its size says {size}",
                position,
            )
        if len(items) == MAX_BATCH_MESSAGES:
            raise DecompressedTooLargeError(
                f"the batch has more messages than the limit of {MAX_BATCH_MESSAGES}", position
            )
        items.append(BatchItem(flag, batch[body_start:body_end], batch[properties_start:properties_end]))
        position = properties_end
    return items
