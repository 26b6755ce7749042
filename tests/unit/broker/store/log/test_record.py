"""Records: packing as the reference codec does, and which bytes count as a record."""

from __future__ import annotations

import mmap
import zlib
from typing import Any

import pytest

from rmq_broker.store.log.record import (
    MAGIC_BLANK,
    RecordTemplate,
    crc_property,
    pack_blank,
    pack_host,
    parse_record,
    store_timestamp_at,
)
from rmq_broker.store.log.record_walk import RecordWalk, next_record
from rmq_remoting.message import MessageExt
from rmq_remoting.message_codec import decode_stored_message, encode_stored_message
from rmq_remoting.message_properties import encode_properties
from tests.support.golden import json_lines
from tests.support.rows import each_row
from tests.support.stores import BORN_HOST, STORE_HOST, template

GOLDEN = json_lines("wire/messages.jsonl", "stored message")
V6, V4 = ("2001:db8::1", 10911), ("10.1.2.3", 5000)


def packed(message: MessageExt, raw_properties: bytes, *, flag: int | None = None) -> bytes:
    """The message as the broker packs it."""
    born_host = pack_host(*message.born_host)
    record = RecordTemplate(
        message.topic,
        message.queue_id,
        flag=message.flag,
        sys_flag=message.sys_flag,
        reconsume_times=message.reconsume_times,
        born_host_bytes=len(born_host),
        store_host=pack_host(*message.store_host),
    )
    return record.pack(
        record.fixed_bytes + len(message.body) + len(raw_properties),
        message.body,
        raw_properties,
        queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
        born_timestamp_ms=message.born_timestamp,
        born_host=born_host,
        store_timestamp_ms=message.store_timestamp,
        flag=flag,
    )


def sample(**changes: Any) -> MessageExt:
    fields: dict[str, Any] = {
        "topic": "TopicTest",
        "body": b"some body",
        "flag": 7,
        "properties": {"TAGS": "TagA", "KEYS": "a b"},
        "queue_id": 3,
        "queue_offset": 12345,
        "physical_offset": 9876543210,
        "sys_flag": 0,
        "born_timestamp": 1700000000000,
        "born_host": V4,
        "store_timestamp": 1700000000123,
        "store_host": ("10.0.0.1", 10911),
        "reconsume_times": 2,
    }
    return MessageExt(**(fields | changes))


def mapped(*parts: bytes, size: int = 8192) -> mmap.mmap:
    content = b"".join(parts)
    memory = mmap.mmap(-1, size)
    memory[: len(content)] = content
    return memory


def record_bytes(body: bytes, at: int, *, queue_offset: int = 0, topic: str = "TopicA") -> bytes:
    return packed(
        sample(topic=topic, body=body, physical_offset=at, queue_offset=queue_offset), b"TAGS\x01TagA\x02"
    )


@each_row("row", GOLDEN, ids=lambda row: row["name"])
def test_golden_records_are_packed_byte_for_byte(row: dict[str, Any]) -> None:
    raw = bytes.fromhex(row["hex"])
    message = decode_stored_message(raw, decompress_body=False)
    if message.prepared_transaction_offset:
        return  # committed transactions are not appended by a template
    if message.version == 2 and len(message.topic.encode()) <= 127:
        return  # the second format is for longer topics only
    properties = raw[len(raw) - _properties_length(row, raw) :] if message.properties else b""
    assert packed(message, properties) == raw


def _properties_length(row: dict[str, Any], raw: bytes) -> int:
    parsed = parse_record(mapped(raw), 0, row["decoded"]["phyOffset"])
    assert parsed is not None
    return len(parsed.properties)


@each_row("born", [V4, V6])
@each_row("store", [V4, V6])
@each_row("topic", ["T", "t" * 127, "t" * 128, "t" * 255, "Thème"])
@each_row("body", [b"", b"\0" * 40, bytes(range(256)) * 8])
def test_records_equal_those_of_the_reference_codec(
    born: tuple[str, int], store: tuple[str, int], topic: str, body: bytes
) -> None:
    message = sample(born_host=born, store_host=store, topic=topic, body=body)
    raw = packed(message, encode_properties(message.properties))
    assert raw == encode_stored_message(message)
    found = parse_record(mapped(raw), 0, message.physical_offset)
    assert found is not None
    assert (found.topic, found.queue_id, found.queue_offset) == (topic, 3, 12345)
    assert (found.size, found.properties) == (len(raw), encode_properties(message.properties))
    assert found.store_timestamp_ms == store_timestamp_at(mapped(raw), 0) == message.store_timestamp


