"""Reference decoder: the columns, message by message, by the SDK's codec."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from rmq_remoting.message import MessageExt
from rmq_remoting.message_batch import decode_batch
from rmq_remoting.message_codec import decode_stored_message, unwrap_inner_batch
from rmq_remoting.sys_flags import MessageSysFlag

Row = dict[str, Any]

_MAX_TIMESTAMP_MS = ((1 << 63) - 1) // 1000


def reference_rows(
    chunks: Sequence[bytes],
    *,
    begin: int,
    end: int,
    queue: tuple[str, str, int] = ("t", "b", 0),
    raw_properties: bool = False,
    decompress: bool = True,
    check_crc: bool = False,
) -> list[Row]:
    """Return every column of every message with begin <= queue offset < end; timestamps in microseconds.

    Raises MessageDecodeError for a damaged record.
    """
    return [
        _row(message, raw, queue, raw_properties)
        for chunk in chunks
        for message, raw in _messages(chunk, decompress, check_crc)
        if begin <= message.queue_offset < end
    ]


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    """Convert an Arrow batch to the same form. Duplicate keys in a map are an error."""
    columns = {}
    for field, column in zip(batch.schema, batch.columns, strict=True):
        values = (column.cast(pa.int64()) if pa.types.is_timestamp(field.type) else column).to_pylist()
        if pa.types.is_map(field.type):
            for entries in values:
                assert len(dict(entries)) == len(entries), entries
            values = [dict(entries) for entries in values]
        columns[field.name] = values
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _messages(chunk: bytes, decompress: bool, check_crc: bool) -> Iterator[tuple[MessageExt, bytes]]:
    position = 0
    while position < len(chunk):
        stored = decode_stored_message(chunk, position, decompress_body=False, check_crc=check_crc)
        if MessageSysFlag.is_inner_batch(stored.sys_flag):
            outer = decode_stored_message(chunk, position)
            raws = [item.raw_properties for item in decode_batch(outer.body)]
            yield from zip(unwrap_inner_batch(outer), raws, strict=True)
        else:
            message = decode_stored_message(chunk, position) if decompress else stored
            yield message, _raw_properties(chunk, position, stored)
        position += stored.store_size


def _raw_properties(chunk: bytes, position: int, stored: MessageExt) -> bytes:
    hosts = [
        20 if stored.sys_flag & bit else 8
        for bit in (MessageSysFlag.BORN_HOST_V6, MessageSysFlag.STORE_HOST_V6)
    ]
    topic_length_at = position + 72 + sum(hosts) + len(stored.body)
    topic_at = topic_length_at + stored.version
    topic_length = int.from_bytes(chunk[topic_length_at:topic_at], "big")
    properties_at = topic_at + topic_length + 2
    return chunk[properties_at : position + stored.store_size]


def _row(message: MessageExt, raw: bytes, queue: tuple[str, str, int], raw_properties: bool) -> Row:
    topic, broker_name, queue_id = queue
    return {
        "topic": topic,
        "brokerName": broker_name,
        "queueId": queue_id,
        "queueOffset": message.queue_offset,
        "msgId": message.msg_id,
        "offsetMsgId": message.offset_msg_id,
        "keys": message.properties.get("KEYS"),
        "tags": message.properties.get("TAGS"),
        "body": message.body,
        "properties": raw.decode("utf-8", "replace") if raw_properties else message.properties,
        "bornTimestamp": _microseconds(message.born_timestamp),
        "storeTimestamp": _microseconds(message.store_timestamp),
        "bornHost": message.born_host[0],
        "reconsumeTimes": message.reconsume_times,
        "flag": message.flag,
    }


def _microseconds(timestamp_ms: int) -> int:
    return min(max(timestamp_ms, -_MAX_TIMESTAMP_MS), _MAX_TIMESTAMP_MS) * 1000
