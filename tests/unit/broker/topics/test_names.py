"""Names of topics against Apache's."""

from __future__ import annotations

import pytest

from rmq_broker.topics import names
from rmq_remoting.pop_receipt import pop_retry_topics
from tests.support.golden import json_file


@pytest.mark.parametrize(
    "name", ["TopicTest", "%RETRY%CG", "a", "A-b_c|d%1", "x" * 127, "0", "rmq_sys_wheel_timer"]
)
def test_good_names(name: str) -> None:
    assert names.topic_name_problem(name) is None


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "blank"),
        ("  ", "blank"),
        ("a b", "illegal"),
        ("a.b", "illegal"),
        ("a@b", "illegal"),
        ("a\n", "illegal"),
        ("tópico", "illegal"),
        ("主题", "illegal"),
        ("x" * 128, "128 characters, the limit is 127"),
    ],
)
def test_error_for_an_invalid_name(name: str, problem: str) -> None:
    told = names.topic_name_problem(name)
    assert told is not None and problem in told


def test_system_names_are_apaches() -> None:
    golden = json_file("hashes.json")["system_names"]
    assert names.retry_topic("CG") == golden["retry_topic"]
    assert names.dead_letter_topic("CG") == golden["dlq_topic"]
    assert pop_retry_topics("TopicPop", "CG") == (golden["pop_retry_v2"], golden["pop_retry_v1"])
    assert names.reply_topic("DefaultCluster") == golden["reply_topic"]