def test_the_flag_of_one_message_of_a_batch() -> None:
    assert packed(sample(), b"", flag=99) == packed(sample(flag=99), b"")


def test_largest_properties() -> None:
    raw = packed(sample(), b"p" * 32767)
    found = parse_record(mapped(raw, size=65536), 0, sample().physical_offset)
    assert found is not None and found.properties == b"p" * 32767


def test_ipv6_scope_is_left_out() -> None:
    assert pack_host("fe80::1%eth0", 1) == pack_host("fe80::1", 1)
    assert len(pack_host("10.0.0.1", 1)) == 8


def test_a_walk_ends_at_the_first_invalid_record() -> None:
    first = record_bytes(b"one", 0)
    second = record_bytes(b"two", len(first), queue_offset=1)
    memory = mapped(first, second)
    walk = RecordWalk(memory, 0, 0)
    assert [record.queue_offset for record in walk] == [0, 1]
    assert (walk.position, walk.is_full) == (len(first) + len(second), False)


def test_a_walk_over_a_full_file() -> None:
    first = record_bytes(b"one", 0)
    memory = mapped(first, pack_blank(4096 - len(first)), size=4096)
    walk = RecordWalk(memory, 0, 0)
    assert len(list(walk)) == 1
    assert (walk.position, walk.is_full) == (len(first), True)


@pytest.mark.parametrize("size", [7, 8, 4000])
def test_a_blank_of_another_size_is_not_the_end_of_a_full_file(size: int) -> None:
    memory = mapped(pack_blank(size), size=4096)
    walk = RecordWalk(memory, 0, 0)
    assert not list(walk)
    assert not walk.is_full


def test_a_blank_is_size_and_magic() -> None:
    assert pack_blank(764) == (764).to_bytes(4, "big") + b"\xcb\xd4\x31\x94"
    assert (MAGIC_BLANK & 0xFFFFFFFF) == 0xCBD43194


def test_a_record_that_is_zero_from_any_byte_on() -> None:
    """Zeros from any byte on: such a record is invalid, except if only properties are missing."""
    raw = record_bytes(b"the body of it", 0)
    properties_begin = len(raw) - len(b"TAGS\x01TagA\x02")
    for length in range(len(raw)):
        found = parse_record(mapped(raw[:length]), 0, 0)
        # The length of the properties tells where they end, but not whether they were written.
        assert (found is None) == (length < properties_begin), length


def test_every_damaged_byte_before_the_properties() -> None:
    """A changed byte is detected, unless no checksum covers its field."""
    raw = record_bytes(b"the body of it", 0)
    unguarded = {
        *range(12, 20),  # queue id, flag
        *range(20, 28),  # queue offset
        *range(36, 84),  # system flag, times, hosts, reconsume times, prepared transaction offset
        *range(len(raw) - 18, len(raw)),  # topic and properties
    }
    for position in range(len(raw)):
        garbled = bytearray(raw)
        garbled[position] ^= 0x80
        found = parse_record(mapped(bytes(garbled)), 0, 0)
        assert found is None or position in unguarded, position


@pytest.mark.parametrize(
    ("position", "replacement"),
    [
        (12, b"\xff\xff\xff\xff"),  # queue id
        (20, b"\xff" * 8),  # queue offset
        (28, b"\x00" * 7 + b"\x01"),  # physical offset
        (0, b"\x7f\xff\xff\xff"),  # size
        (0, b"\x00\x00\x00\x5a"),
        (84, b"\xff\xff\xff\xff"),  # body length
        (84, b"\x7f\xff\xff\xff"),
    ],
)
def test_impossible_values(position: int, replacement: bytes) -> None:
    raw = bytearray(record_bytes(b"body", 0))
    raw[position : position + len(replacement)] = replacement
    assert parse_record(mapped(bytes(raw)), 0, 0) is None


