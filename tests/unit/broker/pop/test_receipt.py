"""Receipts: as Apache writes them, and what is none."""

from __future__ import annotations

from typing import Any

import pytest

from rmq_broker.pop.answer_infos import AnswerInfos
from rmq_broker.pop.retry_topics import normal_topic, pop_retry_topic
from rmq_remoting.pop_receipt import Receipt, ReceiptError, kind_of, real_topic
from tests.support.golden import json_lines

_GOLDEN = [row for row in json_lines("wire/messages.jsonl") if row["kind"] == "pop extra info"]


@pytest.mark.parametrize("row", _GOLDEN, ids=lambda row: row["text"])
def test_apaches_receipts(row: dict[str, Any]) -> None:
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


def test_a_brokers_name_may_have_blanks() -> None:
    receipt = Receipt(1, 2, 3, 999, "0", "my broker", 4, 5)
    assert Receipt.parse(str(receipt)) == receipt
    assert receipt.is_order
    assert receipt.revive_time == 5


def test_what_follows_the_broker_is_no_number_if_it_is_too_long() -> None:
    digits = 5000 * "9"
    assert Receipt.parse(f"1 2 3 4 0 b {digits}").broker_name == f"b {digits}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "parts"),
        ("1 2 3 4 0", "5 parts"),
        ("x 2 3 4 0 b", "start offset"),
        ("1 -2 3 4 0 b", "pop time"),
        ("1 2 99999999999999999999 4 0 b", "invisible time"),
        ("1 2 3 4294967296 0 b", "revive queue"),
        ("1 2 3 4 7 b", "kind of topic"),
        ("1 2 " + 5000 * "9" + " 4 0 b", "invisible time"),
        ("1  3 4 0 b", "pop time"),
        ("\u0661 2 3 4 0 b", "start offset"),
    ],
)
def test_what_is_no_receipt(text: str, problem: str) -> None:
    with pytest.raises(ReceiptError, match=problem):
        Receipt.parse(text)


def test_the_lists_of_an_answer() -> None:
    infos = AnswerInfos()
    infos.add("T", 1, 10, (10, 12))
    infos.add("%RETRY%CG+T", 0, 3, (3,))
    assert infos.start_offset_info == "0 1 10;2 0 3"
    assert infos.msg_offset_info == "0 1 10,12;2 0 3"
    infos.add_counts("T", 1, (10, 12), {10: 2})
    assert infos.order_count_info == "0 qo1%10 2;0 1 0"
    counted = AnswerInfos()
    counted.add_counts("T", 1, (10, 12), {10: 2, 12: 1})
    assert counted.order_count_info == "0 qo1%10 2;0 qo1%12 1;0 1 1"


@pytest.mark.parametrize("version_2", [False, True])
def test_retry_topics(version_2: bool) -> None:
    retry = pop_retry_topic("a_b", "CG_1", version_2=version_2)
    assert retry == ("%RETRY%CG_1+a_b" if version_2 else "%RETRY%CG_1_a_b")
    assert normal_topic(retry, "CG_1") == "a_b"
    assert normal_topic("T", "CG_1") == "T"
    kind = kind_of(retry)
    assert kind == ("2" if version_2 else "1")
    assert real_topic("a_b", "CG_1", kind) == retry
    with pytest.raises(ValueError, match="kind"):
        real_topic("T", "CG", "3")
