"""The original queue of a message that has waited in a system topic."""

from __future__ import annotations

import pytest

from rmq_broker.delivery.original_queue import restore_original_queue
from tests.unit.broker.delivery.parts import SCHEDULE, inner


def test_topic_and_queue_id_are_restored_and_the_properties_kept() -> None:
    message = inner(SCHEDULE, queue_id=2, DELAY="3", REAL_TOPIC="T", REAL_QID="65535")
    properties = message.properties
    assert restore_original_queue(message) == ""
    assert (message.topic, message.queue_id, message.properties) == ("T", 65_535, properties)


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"REAL_QID": "0"}, "REAL_TOPIC='' is not the name of a topic"),
        ({"REAL_TOPIC": "../T", "REAL_QID": "0"}, "REAL_TOPIC='../T'"),
        ({"REAL_TOPIC": SCHEDULE, "REAL_QID": "0"}, f"REAL_TOPIC='{SCHEDULE}'"),
        ({"REAL_TOPIC": "rmq_sys_wheel_timer", "REAL_QID": "0"}, "REAL_TOPIC='rmq_sys_wheel_timer'"),
        ({"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"}, "half messages cannot be delayed"),
        ({"REAL_TOPIC": "T"}, "REAL_QID=b'' is not a queue id"),
        ({"REAL_TOPIC": "T", "REAL_QID": "-1"}, "REAL_QID=b'-1'"),
        ({"REAL_TOPIC": "T", "REAL_QID": "65536"}, "REAL_QID=b'65536'"),
        ({"REAL_TOPIC": "T", "REAL_QID": "9" * 5000}, "is not a queue id (0 to 65535)"),
    ],
)
def test_properties_without_a_valid_queue(properties: dict[str, str], problem: str) -> None:
    message = inner(SCHEDULE, queue_id=2)
    message.set_properties(properties)
    found = restore_original_queue(message)
    assert problem in found and len(found) < 200
    assert (message.topic, message.queue_id) == (SCHEDULE, 2)
