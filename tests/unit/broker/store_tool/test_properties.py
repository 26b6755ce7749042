"""Hashes, properties and values derived from them, compared with Apache's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_broker.store_tool.layout import Record, read_record
from rmq_broker.store_tool.properties import (
    DEFAULT_DELAY_LEVELS,
    all_properties,
    index_hash,
    index_keys,
    inner_batch,
    java_hash,
    light_queues,
    parse_delay_levels,
    property_of,
    tags_code,
)
from rmq_remoting.java_hash import string_hash_code
from rmq_remoting.message import MessageExt
from rmq_remoting.message_codec import encode_stored_message
from rmq_remoting.message_properties import decode_properties
from tests.support.golden import json_file

HASHES = json_file("hashes.json")
DELAYS_MS = parse_delay_levels(DEFAULT_DELAY_LEVELS)


def record_with(topic: str = "TopicA", /, **properties: str) -> Record:
    message = MessageExt(topic, b"", properties=properties, queue_id=3, store_timestamp=1_700_000_000_000)
    return read_record(encode_stored_message(message), 0, 0)


def test_java_hashes() -> None:
    for row in HASHES["string_hash_code"]:
        if row["string"] is not None:  # a lone surrogate has no text in JSON
            assert java_hash(row["string"]) == row["hash"]


def test_index_hashes() -> None:
    for row in HASHES["index_key_hash"]:
        topic, separator, key = row["index_key"].partition("#")
        if not separator:
            value = java_hash(topic)
            assert (0 if value == -(2**31) else abs(value)) == row["index_hash"]
            continue
        assert index_hash(topic.encode(), key.encode()) == row["index_hash"]


@given(st.text("abcÄ中😀%", min_size=1), st.text(min_size=1, max_size=40))
def test_index_hashes_of_any_key(topic: str, key: str) -> None:
    key = key.encode("utf-8", "replace").decode()
    value = string_hash_code(f"{topic}#{key}")
    assert index_hash(topic.encode(), key.encode()) == (0 if value == -(2**31) else abs(value))


@pytest.mark.parametrize("length", [31, 32, 33, 63, 64, 65, 128, 129, 300])
def test_index_hashes_of_long_keys(length: int) -> None:
    for begin in range(40):
        key = "".join(chr(33 + (begin + n * 7) % 90) for n in range(length))
        value = string_hash_code(f"TopicA#{key}")
        assert index_hash(b"TopicA", key.encode()) == (0 if value == -(2**31) else abs(value))


def test_tags_codes() -> None:
    for row in HASHES["tags_code"]:
        if row["tags"] and not set(row["tags"]) & {"\x01", "\x02"}:
            assert tags_code(record_with(TAGS=row["tags"]), DELAYS_MS) == row["tagsCode"]
    assert tags_code(record_with(), DELAYS_MS) == 0


def test_the_code_of_delayed_messages_is_their_delivery_time() -> None:
    levels = HASHES["delay_tags_code"]["levels_ms"]
    for level, delay_ms in levels.items():
        record = record_with("SCHEDULE_TOPIC_XXXX", DELAY=level, TAGS="T")
        assert tags_code(record, DELAYS_MS) == record.store_time_ms + delay_ms
    record = record_with("SCHEDULE_TOPIC_XXXX", DELAY="99")
    assert tags_code(record, DELAYS_MS) == record.store_time_ms + levels["18"]
    assert tags_code(record_with("SCHEDULE_TOPIC_XXXX", TAGS="T"), DELAYS_MS) == java_hash("T")
    assert tags_code(record_with("TopicA", DELAY="3", TAGS="T"), DELAYS_MS) == java_hash("T")


@given(st.lists(st.sampled_from([b"KEYS", b"TAGS", b"\x01", b"\x02", b"a", b"1", b"KEY"])))
def test_one_property_equals_that_of_all(parts: list[bytes]) -> None:
    raw = b"".join(parts)
    everything = all_properties(raw)
    for name in (b"KEYS", b"TAGS", b"KEY"):
        assert property_of(raw, name) == everything.get(name)
    assert {name.decode(): value.decode() for name, value in everything.items()} == decode_properties(raw)


def test_keys_of_a_message() -> None:
    record = record_with(UNIQ_KEY="U", KEYS=" a b  a ")
    assert list(index_keys(record)) == [b"U", b"a", b"b", b"a"]
    assert list(index_keys(record_with())) == []
    assert list(index_keys(record._replace(sys_flag=0xC))) == []  # rolled back
    assert list(index_keys(record._replace(sys_flag=0x4))) == [b"U", b"a", b"b", b"a"]


def test_inner_batches() -> None:
    def of(**properties: str) -> tuple[int, int] | None:
        return inner_batch(record_with(**properties)._replace(sys_flag=0x80))

    assert of(INNER_NUM="5", INNER_BASE="70") == (70, 5)
    assert of(INNER_NUM="5") is None
    assert of(INNER_NUM="x", INNER_BASE="70") is None
    assert of(INNER_NUM="32767", INNER_BASE="70") == (70, 32767)
    assert of(INNER_NUM="32768", INNER_BASE="70") is None
    assert of(INNER_NUM="0", INNER_BASE="70") is None
    assert inner_batch(record_with(INNER_NUM="5", INNER_BASE="70")) is None


def test_light_queues() -> None:
    record = record_with(INNER_MULTI_DISPATCH="%LMQ%a,b", INNER_MULTI_QUEUE_OFFSET="7,8")
    assert list(light_queues(record)) == [(b"%LMQ%a", 0, 7), (b"b", 3, 8)]
    assert not list(light_queues(record_with(INNER_MULTI_DISPATCH="a,b", INNER_MULTI_QUEUE_OFFSET="7")))


@pytest.mark.parametrize("text", ["", "1", "1s x", "s", "-1s"])
def test_bad_delay_levels(text: str) -> None:
    with pytest.raises(ValueError, match="delay"):
        parse_delay_levels(text)
