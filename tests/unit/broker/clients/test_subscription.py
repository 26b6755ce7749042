"""Filter expressions, compared with Apache's FilterAPI."""

from __future__ import annotations

from typing import Any

import pytest

from rmq_broker.clients.subscription import ExpressionError, Subscription
from rmq_remoting.bodies.heartbeat import SubscriptionData
from tests.support.golden import json_file
from tests.support.rows import each_row


@each_row("row", json_file("hashes.json")["tag_subscription"], ids=lambda row: repr(row["expression"]))
def test_tags_are_parsed_as_by_apache(row: dict[str, Any]) -> None:
    expected = row["result"]
    if isinstance(expected, str):
        with pytest.raises(ExpressionError):
            Subscription.parse("T", row["expression"])
        return
    subscription = Subscription.parse("T", row["expression"])
    assert subscription.sub_string == expected["subString"]
    assert subscription.tags_set == set(expected["tagsSet"])
    assert subscription.code_set == set(expected["codeSet"])
    assert subscription.expression_type == expected["expressionType"]
    assert subscription.takes_all == (expected["subString"] == "*")


def test_other_expressions_are_kept_unchanged() -> None:
    subscription = Subscription.parse("T", "a > 5", "SQL92", 7)
    assert (subscription.sub_string, subscription.expression_type, subscription.sub_version) == (
        "a > 5",
        "SQL92",
        7,
    )
    assert not subscription.takes_all
    with pytest.raises(ExpressionError, match="SQL92 cannot be empty"):
        Subscription.parse("T", "", "SQL92")


def test_round_trip() -> None:
    body = SubscriptionData(
        topic="T", sub_string="a||b", tags_set=["a", "b"], code_set=[97, 98], sub_version=3
    )
    assert Subscription.of(body).to_body() == body
    assert Subscription.parse("T", "a||b", "TAG", 3) == Subscription.of(body)


def test_the_number_of_tags_is_bounded() -> None:
    assert len(Subscription.parse("T", "||".join(map(str, range(1024)))).tags_set) == 1024
    with pytest.raises(ExpressionError, match="1025 tags, the limit is 1024: use SQL92, or subscribe to all"):
        Subscription.parse("T", "||".join(map(str, range(1025))))
