"""Selection of queues."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass

import pytest

from rmq_client import Message, MessageQueue, by_key_hash, by_random
from rmq_client.producer.selection import RoundRobin

_QUEUES = [MessageQueue("T", "b", number) for number in range(5)]
_MESSAGE = Message("T", b"x")


@pytest.mark.parametrize(
    ("key", "java_hash_code"),
    [
        ("order-1", -1207111310),
        ("", 0),
        ("polygenelubricants", -(2**31)),
        (7, 7),
        (-7, -7),
        (2**31 - 1, 2**31 - 1),
        (2**31, -(2**31)),  # a Long in Java
        (2**40 + 5, 261),
        (True, 1231),
    ],
)
def test_key_hashes_select_the_queues_of_apaches_client(key: object, java_hash_code: int) -> None:
    assert by_key_hash(_QUEUES, _MESSAGE, key).queue_id == abs(java_hash_code) % 5


def test_other_keys_are_hashed_as_text() -> None:
    assert by_key_hash(_QUEUES, _MESSAGE, 1.5) == by_key_hash(_QUEUES, _MESSAGE, "1.5")


def test_by_random_returns_one_of_the_queues() -> None:
    assert {by_random(_QUEUES, _MESSAGE, None) for _ in range(500)} == set(_QUEUES)


@dataclass(frozen=True)
class _Item:
    broker_name: str
    number: int


def test_round_robin_takes_items_in_turn() -> None:
    items = [_Item("a", number) for number in range(3)]
    round_robin = RoundRobin(items, start=1)
    assert [round_robin.take().number for _ in range(5)] == [1, 2, 0, 1, 2]
    begins = {RoundRobin(items).take().number for _ in range(200)}
    assert begins == {0, 1, 2}, "many producers do not march in step"


def test_round_robin_avoids_brokers_if_possible() -> None:
    round_robin = RoundRobin([_Item("a", 0), _Item("a", 1), _Item("b", 2)], start=0)
    assert round_robin.broker_names == ("a", "b")
    assert round_robin.has_other_brokers
    taken = round_robin.take_off({"a"}), round_robin.take_off({"b"})
    assert [item.number for item in taken if item is not None] == [2, 0]
    assert round_robin.take_off({"a", "b"}) is None
    assert not RoundRobin([_Item("a", 0)]).has_other_brokers


def test_round_robin_is_even_across_threads() -> None:
    round_robin = RoundRobin([_Item("a", number) for number in range(7)], start=3)
    taken: list[int] = []
    threads = [
        threading.Thread(target=lambda: taken.extend(round_robin.take().number for _ in range(700)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(Counter(taken).values()) == {400}


def test_skipped_items_keep_the_rotation_even() -> None:
    round_robin = RoundRobin([_Item(name, number) for name in "abc" for number in range(4)], start=0)
    taken = Counter(item for _ in range(800) if (item := round_robin.take_off({"b"})))
    assert set(taken.values()) == {100}
    assert len(taken) == 8
