"""Changes of attributes (Apache RocketMQ 5.3.3, AttributeUtil)."""

from __future__ import annotations

import pytest

from rmq_broker.topics.attributes import (
    GROUP_ATTRIBUTES,
    TOPIC_ATTRIBUTES,
    AttributeProblem,
    altered_attributes,
    parse_attribute_changes,
)


def test_the_text_form_is_parsed() -> None:
    assert parse_attribute_changes(None) == {}
    assert parse_attribute_changes("") == {}
    text = "+message.type=FIFO,-queue.type,+cleanup.policy=DELETE"
    assert parse_attribute_changes(text) == {
        "+message.type": "FIFO",
        "-queue.type": "",
        "+cleanup.policy": "DELETE",
    }


@pytest.mark.parametrize("text", ["message.type=FIFO", "-message.type=FIFO", "message.type", "-a,-a"])
def test_invalid_texts_are_refused(text: str) -> None:
    with pytest.raises(AttributeProblem):
        parse_attribute_changes(text)


def test_attributes_are_set_changed_and_removed() -> None:
    new = altered_attributes(None, {"+message.type": "FIFO", "+queue.type": "BatchCQ"}, TOPIC_ATTRIBUTES)
    assert new == {"message.type": "FIFO", "queue.type": "BatchCQ"}
    changed = altered_attributes(new, {"+message.type": "NORMAL"}, TOPIC_ATTRIBUTES)
    assert changed == {"message.type": "NORMAL", "queue.type": "BatchCQ"}
    assert altered_attributes(changed, {"-message.type": ""}, TOPIC_ATTRIBUTES) == {"queue.type": "BatchCQ"}
    assert altered_attributes(changed, {}, TOPIC_ATTRIBUTES) == changed


@pytest.mark.parametrize(
    ("current", "changes", "problem"),
    [
        (None, {"+colour": "red"}, "not known"),
        (None, {"+reserve.time": "5"}, "tiered store"),
        (None, {"+message.type": "COLD"}, "must be one of"),
        (None, {"+cleanup.policy": "COMPACTION"}, "COMPACTION: compaction is not supported.*use DELETE"),
        (None, {"message.type": "FIFO"}, r"with \+ or -"),
        (None, {"-message.type": ""}, "not set"),
        (None, {"+": ""}, r"with \+ or -"),
        ({}, {"+queue.type": "SimpleCQ"}, "when the topic is created"),
        ({"message.type": "FIFO"}, {"+message.type": "FIFO", "-message.type": ""}, "changed twice"),
    ],
)
def test_invalid_changes_are_refused(
    current: dict[str, str] | None, changes: dict[str, str], problem: str
) -> None:
    with pytest.raises(AttributeProblem, match=problem):
        altered_attributes(current, changes, TOPIC_ATTRIBUTES)


def test_groups_have_no_attributes() -> None:
    with pytest.raises(AttributeProblem, match="known are none"):
        altered_attributes(None, {"+message.type": "FIFO"}, GROUP_ATTRIBUTES)
