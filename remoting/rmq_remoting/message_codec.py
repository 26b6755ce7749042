"""Messages as brokers store and deliver them (Apache RocketMQ 5.3.3, MessageDecoder and MessageExtEncoder).

One record, big endian, signed::

    int32 store size | int32 magic | int32 body CRC | int32 queue id | int32 flag | int64 queue offset
    int64 physical offset | int32 system flag | int64 born time | born host, 4 or 16 bytes + int32 port
    int64 store time | store host, 4 or 16 bytes + int32 port | int32 reconsume times
    int64 prepared transaction offset | int32 body length, body
    topic length (1 byte in version 1, 2 in version 2), topic | int16 properties length, properties

The system flag tells whether a host is IPv6. A pull response is records one after another.

This is the reference encoder and the SDK's decoder. The broker has a faster packer of its own, which is
tested against this one.
"""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache
from typing import Final

from .compression import DEFAULT_MAX_BODY_BYTES, DecompressionBudget
from .message import MessageExt, leave_properties_encoded
from .message_batch import decode_batch
from .message_errors import BodyChecksumError, MessageDecodeError, MessageEncodeError
from .message_properties import (
    MAX_PROPERTIES_BYTES,
    decode_properties,
    encode_properties,
)
from .record_checksum import RECORD_CHECKSUM_BYTES, record_checksum_property
from .socket_addresses import IPV4_LENGTH, decode_address, encode_address
from .sys_flags import MessageSysFlag

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
# Magic of the filler at the end of a commit log file.
MAGIC_BLANK: Final = 0xCBD43194

MAX_TOPIC_BYTES_V1: Final = 0x7F
MAX_TOPIC_BYTES_V2: Final = 0x7FFF

_HOSTS_V6: Final = MessageSysFlag.BORN_HOST_V6 | MessageSysFlag.STORE_HOST_V6
_HOSTS_SHIFT: Final = 4
_COMPRESSED: Final = MessageSysFlag.COMPRESSED
_INNER_BATCH: Final = MessageSysFlag.INNER_BATCH | MessageSysFlag.NEED_UNWRAP

# The fields up to the body's length, by the system flag's two host bits.
_HEADERS: Final = tuple(
    struct.Struct(f">iIiiiqqiq{born}sq{store}siqi") for store in (8, 20) for born in (8, 20)
)
_HEADER_V4: Final = _HEADERS[0]
_SYS_FLAG_LOW_BYTE: Final = 39
# The lengths of topic and properties, in version 1.
_MIN_TAIL_BYTES: Final = 3
_MIN_RECORD_BYTES: Final = _HEADER_V4.size + _MIN_TAIL_BYTES
# Memory of a message of a batch beyond its bytes in the batch, at least.
_MESSAGE_OVERHEAD_BYTES: Final = 256
_NO_PROPERTIES: Final[dict[str, str]] = {}


def body_crc(body: bytes) -> int:
    """Return the CRC of a stored body: CRC-32 without its highest bit."""
    return zlib.crc32(body) & 0x7FFFFFFF


def decode_messages(
    records: bytes,
    *,
    decompress_bodies: bool = True,
    check_crc: bool = False,
    max_body_bytes: int = DEFAULT_MAX_BODY_BYTES,
) -> list[MessageExt]:
    """Return the messages in the body of a pull response; a record that holds a batch gives its messages.

    Options as of `decode_stored_message`; a batch whose body stays compressed stays whole. `max_body_bytes`
    bounds each decompressed body, and MAX_RESPONSE_BYTES all of them. Raises MessageDecodeError, with the
    `position` of the record, unless all records are whole and sound, and within these limits.
    """
    messages, damage = decode_until_damage(
        records,
        decompress_bodies=decompress_bodies,
        check_crc=check_crc,
        budget=DecompressionBudget(max_body_bytes),
    )
    if damage is not None:
        raise damage
    return messages


