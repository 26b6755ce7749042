"""Receipts as Apache's client, broker and proxy make them, and texts that are no receipts."""

from __future__ import annotations

from typing import Any

import pytest

from rmq_remoting.pop_receipt import Receipt, ReceiptError, kind_of, real_topic
from tests.support.golden import json_lines
from tests.support.rows import each_row

_GOLDEN = [row for row in json_lines("wire/messages.jsonl") if row["kind"] == "pop extra info"]
# Made by Apache RocketMQ 5.3.3, ReceiptHandle.encode(), which the proxy's clients acknowledge with.
_OF_THE_PROXY = [
    (
        "100 1700000000000 60000 3 0 broker-a 2 101 7340032",
        Receipt(100, 1700000000000, 60000, 3, "0", "broker-a", 2, 101),
    ),
    ("0 1700000000000 30000 0 1 vm 7 7 0", Receipt(0, 1700000000000, 30000, 0, "1", "vm", 7, 7)),
    (
        "0 1700000000000 30000 999 2 broker-b 5 7 9223372036854775807",
        Receipt(0, 1700000000000, 30000, 999, "2", "broker-b", 5, 7),
    ),
    (
        "5 1700000000000 30000 1 0 broker-a 0 6 -1",
        Receipt(5, 1700000000000, 30000, 1, "0", "broker-a", 0, 6),
    ),
]


@pytest.mark.parametrize("row", _GOLDEN, ids=lambda row: row["text"])
def test_receipts_of_apaches_broker(row: dict[str, Any]) -> None:
    made = row["from"]
    receipt = Receipt.parse(row["text"])
    assert receipt == Receipt(
        made["ckQueueOffset"],
        made["popTime"],
        made["invisibleTime"],
        made["reviveQid"],
        kind_of(made["topic"]),
        made["brokerName"],
        made.get("queueId"),
        made.get("queueOffset"),
    )
    assert str(receipt) == row["text"]


@pytest.mark.parametrize(("text", "receipt"), _OF_THE_PROXY)
def test_receipts_of_apaches_proxy_without_the_commit_log_offset(text: str, receipt: Receipt) -> None:
    assert Receipt.parse(text) == receipt
    assert str(receipt) == text.rpartition(" ")[0]


@pytest.mark.parametrize("rest", [" 8", " x", " ", " 8 9 x", " 99999999999999999999"])
def test_the_ninth_part_and_further_ones_are_ignored(rest: str) -> None:
    assert Receipt.parse("1 2 3 4 0 b 6 7" + rest) == Receipt(1, 2, 3, 4, "0", "b", 6, 7)


def test_queue_and_queue_offset_may_be_absent() -> None:
    assert Receipt.parse("1 2 3 4 0 b") == Receipt(1, 2, 3, 4, "0", "b")
    assert Receipt.parse("1 2 3 4 0 b 6") == Receipt(1, 2, 3, 4, "0", "b", 6)


def test_the_largest_numbers() -> None:
    most, most_queues = 2**63 - 1, 2**31 - 1
    receipt = Receipt(most, most, most, most_queues, "0", "b", most_queues, most)
    assert Receipt.parse(str(receipt)) == receipt


def test_order_and_revive_time() -> None:
    receipt = Receipt(1, 2, 3, 999, "0", "broker", 4, 5)
    assert receipt.is_order
    assert receipt.revive_time == 5
    assert not Receipt(1, 2, 3, 7, "0", "broker", 4, 5).is_order


@each_row(
    ("text", "problem"),
    [
        ("", "parts"),
        ("1 2 3 4 0", "5 parts"),
        ("x 2 3 4 0 b", "start offset"),
        ("1 -2 3 4 0 b", "pop time"),
        ("1 2 99999999999999999999 4 0 b", "invisible time"),
        ("1 2 3 4294967296 0 b", "revive queue"),
        ("1 2 3 4 7 b", "topic kind"),
        ("1 2 " + 5000 * "9" + " 4 0 b", "invisible time"),
        ("1  3 4 0 b", "pop time"),
        ("\u0661 2 3 4 0 b", "start offset"),
        ("1 2 3 4 0 b c 6 7", "its queue,"),
        ("1 2 3 4 0 b 2147483648 7", "its queue,"),
        ("1 2 3 4 0 b -1 7", "its queue,"),
        ("1 2 3 4 0 b  7", "its queue,"),
        ("1 2 3 4 0 b 6 x", "queue offset"),
        ("1 2 3 4 0 b 6 9223372036854775808", "queue offset"),
        ("1 2 3 4 0 b 6 " + 5000 * "9", "queue offset"),
    ],
)
def test_texts_that_are_no_receipts(text: str, problem: str) -> None:
    with pytest.raises(ReceiptError, match=problem):
        Receipt.parse(text)


def test_an_unknown_topic_kind() -> None:
    with pytest.raises(ValueError, match="unknown topic kind '3'"):
        real_topic("T", "CG", "3")
