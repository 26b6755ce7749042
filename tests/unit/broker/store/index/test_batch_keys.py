"""Hashes of a batch's keys: by columns or message by message, they are the same."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_broker.store.index.batch_keys import BatchKeys, hashes_of_batch
from rmq_broker.store.index.keys import KeyHasher, hashes_by_columns
from rmq_remoting.message_properties import find_property

_HEAD = "0A000003162E18B4AAC20000ABCD"
_COUNT = 40

Change = Callable[[list[bytes]], list[bytes]]


def batch(own: list[bytes], shared: bytes = b"MSG_REGION\x01r\x02", *, key: bytes = b"") -> BatchKeys:
    return BatchKeys(own, shared, key, has_keys=b"KEYS\x01" in b"".join(own) + shared)


def messages(*, before: str = "x\x01y\x02", behind: str = "", key: str = "") -> list[bytes]:
    """Return the properties of messages with consecutive unique keys, whose counters wrap."""
    rows = []
    for number in range(_COUNT):
        own = f"{before}UNIQ_KEY\x01{_HEAD}{(65_530 + number) & 0xFFFF:04X}\x02{behind}"
        rows.append((own + (f"KEYS\x01{key}{number:02}\x02" if key else "")).encode())
    return rows


def plain(topic: str, keys: BatchKeys) -> list[list[int]]:
    """Return the hashes of each message, whose properties are searched one by one."""
    hasher, found = KeyHasher(), []
    for own in keys.own_properties:
        properties = own + keys.shared_properties
        unique_key = keys.unique_key or find_property(properties, b"UNIQ_KEY") or b""
        found.append(hasher.all_keys(topic, unique_key, find_property(properties, b"KEYS") or b""))
    return found


def hashes(topic: str, keys: BatchKeys, *, by_columns: bool | None = None) -> list[list[int]]:
    """Return the hashes of each message.

    `by_columns`: how they have to be read. Unique keys that are read one by one enter the hasher's caches.
    """
    hasher = KeyHasher()
    found, numbers = hashes_of_batch(hasher, topic, keys)
    if by_columns is not None:
        assert by_columns is not any(cache.insertions for cache in hasher.caches)
    if isinstance(numbers, int):
        numbers = [numbers] * len(keys.own_properties)
    assert sum(numbers) == len(found)
    rest = iter(found)
    return [[next(rest) for _ in range(number)] for number in numbers]


@pytest.mark.parametrize("key", ["", "k", "order-"])
@pytest.mark.parametrize(("before", "behind"), [("", ""), ("x\x01y\x02", ""), ("", "a\x01b\x02")])
def test_a_batch_of_one_layout(before: str, behind: str, key: str) -> None:
    for number in range(20):
        keys = batch(messages(before=before, behind=behind, key=key))
        assert hashes(f"Topic{number}", keys, by_columns=True) == plain(f"Topic{number}", keys)


def test_batches_with_one_kind_of_keys() -> None:
    with_keys = [b"KEYS\x01k%02d\x02" % number for number in range(_COUNT)]
    for keys in (
        batch(with_keys),
        batch(with_keys, key=b"K"),
        batch([b"x\x01y\x02"] * _COUNT),
        batch([b""] * _COUNT, key=b"K"),
        batch([b"UNIQ_KEY\x01K\x02"] * _COUNT),
    ):
        assert hashes("T", keys) == plain("T", keys)


@pytest.mark.parametrize(
    "change",
    [
        lambda own: own[:15],  # few messages
        lambda own: [*own[:-1], own[-1] + b"a\x01b\x02"],
        lambda own: [*own[:-1], own[-1].replace(b"UNIQ_KEY\x01", b"UNIQ_KEX\x01")],
        lambda own: [own[0].replace(b"UNIQ_KEY\x01", b"UNIQ_KEX\x01"), *own[1:]],
        lambda own: [*own[:-1], own[-1].replace(b"KEYS\x01", b"KEXS\x01")],
        lambda own: [own[0].replace(b"KEYS\x01", b"KEXS\x01"), *own[1:]],
        lambda own: [*own[:-1], own[-1][:-2] + b"\x02\x02"],
        lambda own: [*own[:-1], own[-1][:-1] + b"z"],
        lambda own: [*own[:-1], own[-1][:-2] + b" \x02"],
        lambda own: [*own[:-1], own[-1].replace(b"\x02UNIQ", b"zUNIQ")],
        lambda own: [each.replace(b"KEYS\x01", b"KEYS\x01" + b"k" * 64) for each in own],
        lambda own: [each.replace(b"KEYS\x01k", b"KEYS\x01\x02k") for each in own],
        lambda own: [each.replace(b"\x02KEYS", b"\x02MY_KEYS") for each in own],
        lambda own: [each + b"UNIQ_KEY\x01u\x02" for each in own[:-1]] + [own[-1] + b"UNIX_KEY\x01u\x02"],
    ],
)
def test_other_batches_are_read_message_by_message(change: Change) -> None:
    keys = batch(messages(key="key"))
    assert hashes("T", keys, by_columns=True) == plain("T", keys)
    keys = batch(change(messages(key="key")))
    assert hashes("T", keys, by_columns=False) == plain("T", keys)


@pytest.mark.parametrize(
    "change",
    [
        lambda own: [each.replace(b"\x02UNIQ", b"zUNIQ") for each in own],
        lambda own: [each.replace(b"0A000", "0Aä0".encode()) for each in own],
        lambda own: [each[:-2] + b"\xff\x02" for each in own],
    ],
)
def test_batches_without_common_unique_keys(change: Change) -> None:
    keys = batch(change(messages(key="key")))
    assert hashes("T", keys) == plain("T", keys)


@pytest.mark.parametrize(
    "shared", [b"UNIQ_KEY\x01K\x02", b"KEYS\x01a b\x02", b"UNIQ_KEY\x01\x02", b"KEYS\x01\x02"]
)
@pytest.mark.parametrize("key", ["", "key"])
def test_shared_properties_count_before_those_of_a_message(shared: bytes, key: str) -> None:
    keys = batch(messages(key=key), shared)
    assert hashes("T", keys) == plain("T", keys)


@given(
    own=st.lists(
        st.lists(
            st.sampled_from([b"UNIQ_KEY\x01" + _HEAD.encode() + b"00%02X\x02" % n for n in range(3)])
            | st.sampled_from([b"x\x01y\x02", b"UNIQ_KEY\x01\x02", b"NO_UNIQ_KEY\x01z\x02"])
            | st.sampled_from([b"KEYS\x01k%d\x02" % n for n in range(3)])
            | st.sampled_from([b"KEYS\x01a b\x02", b"KEYS\x01\x02"]),
            max_size=3,
        ).map(b"".join),
        min_size=1,
        max_size=4,
    ),
    unique_key=st.sampled_from([b"", b"K"]),
    seed=st.integers(0, 99),
)
def test_any_batch(own: list[bytes], unique_key: bytes, seed: int) -> None:
    chance = random.Random(seed)
    keys = batch([chance.choice(own) for _ in range(_COUNT)], key=unique_key)
    assert hashes("T", keys) == plain("T", keys)


@given(
    st.integers(1, 64).flatmap(
        lambda length: st.lists(
            st.binary(min_size=length, max_size=length).map(lambda raw: bytes(each & 127 for each in raw)),
            min_size=1,
            max_size=20,
        )
    ),
    st.sampled_from(["T", "主题"]),
)
def test_columns_have_the_hashes_of_their_keys(keys: list[bytes], topic: str) -> None:
    columns = [bytes(column) for column in zip(*keys, strict=True)]
    assert hashes_by_columns(topic, columns) == [KeyHasher().any_key(topic, key) for key in keys]