def decode_until_damage(
    records: bytes,
    position: int = 0,
    *,
    decompress_bodies: bool = True,
    check_crc: bool = False,
    budget: DecompressionBudget | None = None,
) -> tuple[list[MessageExt], MessageDecodeError | None]:
    """Decode the records from `position` on, up to the first one that cannot be decoded.

    Returns their messages, and the error with the `position` of that record; None if all were decoded. The
    error is a DecompressionBudgetError if the `budget` of the response is used up. Without a budget the
    default limits apply.
    """
    messages: list[MessageExt] = []
    end = len(records)
    if budget is None:
        budget = DecompressionBudget()
    try:
        while position < end:
            message = decode_stored_message(
                records,
                position,
                decompress_body=decompress_bodies,
                check_crc=check_crc,
                budget=budget,
            )
            if message.sys_flag & (_INNER_BATCH | _COMPRESSED) == _INNER_BATCH:
                batch = unwrap_inner_batch(message)
                budget.use(len(batch) * _MESSAGE_OVERHEAD_BYTES)
                messages += batch
            else:
                messages.append(message)
            position += message.store_size
    except MessageDecodeError as error:
        error.position = position
        return messages, error
    return messages, None


def decode_stored_message(
    records: bytes,
    position: int = 0,
    *,
    decompress_body: bool = True,
    check_crc: bool = False,
    budget: DecompressionBudget | None = None,
) -> MessageExt:
    """Decode the message whose record begins at `position`; the next record begins `store_size` bytes later.

    `decompress_body`: decompress the body and clear the `COMPRESSED` bit of the message, as the Java client
    does, so that the message can be encoded again. `budget` bounds the decompressed body; None:
    the default limit. `check_crc` compares the stored body with its CRC. Raises MessageDecodeError with the
    reason for a damaged record.
    """
    header = _header_at(records, position)
    (
        store_size,
        magic,
        crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        body_length,
    ) = header.unpack_from(records, position)
    try:
        version, body, topic, properties = _variable_parts(
            records, position, position + header.size, store_size, magic, body_length
        )
        if check_crc and body and body_crc(body) != crc:
            raise BodyChecksumError(f"the body has the CRC {body_crc(body)}, the record says {crc}")
        if sys_flag & _COMPRESSED and decompress_body and body:
            if budget is None:
                budget = DecompressionBudget()
            body = budget.decompress(body, sys_flag)
            sys_flag &= ~_COMPRESSED
        message = MessageExt(  # by position: keywords for all fields would take 0.5 µs more
            topic,
            body,
            flag,
            _NO_PROPERTIES,
            queue_id,
            queue_offset,
            physical_offset,
            sys_flag,
            born_timestamp,
            decode_address(born_host),
            store_timestamp,
            decode_address(store_host),
            reconsume_times,
            prepared_transaction_offset,
            store_size,
            crc,
            version,
        )
    except MessageDecodeError as error:
        error.position = position
        raise
    leave_properties_encoded(message, properties)
    return message


def unwrap_inner_batch(outer: MessageExt) -> list[MessageExt]:
    """Return the messages of a record whose body is a client's batch.

    They share everything but flag, body and properties. Their queue offsets count from the record's own. Size
    and CRC, which only a record has, are 0 (Apache RocketMQ 5.3.3, MessageDecoder.decodeMessage). Raises
    MessageDecodeError for a damaged batch.
    """
    sys_flag = outer.sys_flag & ~_INNER_BATCH
    return [
        MessageExt(
            topic=outer.topic,
            body=item.body,
            flag=item.flag,
            properties=decode_properties(item.raw_properties),
            queue_id=outer.queue_id,
            queue_offset=outer.queue_offset + index,
            physical_offset=outer.physical_offset,
            sys_flag=sys_flag,
            born_timestamp=outer.born_timestamp,
            born_host=outer.born_host,
            store_timestamp=outer.store_timestamp,
            store_host=outer.store_host,
            reconsume_times=outer.reconsume_times,
            prepared_transaction_offset=outer.prepared_transaction_offset,
            version=outer.version,
            broker_name=outer.broker_name,
        )
        for index, item in enumerate(decode_batch(outer.body))
    ]


