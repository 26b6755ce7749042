"""Offset message ids and clients' unique keys."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_remoting.message_errors import MessageEncodeError, MessageIdError
from rmq_remoting.message_ids import (
    UniqueKey,
    UniqueKeyGenerator,
    offset_message_id,
    parse_offset_message_id,
    parse_unique_key,
)
from tests.support.golden import json_lines
from tests.support.rows import each_row
from tests.unit.remoting.message_samples import same_address

OFFSET_IDS = json_lines("wire/messages.jsonl", "offset message id")
UNIQUE_KEYS = json_lines("wire/messages.jsonl", "client unique key")


def by_id(row: dict[str, Any]) -> str:
    return str(row["id"])


def local_ms(year: int, month: int, day: int, hour: int, minute: int, second: int) -> int:
    return int(time.mktime((year, month, day, hour, minute, second, 0, 0, -1))) * 1000


@pytest.fixture(params=["UTC", "Asia/Shanghai", "America/New_York"], autouse=True)
def local_zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


class TestOffsetMessageIds:
    @each_row("row", OFFSET_IDS, ids=by_id)
    def test_both_ways(self, row: dict[str, Any]) -> None:
        assert offset_message_id((row["host"], row["port"]), row["phyOffset"]) == row["id"]
        decoded = row["decoded"]
        address, physical_offset = parse_offset_message_id(row["id"])
        assert same_address(address, decoded["address"], decoded["port"])
        assert physical_offset == decoded["offset"]
        assert parse_offset_message_id(row["id"].lower()) == (address, physical_offset)

    @each_row(
        "text", ["", "0A", "XX" * 16, "0A" * 15, "0A" * 17, "0A " * 16, "0A0000010001000000000000000000FF"]
    )
    def test_what_is_none(self, text: str) -> None:
        with pytest.raises(MessageIdError, match=repr(text)):
            parse_offset_message_id(text)

    def test_what_cannot_be_one(self) -> None:
        with pytest.raises(MessageEncodeError, match="64 bits"):
            offset_message_id(("10.0.0.1", 1), 1 << 63)
        with pytest.raises(MessageEncodeError, match="no IP address"):
            offset_message_id(("localhost", 1), 0)


class TestUniqueKeys:
    @each_row("row", UNIQUE_KEYS, ids=by_id)
    def test_both_ways(self, row: dict[str, Any]) -> None:
        layout = row["layout"]
        key = parse_unique_key(row["id"])
        assert same_address((key.ip, 0), row["ip"], 0)
        assert key == UniqueKey(
            key.ip,
            row["pid"],
            layout["class_loader_hash"],
            layout["ms_since_month_start_local_time"],
            layout["counter"],
        )
        assert replace(key, ip=row["ip"]).encode() == row["id"]

    @given(
        st.builds(
            UniqueKey,
            st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str),
            st.integers(0, 0xFFFF),
            st.integers(0, 0xFFFFFFFF),
            st.integers(0, 0xFFFFFFFF),
            st.integers(0, 0xFFFF),
        )
    )
    def test_round_trip(self, key: UniqueKey) -> None:
        assert parse_unique_key(key.encode()).encode() == key.encode()

    @given(st.text())
    def test_random_texts(self, text: str) -> None:
        with pytest.raises(MessageIdError):
            parse_unique_key(text)

    def test_too_large_a_part(self) -> None:
        with pytest.raises(MessageEncodeError, match="process_id=65536"):
            UniqueKey("10.0.0.1", 65536, 0, 0, 0).encode()

    def test_time_of_this_month_or_the_one_before(self) -> None:
        day_ms = 86_400_000
        key = UniqueKey("10.0.0.1", 1, 1, 20 * day_ms, 0)
        assert key.created_at_ms(local_ms(2024, 1, 25, 0, 0, 0)) == local_ms(2024, 1, 21, 0, 0, 0)
        assert key.created_at_ms(local_ms(2024, 1, 10, 0, 0, 0)) == local_ms(2023, 12, 21, 0, 0, 0)


class TestGenerator:
    def test_keys(self) -> None:
        now_ms = local_ms(2024, 5, 3, 12, 0, 0) + 7
        generator = UniqueKeyGenerator("10.0.0.3", 0x1A2B, 0x18B4AAC2, lambda: now_ms)
        first, second = generator.next_key(), generator.next_key()
        assert generator.prefix == "0A0000031A2B18B4AAC2"
        elapsed_ms = now_ms - local_ms(2024, 5, 1, 0, 0, 0)
        assert parse_unique_key(first) == UniqueKey("10.0.0.3", 0x1A2B, 0x18B4AAC2, elapsed_ms, 0)
        assert parse_unique_key(second).counter == 1
        assert parse_unique_key(first).created_at_ms(now_ms + 1) == now_ms

    def test_ipv6_and_large_numbers(self) -> None:
        generator = UniqueKeyGenerator("2001:db8::3", 0x12345, -1, lambda: local_ms(2024, 5, 3, 12, 0, 0))
        key = generator.next_key()
        assert len(key) == 56
        parsed = parse_unique_key(key)
        assert (parsed.process_id, parsed.instance_hash) == (0x2345, 0xFFFFFFFF)

    def test_counter_wraps(self) -> None:
        generator = UniqueKeyGenerator("10.0.0.3", 1, 1, lambda: local_ms(2024, 5, 3, 12, 0, 0))
        keys = [generator.next_key() for _ in range(0x10001)]
        assert [keys[index][-4:] for index in (0xFFFF, 0x10000)] == ["FFFF", "0000"]

    def test_keys_in_bulk(self) -> None:
        generator = UniqueKeyGenerator("10.0.0.3", 1, 1, lambda: local_ms(2024, 5, 3, 12, 0, 0))
        first, *bulk = generator.next_key(), *generator.next_keys(2), generator.next_key()
        assert [key[-4:] for key in bulk] == ["0001", "0002", "0003"]
        assert {key[:-4] for key in bulk} == {first[:-4]}
        assert generator.key_length == len(first)

    def test_next_month_begins_at_zero(self) -> None:
        times = iter([local_ms(2024, 12, 31, 23, 59, 59), local_ms(2025, 1, 1, 0, 0, 1)])
        now_ms = next(times)
        generator = UniqueKeyGenerator("10.0.0.3", 1, 1, lambda: now_ms)
        assert parse_unique_key(generator.next_key()).milliseconds_of_month == 31 * 86_400_000 - 1000
        now_ms = next(times)
        assert parse_unique_key(generator.next_key()).milliseconds_of_month == 1000

    def test_clock_set_back_across_the_beginning_of_the_month(self) -> None:
        now_ms = local_ms(2024, 5, 1, 0, 0, 5)
        generator = UniqueKeyGenerator("10.0.0.3", 1, 1, lambda: now_ms)
        now_ms -= 10_000
        assert parse_unique_key(generator.next_key()).milliseconds_of_month == 0