@pytest.mark.parametrize("topic", [b"......", b"a/../b", b"Topi\0A", b"\xff\xfe\xfd\xfc\xfb\xfa"])
def test_topics_that_cannot_be_folders(topic: bytes) -> None:
    raw = record_bytes(b"body", 0)
    assert raw.count(b"TopicA") == 1
    damaged = raw.replace(b"TopicA", topic)
    expected = parse_record(mapped(damaged), 0, 0)
    assert (expected is not None) == (topic == b"......")


@pytest.mark.parametrize("topic", [".", ".."])
def test_a_topic_is_not_another_folder(topic: str) -> None:
    assert parse_record(mapped(record_bytes(b"", 0, topic=topic)), 0, 0) is None


def test_the_crc_is_checked_on_demand() -> None:
    raw = record_bytes(b"the body", 0).replace(b"the body", b"The body")
    assert parse_record(mapped(raw), 0, 0) is None
    assert parse_record(mapped(raw), 0, 0, check_crc=False) is not None


def test_positions_outside_the_file() -> None:
    memory = mapped(record_bytes(b"x", 0), size=4096)
    for position in (-1, 4095, 4096, 10_000):
        assert parse_record(memory, position, 0) is None


def test_the_next_record_behind_damage() -> None:
    first = record_bytes(b"one", 0)
    second = record_bytes(b"a picture of a record: \xda\xa3\x20\xa7", len(first))
    third = record_bytes(b"three", len(first) + len(second))
    memory = mapped(first, b"\0" * 50, second[50:], third)
    at = len(first) + len(second)
    assert next_record(memory, len(first) + 1, 0, 8192) == at
    assert next_record(memory, len(first) + 1, 0, at + 4) is None
    assert next_record(memory, at + 1, 0, 8192) is None


def test_fixed_bytes() -> None:
    assert template("TopicA").fixed_bytes == 91 + 6
    assert template("TopicA", born_host_bytes=20).fixed_bytes == 91 + 6 + 12
    assert len(STORE_HOST) == len(BORN_HOST) == 8


# --- the CRC of the whole record (enabledAppendPropCRC) ---


def with_crc(body: bytes, properties: bytes) -> bytes:
    record = template_with_crc()
    return record.pack(
        record.fixed_bytes + len(body) + len(properties),
        body,
        properties,
        queue_offset=5,
        physical_offset=0,
        born_timestamp_ms=1,
        born_host=BORN_HOST,
        store_timestamp_ms=2,
    )


def template_with_crc() -> RecordTemplate:
    return RecordTemplate(
        "TopicA",
        0,
        flag=0,
        sys_flag=0,
        reconsume_times=0,
        born_host_bytes=8,
        store_host=STORE_HOST,
        append_crc=True,
    )


def test_the_property_with_the_checksum() -> None:
    """Ten digits, the lowest first (Apache RocketMQ 5.3.3, MessageDecoder.createCrc32)."""
    raw = with_crc(b"body", b"TAGS\x01TagA\x02")
    crc = zlib.crc32(raw[:-20]) & 0x7FFFFFFF
    assert raw[-20:] == b"__CRC32#\x01" + str(crc).zfill(10)[::-1].encode() + b"\x02"
    message = decode_stored_message(raw)
    assert message.properties["TAGS"] == "TagA"
    assert int(message.properties["__CRC32#"][::-1]) == crc
    assert crc_property(b"")[9:19] == b"0000000000"


def test_every_damaged_byte_of_a_record_with_the_checksum() -> None:
    raw = with_crc(b"the body", b"KEYS\x01k1\x02")
    assert parse_record(mapped(raw), 0, 0) is not None
    for position in range(len(raw)):
        for bit in (0x01, 0x80):
            garbled = bytearray(raw)
            garbled[position] ^= bit
            found = parse_record(mapped(bytes(garbled)), 0, 0)
            # A damaged name makes it another property: the record then has no checksum.
            in_name = len(raw) - 20 <= position < len(raw) - 11
            assert found is None or in_name, position