def encode_stored_message(message: MessageExt, *, append_checksum: bool = False) -> bytes:
    """Encode the message's record.

    Size, CRC and the host bits of the system flag are computed, not taken from the message; the version is 2
    if the topic needs it. The body is stored as it is: with `COMPRESSED` set it must be compressed already.
    `append_checksum` adds the property of `record_checksum`. Raises MessageEncodeError for a value that does
    not fit its field.
    """
    raw_properties = encode_properties(message.properties)
    return _encode_record(message, message.flag, message.body, raw_properties, append_checksum)


def encode_stored_batch(batch: bytes, header: MessageExt, *, append_checksum: bool = False) -> list[bytes]:
    """Encode a client's batch as a broker appends it: one record for each message.

    `header` holds the fields that the messages share; its properties are added to theirs. Each record has the
    offsets of the header: the caller replaces them on appending. Raises MessageDecodeError for a damaged
    batch, MessageEncodeError for a message that does not fit a record.
    """
    shared = encode_properties(header.properties)
    records = []
    for flag, body, own in decode_batch(batch):
        separator = b"\x02" if own and shared and not own.endswith(b"\x02") else b""
        records.append(_encode_record(header, flag, body, own + separator + shared, append_checksum))
    return records


def _header_at(records: bytes, position: int) -> struct.Struct:
    """Return the layout of the record's fixed part, after checking that `records` has all of it."""
    available = len(records) - position
    if position < 0 or available < _MIN_RECORD_BYTES:
        raise MessageDecodeError(
            f"{max(available, 0)} bytes are too few for a record, which has at least {_MIN_RECORD_BYTES}",
            position,
        )
    host_bits = records[position + _SYS_FLAG_LOW_BYTE] & _HOSTS_V6
    if not host_bits:
        return _HEADER_V4
    header = _HEADERS[host_bits >> _HOSTS_SHIFT]
    if available < header.size + _MIN_TAIL_BYTES:
        raise MessageDecodeError(f"{available} bytes are too few for a record with IPv6 hosts", position)
    return header


def _variable_parts(
    records: bytes, start: int, body_start: int, store_size: int, magic: int, body_length: int
) -> tuple[int, bytes, str, bytes]:
    """Return version, body, topic and raw properties, after checking that all lengths agree."""
    end = start + store_size
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise MessageDecodeError(_describe_magic(magic))
    if end > len(records):
        raise MessageDecodeError(f"the record says {store_size} bytes, {len(records) - start} are there")
    body_end = body_start + body_length
    if body_length < 0 or body_end + _MIN_TAIL_BYTES > end:
        raise MessageDecodeError(f"a body of {body_length} bytes does not fit a record of {store_size}")

    if magic == MAGIC_V1:
        version, topic_start = 1, body_end + 1
        topic_length, max_topic_length = records[body_end], MAX_TOPIC_BYTES_V1
    else:
        version, topic_start = 2, body_end + 2
        topic_length, max_topic_length = records[body_end] << 8 | records[body_end + 1], MAX_TOPIC_BYTES_V2
    topic_end = topic_start + topic_length
    if topic_length > max_topic_length or topic_end + 2 > end:
        raise MessageDecodeError(f"a topic of {topic_length} bytes does not fit the record")

    properties_length = records[topic_end] << 8 | records[topic_end + 1]
    properties_start = topic_end + 2
    fields_end = properties_start + properties_length
    if properties_length > MAX_PROPERTIES_BYTES or fields_end != end:
        raise MessageDecodeError(
            f"the record says {store_size} bytes, its fields take {fields_end - start}, "
            f"properties of {properties_length} bytes included"
        )
    return (
        version,
        records[body_start:body_end],
        _decode_topic(records[topic_start:topic_end]),
        records[properties_start:end],
    )


