"""Records of a batch: packed by columns or one by one, they are the same bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_broker.store.appending.record_batch import BatchMessages, BatchStamp, PackedBatch, pack_batch
from rmq_broker.store.log.record import RecordTemplate, pack_host
from rmq_broker.store.queues.consume_queue import QUEUE_ENTRY
from rmq_remoting.message_codec import decode_messages
from tests.support.stores import STORE_HOST

_INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
_INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
_V4, _V6 = pack_host("10.0.0.2", 4444), pack_host("2001:db8::2", 4444)


def record_template(
    topic: str = "T", *, born_host: bytes = _V4, store_host: bytes = STORE_HOST, append_crc: bool = False
) -> RecordTemplate:
    return RecordTemplate(
        topic,
        7,
        flag=3,
        sys_flag=0,
        reconsume_times=2,
        born_host_bytes=len(born_host),
        store_host=store_host,
        append_crc=append_crc,
    )


def one_by_one(template: RecordTemplate, messages: BatchMessages, stamp: BatchStamp) -> PackedBatch:
    """The same records by `pack`, one by one."""
    records, entries, offsets, sizes = [], [], [], []
    place = stamp.physical_offset
    for number, body in enumerate(messages.bodies):
        properties = messages.own_properties[number] + messages.shared_properties
        record = template.pack(
            template.fixed_bytes + len(body) + len(properties),
            body,
            properties,
            queue_offset=stamp.queue_offset + number,
            physical_offset=place,
            born_timestamp_ms=stamp.born_timestamp_ms,
            born_host=stamp.born_host,
            store_timestamp_ms=stamp.store_timestamp_ms,
            flag=messages.flags[number],
        )
        records.append(record)
        entries.append(QUEUE_ENTRY.pack(place, len(record), messages.tags_codes[number]))
        offsets.append(place)
        sizes.append(len(record))
        place += len(record)
    return PackedBatch(b"".join(records), b"".join(entries), offsets, sizes)


def packed_batch(template: RecordTemplate, messages: BatchMessages, stamp: BatchStamp) -> PackedBatch:
    return pack_batch(template, messages, messages.lengths(), stamp)


def check(template: RecordTemplate, messages: BatchMessages, stamp: BatchStamp) -> None:
    packed, plain = packed_batch(template, messages, stamp), one_by_one(template, messages, stamp)
    assert packed.records == plain.records
    assert packed.entries == plain.entries
    assert list(packed.offsets) == plain.offsets
    assert list(packed.sizes) == plain.sizes
    record_bytes = messages.lengths().record_bytes(template, messages.shared_properties)
    assert record_bytes == len(plain.records)


_properties = st.binary(max_size=40)
_message = st.tuples(_INT32, st.binary(max_size=300), _properties, _INT64)


@given(
    messages=st.lists(_message, min_size=1, max_size=40),
    shared=_properties,
    queue_offset=st.integers(0, 1 << 62),
    physical_offset=st.integers(0, 1 << 62),
    topic=st.sampled_from(["T", "t" * 200]),
    born_host=st.sampled_from([_V4, _V6]),
    store_host=st.sampled_from([STORE_HOST, _V6]),
    append_crc=st.booleans(),
)
def test_any_messages(
    messages: list[tuple[int, bytes, bytes, int]],
    shared: bytes,
    queue_offset: int,
    physical_offset: int,
    topic: str,
    born_host: bytes,
    store_host: bytes,
    append_crc: bool,
) -> None:
    flags, bodies, own_properties, tags_codes = zip(*messages, strict=True)
    batch = BatchMessages(flags, bodies, own_properties, shared, tags_codes)
    stamp = BatchStamp(queue_offset, physical_offset, 1_700_000_000_000, born_host, 1_700_000_000_123)
    template = record_template(topic, born_host=born_host, store_host=store_host, append_crc=append_crc)
    check(template, batch, stamp)


@given(
    bodies=st.integers(0, 64).flatmap(
        lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=300)
    ),
    queue_offset=st.integers(0, 1000),
    physical_offset=st.sampled_from([0, 255, (1 << 24) - 500, (1 << 32) - 500, 1 << 40]),
)
def test_messages_of_equal_size(bodies: list[bytes], queue_offset: int, physical_offset: int) -> None:
    count = len(bodies)
    batch = BatchMessages([5] * count, bodies, [b"UNIQ_KEY\x01A\x02"] * count, b"b\x01c\x02", [9] * count)
    check(record_template(), batch, BatchStamp(queue_offset, physical_offset, 1, _V4, 2))


@pytest.mark.parametrize("count", [1, 4, 5, 32, 700])
@pytest.mark.parametrize("append_crc", [False, True])
def test_the_reference_codec_decodes_them(count: int, append_crc: bool) -> None:
    bodies = [b"%d" % number for number in range(count)]
    own = [b"KEYS\x01k%d\x02" % number for number in range(count)]
    batch = BatchMessages(range(count), bodies, own, b"CLUSTER\x01c\x02", [0] * count)
    packed = packed_batch(
        record_template(append_crc=append_crc), batch, BatchStamp(250, 1_000_000, 11, _V4, 22)
    )
    messages = decode_messages(packed.records, check_crc=True)
    assert [message.body for message in messages] == bodies
    assert [message.queue_offset for message in messages] == list(range(250, 250 + count))
    assert [message.physical_offset for message in messages] == list(packed.offsets)
    assert [message.flag for message in messages] == list(range(count))
    assert [message.keys for message in messages] == [[f"k{number}"] for number in range(count)]
    assert {message.properties["CLUSTER"] for message in messages} == {"c"}
    assert {message.properties.get("__CRC32#") is not None for message in messages} == {append_crc}
