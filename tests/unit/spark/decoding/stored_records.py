"""Stored records for tests: plain ones, and records of every form by hypothesis."""

from __future__ import annotations

import struct
from dataclasses import replace

from hypothesis import strategies as st

from rmq_remoting.compression import CompressionType, compress
from rmq_remoting.message import MessageExt
from rmq_remoting.message_codec import encode_stored_message
from rmq_remoting.message_properties import encode_properties
from rmq_remoting.sys_flags import MessageSysFlag
from tests.unit.remoting.message_samples import messages, properties

INNER_BATCH = MessageSysFlag.INNER_BATCH | MessageSysFlag.NEED_UNWRAP

_PIECES = (
    b"\x01",
    b"\x02",
    b"KEYS",
    b"TAGS",
    b"UNIQ_KEY",
    b"TAGS\x01a\x02",
    b"KEYS\x01k1 k2\x02",
    b"UNIQ_KEY\x010A00\x02",
    b"a long name, to tell apart\x01v\x02",
    b"a long name, another one\x01w\x02",
    "größe\x01€\x02".encode(),
    b"value",
    b"\x00",
    b"\xff",
    b"\xc3",
    b"\xa9",
    b"\xed\xa0\x80",
)
# Valid properties, and any sequence of separators, names and bytes that are not UTF-8.
raw_properties = st.one_of(
    properties.map(encode_properties),
    st.lists(st.sampled_from(_PIECES), max_size=8).map(b"".join),
    st.binary(max_size=12),
)


def record(message: MessageExt, raw: bytes | None = None) -> bytes:
    """Encode a message as a record; `raw`: with these properties instead of its own."""
    if raw is None:
        return encode_stored_message(message)
    bare = encode_stored_message(replace(message, properties={}))
    return (len(bare) + len(raw)).to_bytes(4, "big") + bare[4:-2] + len(raw).to_bytes(2, "big") + raw


def plain_message(offset: int, body: bytes = b"hello", **properties: str) -> MessageExt:
    """Return a message of version 1 with IPv4 hosts."""
    return MessageExt(
        "t",
        body,
        7,
        dict(properties),
        queue_offset=offset,
        physical_offset=1000 + offset,
        born_timestamp=1_700_000_000_000 + offset,
        store_timestamp=1_700_000_000_005 + offset,
        born_host=("10.0.0.3", 50123),
        store_host=("10.0.0.1", 10911),
        reconsume_times=2,
    )


def batch_body(items: list[tuple[int, bytes, bytes]]) -> bytes:
    """Encode a client's batch of flag, body and raw properties."""
    return b"".join(
        struct.pack(">iiiii", 22 + len(body) + len(raw), 0, 0, flag, len(body))
        + body
        + len(raw).to_bytes(2, "big")
        + raw
        for flag, body, raw in items
    )


def compressed(message: MessageExt, compression: CompressionType) -> MessageExt:
    """Return the same message with its body compressed."""
    sys_flag = message.sys_flag & ~MessageSysFlag.COMPRESSION_MASK | compression.sys_flag
    return replace(message, body=compress(message.body, compression), sys_flag=sys_flag)


def in_range(message: MessageExt, offset: int) -> MessageExt:
    """Return the same message at another queue offset."""
    return replace(message, queue_offset=offset)


offsets = st.integers(0, 20)
_plain = st.builds(
    lambda offset, body, raw: record(plain_message(offset, body), raw),
    offsets,
    st.binary(max_size=30),
    raw_properties,
)
_any_form = st.builds(
    lambda message, offset, raw: record(in_range(message, offset), raw), messages, offsets, raw_properties
)
_compressed = st.builds(
    lambda message, offset, raw, kind: record(in_range(compressed(message, kind), offset), raw),
    messages,
    offsets,
    raw_properties,
    st.sampled_from(CompressionType),
)
_items = st.lists(
    st.tuples(st.integers(-(1 << 31), (1 << 31) - 1), st.binary(max_size=20), raw_properties), max_size=4
)
_batches = st.builds(
    lambda message, offset, items, kind: record(
        _batch(in_range(message, offset), batch_body(items), kind), b""
    ),
    messages,
    offsets,
    _items,
    st.none() | st.sampled_from(CompressionType),
)
stored_records = st.one_of(_plain, _plain, _any_form, _compressed, _batches)


def _batch(message: MessageExt, body: bytes, compression: CompressionType | None) -> MessageExt:
    batch = replace(message, body=body, sys_flag=message.sys_flag | INNER_BATCH)
    return batch if compression is None else compressed(batch, compression)