def _decode_topic(raw: bytes) -> str:
    return _decode_short_topic(raw) if len(raw) <= MAX_TOPIC_BYTES_V1 else raw.decode("utf-8", "replace")


# Messages of one topic share the string of its name, which saves memory.
@lru_cache(maxsize=1024)
def _decode_short_topic(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _describe_magic(magic: int) -> str:
    if magic == MAGIC_BLANK:
        return "this is the filler at the end of a commit log file, not a message"
    return f"the magic {magic:#010x} is not that of a message"


def _encode_record(
    message: MessageExt, flag: int, body: bytes, raw_properties: bytes, append_checksum: bool
) -> bytes:
    topic = message.topic.encode("utf-8", "replace")
    version = 1 if message.version == 1 and len(topic) <= MAX_TOPIC_BYTES_V1 else 2
    topic_length = _length_field("topic", len(topic), MAX_TOPIC_BYTES_V2, version)
    if append_checksum and raw_properties and not raw_properties.endswith(b"\x02"):
        raw_properties += b"\x02"
    checksum_bytes = RECORD_CHECKSUM_BYTES if append_checksum else 0
    properties_length = _length_field(
        "properties", len(raw_properties) + checksum_bytes, MAX_PROPERTIES_BYTES, 2
    )

    tail = b"".join((body, topic_length, topic, properties_length, raw_properties))
    record = _pack_header(message, flag, body, version, len(tail) + checksum_bytes) + tail
    return record + record_checksum_property(record) if append_checksum else record


def _pack_header(message: MessageExt, flag: int, body: bytes, version: int, tail_bytes: int) -> bytes:
    born_host = encode_address(*message.born_host)
    store_host = encode_address(*message.store_host)
    host_bits = 0
    if len(born_host) != IPV4_LENGTH:
        host_bits |= MessageSysFlag.BORN_HOST_V6
    if len(store_host) != IPV4_LENGTH:
        host_bits |= MessageSysFlag.STORE_HOST_V6
    header = _HEADERS[host_bits >> _HOSTS_SHIFT]
    try:
        return header.pack(
            header.size + tail_bytes,
            MAGIC_V1 if version == 1 else MAGIC_V2,
            body_crc(body),
            message.queue_id,
            flag,
            message.queue_offset,
            message.physical_offset,
            (message.sys_flag & ~_HOSTS_V6) | host_bits,
            message.born_timestamp,
            born_host,
            message.store_timestamp,
            store_host,
            message.reconsume_times,
            message.prepared_transaction_offset,
            len(body),
        )
    except struct.error as error:
        raise MessageEncodeError(f"{_misfit(message, flag)} does not fit its field: {error}") from error


def _length_field(name: str, length: int, limit: int, width: int) -> bytes:
    if length > limit:
        raise MessageEncodeError(f"{name} of {length} bytes: the limit of a record is {limit}")
    return length.to_bytes(width, "big")


_INT32_FIELDS: Final = ("queue_id", "sys_flag", "reconsume_times")
_INT64_FIELDS: Final = (
    "queue_offset",
    "physical_offset",
    "born_timestamp",
    "store_timestamp",
    "prepared_transaction_offset",
)


def _misfit(message: MessageExt, flag: int) -> str:
    """Describe the field that could not be packed."""
    fields = [("flag", flag, 31)]
    fields += [(name, getattr(message, name), 31) for name in _INT32_FIELDS]
    fields += [(name, getattr(message, name), 63) for name in _INT64_FIELDS]
    for name, value, bits in fields:
        if not isinstance(value, int) or not -(1 << bits) <= value < 1 << bits:
            return f"{name} {value!r}"
    return f"a body of {len(message.body)} bytes"
