"""Normalization: rewrites records that are not plain as plain ones, one by one and in place.

Compressed bodies, IPv6 hosts, version 2 and inner batches are rare and cannot be decoded in bulk. The SDK's
decoder reads them and reports damaged ones.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import numpy as np

from rmq_remoting.compression import DecompressionBudget
from rmq_remoting.message import MessageExt
from rmq_remoting.message_batch import decode_batch
from rmq_remoting.message_codec import MAGIC_V1, body_crc, decode_stored_message
from rmq_remoting.message_errors import MessageDecodeError
from rmq_remoting.sys_flags import MessageSysFlag

from ..errors import BatchTooLarge
from ..limits import MAX_DECODED_BYTES
from .records import (
    HEADER,
    INNER_BATCH,
    Hosts,
    Records,
    find_records,
    has_message_magic,
    is_inner_batch,
)
from .segments import Flags

# The fixed part and an empty topic's length. The system flag and the hosts are zero.
_FIXED_PART: Final = struct.Struct(">iIiiiqqiqqqqiqi")
_SYS_FLAG: Final = struct.Struct(">i")
_SYS_FLAG_OFFSET: Final = 36
_HOSTS_V6: Final = MessageSysFlag.BORN_HOST_V6 | MessageSysFlag.STORE_HOST_V6
_MAX_OFFSET: Final = (1 << 63) - 1
_NO_TOPIC: Final = b"\x00"
_MIN_RECORD_BYTES: Final = _FIXED_PART.size + 3
# Offset of the body length in a record with IPv4 hosts; each IPv6 host adds 12 bytes.
_BODY_LENGTH_OFFSET: Final = HEADER.itemsize - 4
_IPV6_EXTRA_BYTES: Final = 12


def normalize_records(
    records: Records, *, begin: int, end: int, decompress: bool, check_crc: bool, max_body_bytes: int
) -> Records:
    """Return records that are all plain; an inner batch becomes one record per message.

    Records that need rewriting and cannot hold a message with begin <= queue offset < end are left out.
    Raises MessageDecodeError for a damaged record, or a body that decompresses to more than `max_body_bytes`,
    and BatchTooLarge if the records exceed MAX_DECODED_BYTES.
    """
    wanted = _may_overlap(records, begin, end)
    pieces: list[bytes | memoryview] = []
    hosts_at: dict[int, Hosts] = {}
    view = memoryview(records.buffer)
    copied_to = size = 0
    for row in np.flatnonzero(~records.plain).tolist():
        start = int(records.starts[row])
        pieces.append(view[copied_to:start])
        size += start - copied_to
        copied_to = start + int(records.headers["size"][row])
        if not wanted[row]:
            continue
        for message, piece in _plain_records(
            records.buffer, start, decompress=decompress, check_crc=check_crc, max_body_bytes=max_body_bytes
        ):
            hosts_at[size] = (message.born_host, message.store_host)
            pieces.append(piece)
            size += len(piece)
            if size > MAX_DECODED_BYTES and len(records) > 1:
                raise BatchTooLarge(
                    f"{len(records)} records take more than {MAX_DECODED_BYTES} bytes, decompressed"
                )
    pieces.append(view[copied_to:])
    rewritten = find_records([b"".join(pieces)], decompress=False)
    rows = np.searchsorted(rewritten.starts, np.array(list(hosts_at), np.int64)).tolist()
    rewritten.hosts = dict(zip(rows, hosts_at.values(), strict=True))
    return rewritten


def _may_overlap(records: Records, begin: int, end: int) -> Flags:
    """Return which records may hold a message of the range, or are not messages at all (never skipped).

    The last offset of a batch is known only after it has been unpacked.
    """
    headers = records.headers
    offsets = headers["queue_offset"]
    reaches_begin = (offsets >= begin) | is_inner_batch(headers)
    wanted: Flags = reaches_begin & (offsets < end) | ~has_message_magic(headers)
    return wanted


def _plain_records(
    buffer: bytes, start: int, *, decompress: bool, check_crc: bool, max_body_bytes: int
) -> Iterator[tuple[MessageExt, bytes]]:
    """Yield the plain records of one record, each with the message that has its hosts.

    A batch is unpacked even if compressed bodies are to stay as they are: its messages have offsets of their
    own (Apache RocketMQ 5.3.3, PullAPIWrapper and MessageDecoder.decodeMessage).
    """
    (sys_flag,) = _SYS_FLAG.unpack_from(buffer, start + _SYS_FLAG_OFFSET)
    is_batch = sys_flag & INNER_BATCH == INNER_BATCH
    message = decode_stored_message(
        buffer,
        start,
        decompress_body=decompress or is_batch,
        check_crc=check_crc,
        budget=DecompressionBudget(max_body_bytes),  # MAX_DECODED_BYTES bounds all bodies together
    )
    if not is_batch:
        raw_properties = _raw_properties(buffer, start, message)
        yield message, _encode_plain(message, 0, message.flag, message.body, raw_properties)
        return
    try:
        items = decode_batch(message.body)
    except MessageDecodeError as error:
        error.position = start
        raise
    if message.queue_offset + len(items) > _MAX_OFFSET:
        raise MessageDecodeError(f"a batch of {len(items)} messages exceeds the range of offsets", start)
    for index, item in enumerate(items):
        yield message, _encode_plain(message, index, item.flag, item.body, item.raw_properties)


def _raw_properties(buffer: bytes, start: int, message: MessageExt) -> bytes:
    """Return the properties of a valid record as stored."""
    ipv6_hosts = (message.sys_flag & _HOSTS_V6).bit_count()
    body_length_at = start + _BODY_LENGTH_OFFSET + ipv6_hosts * _IPV6_EXTRA_BYTES
    topic_length_at = body_length_at + 4 + int.from_bytes(buffer[body_length_at : body_length_at + 4], "big")
    # The version of a record is also the width of its topic length.
    topic_start = topic_length_at + message.version
    topic_length = int.from_bytes(buffer[topic_length_at:topic_start], "big")
    return buffer[topic_start + topic_length + 2 : start + message.store_size]


def _encode_plain(message: MessageExt, index: int, flag: int, body: bytes, raw_properties: bytes) -> bytes:
    """Encode a plain record with every field that becomes a column, except the hosts, which may not fit.

    `index`: position of the message in its batch.
    """
    fixed = _FIXED_PART.pack(
        _MIN_RECORD_BYTES + len(body) + len(raw_properties),
        MAGIC_V1,
        body_crc(body),
        message.queue_id,
        flag,
        message.queue_offset + index,
        message.physical_offset,
        0,
        message.born_timestamp,
        0,
        message.store_timestamp,
        0,
        message.reconsume_times,
        message.prepared_transaction_offset,
        len(body),
    )
    return b"".join((fixed, body, _NO_TOPIC, len(raw_properties).to_bytes(2, "big"), raw_properties))
