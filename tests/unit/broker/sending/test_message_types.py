"""Types of topics and messages."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rmq_broker.sending.message_types import check_type, check_types, message_type, required_type
from rmq_broker.store.api import BatchMessages
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError
from rmq_remoting.message_properties import encode_properties


@pytest.mark.parametrize(
    ("properties", "is_a"),
    [
        ({}, "NORMAL"),
        ({"TAGS": "a", "other": "DELAY"}, "NORMAL"),
        ({"TRAN_MSG": "true", "DELAY": "3"}, "TRANSACTION"),
        ({"TRAN_MSG": "false"}, "NORMAL"),
        ({"DELAY": "1", "__SHARDINGKEY": "k"}, "DELAY"),
        ({"TIMER_DELIVER_MS": "1"}, "DELAY"),
        ({"TIMER_DELAY_SEC": "1"}, "DELAY"),
        ({"TIMER_DELAY_MS": "1"}, "DELAY"),
        ({"__SHARDINGKEY": "k"}, "FIFO"),
    ],
)
def test_properties_decide_about_a_messages_type(properties: Mapping[str, str], is_a: str) -> None:
    assert message_type(encode_properties(properties)) == is_a


@pytest.mark.parametrize(
    ("name", "attributes", "required"),
    [
        ("T", {}, "NORMAL"),
        ("T", {"message.type": "FIFO"}, "FIFO"),
        ("T", {"message.type": "MIXED"}, None),
        ("T", {"message.type": "UNSPECIFIED"}, None),
        ("%RETRY%g", {}, None),
        ("%DLQ%g", {}, None),
    ],
)
def test_an_attribute_decides_about_a_topics_type(
    name: str, attributes: dict[str, str], required: str | None
) -> None:
    assert required_type(TopicConfig(topic_name=name, attributes=attributes), is_system=False) == required


def test_system_topics_accept_any_type() -> None:
    assert required_type(TopicConfig(topic_name="TBW102"), is_system=True) is None


def test_a_message_of_another_type_is_refused() -> None:
    check_type("DELAY", "T", b"DELAY\x011\x02")
    with pytest.raises(
        CommandError, match="T accepts messages of type FIFO, and this one is NORMAL"
    ) as refused:
        check_type("FIFO", "T", b"")
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL


def test_every_message_of_a_batch_is_checked() -> None:
    sharded = b"__SHARDINGKEY\x01k\x02"
    check_types("FIFO", "T", BatchMessages([0, 0], [b"a", b"b"], [sharded, sharded], b"", [0, 0]))
    check_types("FIFO", "T", BatchMessages([0, 0], [b"a", b"b"], [b"", b""], sharded, [0, 0]))
    with pytest.raises(CommandError):
        check_types("FIFO", "T", BatchMessages([0, 0], [b"a", b"b"], [sharded, b""], b"", [0, 0]))
