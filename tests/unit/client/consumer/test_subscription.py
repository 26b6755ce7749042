"""Subscriptions against the results of Apache's classes for the same expressions."""

from __future__ import annotations

from typing import Any

import pytest

from rmq_client import (
    InvalidArgumentError,
    MessageExt,
    PushConsumer,
    SimpleConsumer,
    Sql,
    UsageError,
    blocking,
)
from rmq_client.consumer.subscription import Subscription, Topics, subscriptions_to
from rmq_client.namespaces import NO_NAMESPACE, Namespace
from tests.support.golden import json_file
from tests.support.rows import each_row


@each_row("row", json_file("hashes.json")["tag_subscription"], ids=lambda row: repr(row["expression"]))
def test_tag_expressions_match_apaches_parser(row: dict[str, Any]) -> None:
    if isinstance(row["result"], str):
        with pytest.raises(UsageError, match="no tag"):
            Subscription("T", row["expression"], 1)
        return
    if "|" in (row["expression"] or "").replace("||", ""):
        # Apache's parser takes `TagA | TagB` for one tag, which no message has.
        with pytest.raises(InvalidArgumentError, match=r"contains a single \|"):
            Subscription("T", row["expression"], 1)
        return
    data = Subscription("T", row["expression"], 1700).data
    assert data.sub_string == row["result"]["subString"]
    assert sorted(data.tags_set) == sorted(row["result"]["tagsSet"])
    assert sorted(data.code_set) == sorted(row["result"]["codeSet"])
    assert (data.topic, data.sub_version, data.expression_type) == ("T", 1700, "TAG")


def test_tags_are_compared_after_their_hash_codes() -> None:
    # "Aa" and "BB" have the same hash code: a broker cannot tell them apart.
    messages = [MessageExt("T", properties={"TAGS": tag}) for tag in ("Aa", "BB", "Aa")] + [MessageExt("T")]
    assert Subscription("T", "Aa", 1).select(messages) == [messages[0], messages[2]]
    assert Subscription("T", "*", 1).select(messages) == messages


def test_the_retry_topic_of_a_group_with_a_long_name() -> None:
    assert Subscription("%RETRY%" + "g" * 255, None, 1).data.sub_string == "*"
    with pytest.raises(UsageError, match="127 are allowed"):
        Subscription("t" * 128, None, 1)


def test_sql_expressions_are_sent_unchanged() -> None:
    subscription = Subscription("T", Sql("a > 5"), 1)
    assert (subscription.data.expression_type, subscription.data.sub_string) == ("SQL92", "a > 5")
    assert subscription.data.tags_set == []
    assert subscription.is_by_properties
    with pytest.raises(UsageError, match="the SQL92 expression is empty"):
        Subscription("T", Sql(" "), 1)


def test_subscriptions_are_compared_by_their_filters() -> None:
    tags, others = Subscription("T", "a || b", 1), Subscription("T", "b||a", 2)
    sql = Subscription("T", Sql("a > 5"), 3)
    assert tags.wants_as(others)
    assert not tags.wants_as(Subscription("T", "*", 4))
    assert sql.wants_as(Subscription("T", Sql("a > 5"), 5))
    assert not sql.wants_as(Subscription("T", Sql("a > 6"), 6))
    assert not sql.wants_as(tags)


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        ("orders", {"orders": "*"}),
        (["orders", "prices"], {"orders": "*", "prices": "*"}),
        ({"prices": "eu || us", "orders": Sql("a > 5")}, {"prices": "eu || us", "orders": "a > 5"}),
        (iter(["orders"]), {"orders": "*"}),
        ((), {}),
    ],
)
def test_a_string_is_one_topic(topics: Topics, expected: dict[str, str]) -> None:
    subscriptions = subscriptions_to(topics, NO_NAMESPACE, 1700)
    assert {topic: one.data.sub_string for topic, one in subscriptions.items()} == expected
    assert {one.data.sub_version for one in subscriptions.values()} <= {1700}


def test_topics_get_the_namespace() -> None:
    assert list(subscriptions_to("orders", Namespace("shop"), 1)) == ["shop%orders"]


def test_an_empty_string_is_no_topic() -> None:
    with pytest.raises(UsageError, match="topics='': must not be empty"):
        subscriptions_to("", NO_NAMESPACE, 1)


def _listen(messages: list[MessageExt]) -> None:
    pass


@pytest.mark.parametrize("consumer_class", [PushConsumer, blocking.PushConsumer])
def test_a_push_consumer_takes_a_string_as_one_topic(
    consumer_class: type[PushConsumer] | type[blocking.PushConsumer],
) -> None:
    # No topic name contains a "/": the error shows the name that the consumer would use.
    with pytest.raises(UsageError, match="topic 'orders/paid'"):
        consumer_class("127.0.0.1:9876", group="g", topics="orders/paid", listener=_listen)


@pytest.mark.parametrize("consumer_class", [SimpleConsumer, blocking.SimpleConsumer])
def test_a_simple_consumer_takes_a_string_as_one_topic(
    consumer_class: type[SimpleConsumer] | type[blocking.SimpleConsumer],
) -> None:
    with pytest.raises(UsageError, match="topic 'orders/paid'"):
        consumer_class("127.0.0.1:9876", group="g", topics="orders/paid")
