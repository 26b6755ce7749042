"""The queue value: order, equality and Java's hash."""

from __future__ import annotations

import hashlib
import random
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from rmq_remoting.message_queue import MessageQueue
from tests.support.golden import json_file

HASHES = json_file("hashes.json")


def test_golden_order() -> None:
    expected = []
    for text in HASHES["message_queue_sort_order"]:
        broker_name, _, queue_id = text.partition(":")
        expected.append(MessageQueue("TopicTest", broker_name, int(queue_id)))
    shuffled = random.Random(7).sample(expected, len(expected))
    assert sorted(shuffled) == expected
    assert sorted(shuffled, reverse=True) == expected[::-1]


def test_topic_goes_before_broker_name() -> None:
    assert MessageQueue("a", "z", 9) < MessageQueue("b", "a", 0)
    assert MessageQueue("a", "b", 9) >= MessageQueue("a", "a", 10)
    assert MessageQueue("a", "a", 1) <= MessageQueue("a", "a", 1)
    assert MessageQueue("a", "a", 10) > MessageQueue("a", "a", 9)


def test_order_is_that_of_utf16() -> None:
    # U+1F600 is D83D DE00 in UTF-16, before U+FF21; by code point it would come after.
    assert MessageQueue("t", "\U0001f600", 0) < MessageQueue("t", "\uff21", 0)


@pytest.mark.parametrize("row", HASHES["message_queue_hash"], ids=lambda row: row["brokerName"])
def test_golden_hash_and_text(row: dict[str, Any]) -> None:
    queue = MessageQueue(row["topic"], row["brokerName"], row["queueId"])
    assert queue.java_hash_code() == row["hashCode"]
    assert queue.java_text() == row["toString"]
    assert str(queue) == f"{row['topic']}/{row['brokerName']}/{row['queueId']}"


def test_the_text_is_the_input_of_consistent_hashing() -> None:
    row = HASHES["consistent_hash_md5"][1]
    text = MessageQueue("TopicTest", "broker-a", 0).java_text()
    assert text == row["string"]
    assert int.from_bytes(hashlib.md5(text.encode()).digest()[:4], "big") == row["hash"]


def test_is_a_value() -> None:
    queue = MessageQueue("t", "b", 1)
    assert {queue: 1}[MessageQueue("t", "b", 1)] == 1
    assert queue != MessageQueue("t", "b", 2)
    with pytest.raises(FrozenInstanceError):
        queue.queue_id = 2  # type: ignore[misc]
