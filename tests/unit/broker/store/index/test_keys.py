"""Hashes of index keys."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rmq_broker.store.index.keys import KeyHasher, hashes_by_columns, index_hash
from rmq_remoting.bounded_cache import BoundedCache
from rmq_remoting.java_hash import string_hash_code
from tests.support.golden import json_file
from tests.unit.broker.store.index.parts import unique


def cache(hasher: KeyHasher, name: str) -> BoundedCache[Any, Any]:
    (found,) = [each for each in hasher.caches if each.name == name]
    return found


def plain(topic: str, key: str) -> int:
    value = abs(string_hash_code(f"{topic}#{key}"))
    return value if value < 1 << 31 else 0


def test_hashes_are_those_of_apache() -> None:
    rows = json_file("hashes.json")["index_key_hash"]
    hasher = KeyHasher()
    checked = 0
    for row in rows:
        topic, separator, key = row["index_key"].partition("#")
        if not separator:
            continue
        checked += 1
        assert index_hash(topic, key) == row["index_hash"]
        for _ in range(2):  # computed, then from the caches
            assert hasher.unique_key(topic, key.encode()) == row["index_hash"]
        assert hasher.any_key(topic, key.encode()) == row["index_hash"]
    assert checked >= 4


def text_with_hash(wanted: int, prefix: str) -> str:
    """Find seven ASCII characters that give `prefix` this hash, by solving for the last ones."""
    for first in range(0x20, 0x7F):
        for second in range(0x20, 0x7F):
            start = string_hash_code(prefix + chr(first) + chr(second))
            rest = (wanted - start * 31**6) % (1 << 32)
            characters: list[int] = []
            for power in range(5, -1, -1):
                weight = 31**power
                lowest_rest = 0x20 * sum(31**lower for lower in range(power))
                code = min(0x7E, (rest - lowest_rest) // weight)
                characters.append(code)
                rest -= code * weight
            if rest == 0 and all(0x20 <= code < 0x7F for code in characters):
                return prefix + chr(first) + chr(second) + "".join(map(chr, characters))
    raise AssertionError("no such text")


def test_the_number_without_an_absolute_value() -> None:
    key = text_with_hash(-(1 << 31), "T#").removeprefix("T#")
    assert string_hash_code("T#" + key) == -(1 << 31)
    assert index_hash("T", key) == 0
    assert KeyHasher().any_key("T", key.encode()) == 0
    assert KeyHasher().unique_key("T", key.encode()) == 0
    first, last = key.encode(), key[:-1].encode() + b"~"
    columns = [bytes(column) for column in zip(first, last, strict=True)]
    assert hashes_by_columns("T", columns) == [0, plain("T", last.decode())]


def test_that_hash_also_comes_from_cached_parts() -> None:
    start = "T#" + "0" * 24
    key = text_with_hash(-(1 << 31), start)[2:]
    padded = text_with_hash(-(1 << 31), "T#" + "0" * (32 - 8))[2:]
    assert len(padded) == 32 and key == padded
    hasher = KeyHasher()
    assert [hasher.unique_key("T", padded.encode()) for _ in range(2)] == [0, 0]
    assert hasher.unique_keys("T", padded.encode()) == 0
    assert cache(hasher, "index_key_heads").insertions == 1


@pytest.mark.parametrize("seed", range(3))
def test_hashes_equal_those_of_a_plain_function(seed: int) -> None:
    chance = random.Random(seed)
    hasher = KeyHasher()
    for _ in range(3000):
        topic = chance.choice(["T", "TopicTest", "%RETRY%group", "主题", "x" * 127])
        length = chance.choice([0, 1, 3, 4, 5, 20, 32, 32, 32, 56, 56, 100])
        alphabet = chance.choice(["0123456789ABCDEF", "AB", "aé", "键😀"])
        key = "".join(chance.choices(alphabet, k=length))
        expected = plain(topic, key)
        assert hasher.unique_key(topic, key.encode()) == expected
        assert hasher.unique_keys(topic, key.encode()) == expected
        assert hasher.any_key(topic, key.encode()) == expected
        assert index_hash(topic, key) == expected


def test_the_caches_are_bounded() -> None:
    hasher = KeyHasher()
    for bounded in hasher.caches:
        bounded.max_entries = 10
    for number in range(500):
        topic = f"T{number % 30}"
        assert hasher.unique_key(topic, unique(number).encode()) == plain(topic, unique(number))
        assert all(len(bounded) <= 10 for bounded in hasher.caches)
    used = {bounded.name for bounded in hasher.caches if bounded.evictions}
    assert used == {bounded.name for bounded in hasher.caches}


def test_all_keys_of_a_message() -> None:
    hasher = KeyHasher()
    hashes = hasher.all_keys("T", unique(1).encode(), b" a  b a ")
    assert hashes == [plain("T", key) for key in (unique(1), "a", "b", "a")]
    assert hasher.all_keys("T", b"", b"") == []
    assert hasher.all_keys("T", b"", b"  ") == []


def test_all_counters_fit_the_cache() -> None:
    """A new millisecond of a client must not evict the counters."""
    hasher = KeyHasher()
    for counter in range(65536):
        hasher.unique_key("T", b"0A000003162E18B4AAC200000000%04X" % counter)
    for number in range(100):
        hasher.unique_key("T", unique(number).encode())
    assert cache(hasher, "index_key_counters").insertions == 65536


def test_unique_keys_among_the_keys_of_another_message() -> None:
    hasher = KeyHasher()
    keys = [unique(number) for number in range(20)]
    for key in keys[:10]:
        hasher.unique_key("T", key.encode())
    hashes = hasher.all_keys("Traces", b"", " ".join(keys).encode())
    assert hashes == [index_hash("Traces", key) for key in keys]
