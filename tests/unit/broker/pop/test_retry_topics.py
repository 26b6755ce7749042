"""Names of POP retry topics."""

from __future__ import annotations

import pytest

from rmq_broker.pop.retry_topics import normal_topic, pop_retry_topic
from rmq_remoting.pop_receipt import kind_of, real_topic


@pytest.mark.parametrize(("version_2", "kind"), [(False, "1"), (True, "2")])
def test_a_retry_topic_leads_back_to_its_topic(version_2: bool, kind: str) -> None:
    retry = pop_retry_topic("a_b", "CG_1", version_2=version_2)
    assert retry == ("%RETRY%CG_1+a_b" if version_2 else "%RETRY%CG_1_a_b")
    assert normal_topic(retry, "CG_1") == "a_b"
    assert kind_of(retry) == kind
    assert real_topic("a_b", "CG_1", kind) == retry


def test_another_topic_is_its_own_normal_topic() -> None:
    assert normal_topic("T", "CG_1") == "T"
