"""Hashes of a batch's keys by columns: those of the same messages one by one, or none."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_broker.store.index.batch_keys import BatchKeys, hashes_by_columns, hashes_of_message
from rmq_broker.store.index.keys import KeyHasher

_HEADS = ("0A000003162E18B4AAC20000ABCD", "FE80000000000000" * 3 + "ABCD")
_COUNT = 40


def batch(own: list[bytes], shared: bytes = b"MSG_REGION\x01r\x02", *, key: bytes = b"") -> BatchKeys:
    return BatchKeys(own, shared, key, has_keys=b"KEYS\x01" in b"".join(own) + shared)


def messages(
    head: str = _HEADS[0], *, before: str = "x\x01y\x02", behind: str = "", first: int = 65_530
) -> list[bytes]:
    """Return the properties of messages with consecutive counters, which wrap."""
    counters = [f"{(first + number) & 0xFFFF:04X}" for number in range(_COUNT)]
    return [f"{before}UNIQ_KEY\x01{head}{counter}\x02{behind}".encode() for counter in counters]


def one_by_one(topic: str, keys: BatchKeys) -> list[list[int]]:
    hasher = KeyHasher()
    return [hashes_of_message(hasher, topic, keys, number) for number in range(len(keys.own_properties))]


def by_columns(topic: str, keys: BatchKeys) -> list[list[int]] | None:
    found = hashes_by_columns(KeyHasher(), topic, keys)
    return None if found is None else [[value] for value in found]


@pytest.mark.parametrize("head", _HEADS)
@pytest.mark.parametrize(("before", "behind"), [("", ""), ("x\x01y\x02", ""), ("", "a\x01b\x02")])
def test_a_batch_of_one_layout(head: str, before: str, behind: str) -> None:
    signs = set()
    for number in range(40):
        topic = f"Topic{number}"
        keys = batch(messages(head, before=before, behind=behind))
        found = by_columns(topic, keys)
        assert found is not None and found == one_by_one(topic, keys)
        signs.add(found[0] < found[1])
    assert signs == {True, False}  # hashes above and below zero before their absolute value is taken


@pytest.mark.parametrize(
    "change",
    [
        lambda own: own[:15],  # few messages
        lambda own: [*own[:-1], own[-1] + b"a\x01b\x02"],
        lambda own: [*own[:-1], own[-1].replace(b"UNIQ_KEY\x01", b"UNIQ_KEX\x01")],
        lambda own: [*own[:-1], own[-1].replace(b"0A0", b"0B0")],
        lambda own: [*own[:-1], own[-1][:-2] + b"\x02\x02"],
        lambda own: [*own[:-1], own[-1][:-1] + b"z"],
        lambda own: [*own[:-1], own[-1].replace(b"\x02UNIQ", b"zUNIQ")],
        lambda own: [each.replace(b"\x02UNIQ", b"zUNIQ") for each in own],
        lambda own: [each.replace(b"0A000", "0Aä0".encode()) for each in own],
        lambda own: [each[:-2] + b"\xff\x02" for each in own],
        lambda own: [each.replace(b"0A0", b"0A00") for each in own],
        lambda own: [each.replace(b"UNIQ_KEY", b"OTHERKEY") for each in own],
        lambda own: [each + b"KEYS\x01k\x02" for each in own],
        lambda own: [each + b"UNIQ_KEY\x01" + each[13:46] for each in own[:-1]] + [own[-1] + own[-1][:46]],
        lambda own: [b""] * len(own),
    ],
)
def test_other_batches_are_left_to_the_plain_way(change: object) -> None:
    assert callable(change)
    assert by_columns("T", batch(messages())) is not None
    assert by_columns("T", batch(change(messages()))) is None


def test_a_unique_key_of_the_batch_comes_first() -> None:
    of_batch = batch(messages(), key=b"K")
    assert by_columns("T", of_batch) is None
    assert one_by_one("T", of_batch) == [KeyHasher().all_keys("T", b"K", b"")] * _COUNT
    in_shared = batch(messages(), b"UNIQ_KEY\x01K\x02")
    assert by_columns("T", in_shared) is None
    assert one_by_one("T", in_shared) == one_by_one("T", of_batch)


def test_keys_of_a_message() -> None:
    keys = batch([b"KEYS\x01a b\x02UNIQ_KEY\x01u\x02", b""])
    assert one_by_one("T", keys) == [KeyHasher().all_keys("T", b"u", b"a b"), []]


@given(
    own=st.lists(
        st.lists(
            st.sampled_from([b"UNIQ_KEY\x01" + _HEADS[0].encode() + b"00%02X\x02" % n for n in range(3)])
            | st.sampled_from([b"x\x01y\x02", b"UNIQ_KEY\x01\x02", b"NO_UNIQ_KEY\x01z\x02"]),
            max_size=3,
        ).map(b"".join),
        min_size=1,
        max_size=4,
    ),
    seed=st.integers(0, 99),
)
def test_hashes_by_columns_are_those_of_the_messages(own: list[bytes], seed: int) -> None:
    chance = random.Random(seed)
    keys = batch([chance.choice(own) for _ in range(_COUNT)])
    assert by_columns("T", keys) in (None, one_by_one("T", keys))


def test_hashes_near_the_ends_of_the_integers() -> None:
    """A batch whose hashes change their sign is left to the plain way."""
    results = set()
    for number in range(20_000):
        keys = batch(messages()[:16])
        topic = f"{number}"
        found = by_columns(topic, keys)
        results.add(found is None)
        if found is None:
            break
    assert results == {True, False}
