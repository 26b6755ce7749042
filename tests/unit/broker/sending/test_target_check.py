"""Targets of sends: which are accepted, and which topics are created for them."""

from __future__ import annotations

import pytest

from rmq_broker.sending.target_check import TargetChecker
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError
from rmq_remoting.headers.send import SendTarget
from tests.support.broker_tables import BrokerTables
from tests.support.clock import START_MS


class _Broker(BrokerTables):
    def __init__(self, **keys: object) -> None:
        super().__init__(**keys)
        self.checker = TargetChecker(self.settings, self.topics, self.clock)

    def check(
        self, topic: str, queue_id: int = 0, *, default_topic: str = "TBW102", unit_mode: bool = False
    ) -> TopicConfig:
        target = SendTarget("PG", topic, default_topic, 4, queue_id, unit_mode=unit_mode)
        return self.checker.check(target, "10.0.0.1:1")

    def refused(self, topic: str, queue_id: int = 0, *, default_topic: str = "TBW102") -> CommandError:
        with pytest.raises(CommandError) as refused:
            self.check(topic, queue_id, default_topic=default_topic)
        return refused.value


def test_an_existing_topic_is_found_with_any_default_topic() -> None:
    broker = _Broker()
    broker.topics.update(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
    version = broker.checker.version

    assert broker.check("T", 1, default_topic="Nowhere").write_queue_nums == 2
    assert broker.checker.version == version


def test_an_unknown_topic_is_created_and_the_version_grows() -> None:
    broker = _Broker()
    version = broker.checker.version

    assert broker.check("T").write_queue_nums == 4

    assert broker.checker.version > version


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("", ResponseCode.INVALID_PARAMETER),
        ("a b", ResponseCode.INVALID_PARAMETER),
        ("SCHEDULE_TOPIC_XXXX", ResponseCode.NO_PERMISSION),
    ],
)
def test_names_are_checked_first(topic: str, code: ResponseCode) -> None:
    assert _Broker(autoCreateTopicEnable="false").refused(topic).code == code


def test_retry_topics_are_created_without_auto_create() -> None:
    broker = _Broker(autoCreateTopicEnable="false")

    assert broker.refused("T").code == ResponseCode.TOPIC_NOT_EXIST
    assert broker.check("%RETRY%CG").write_queue_nums == 1
    assert broker.check("%RETRY%Unit", unit_mode=True).topic_sys_flag == 2


def test_no_topic_is_created_above_the_limit() -> None:
    broker = _Broker(maxAutoCreateTopicNums="0")

    for topic in ("T", "%RETRY%CG"):
        assert "raise maxAutoCreateTopicNums" in str(broker.refused(topic).remark)


def test_queue_ids_up_to_the_larger_number_of_queues_are_accepted() -> None:
    broker = _Broker()
    broker.topics.update(TopicConfig(topic_name="T", read_queue_nums=8, write_queue_nums=2))

    broker.check("T", 7)
    assert broker.refused("T", 8).code == ResponseCode.INVALID_PARAMETER
    broker.check("T", -1)


@pytest.mark.parametrize("broker_permission", [0, 4])
def test_the_brokers_permission_counts_for_ordered_topics_only(broker_permission: int) -> None:
    broker = _Broker(brokerPermission=broker_permission)
    broker.topics.update(TopicConfig(topic_name="Plain"))
    broker.topics.update(TopicConfig(topic_name="Ordered", order=True))

    broker.check("Plain")
    assert broker.refused("Ordered").code == ResponseCode.NO_PERMISSION


def test_messages_are_refused_before_the_set_time() -> None:
    broker = _Broker(startAcceptSendRequestTimeStamp=START_MS + 1000)

    refused = broker.refused("T")
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "2023-11-14 22:13:21.000" in refused.remark
    assert "T" not in broker.topics

    broker.clock.pass_seconds(1)
    broker.check("T")
