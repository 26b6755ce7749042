"""The broker's collectors: figures out of counters. (The page as a whole: `test_broker_metrics.py`.)"""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_broker.clients.client import ConnectedClient
from rmq_broker.clients.consumers import ConsumerTable, Heartbeat
from rmq_broker.clients.producers import ProducerTable
from rmq_broker.clients.queue_locks import QueueLocks
from rmq_broker.groups.table import SubscriptionGroupTable
from rmq_broker.monitoring.broker_metrics import BrokerCollector, Observed, version_text
from rmq_broker.offsets.table import ConsumerOffsetTable, key_of
from rmq_broker.pop.check_point import CheckPoint, CheckPointKey
from rmq_broker.pop.in_flight import InFlight
from rmq_broker.pulling.held_pulls import HeldPulls
from rmq_broker.statistics.broker_statistics import BrokerStatistics
from rmq_broker.store.api import MessageStore
from rmq_broker.topics.table import TopicTable
from rmq_remoting.bodies.group import SubscriptionGroupConfig
from rmq_remoting.bodies.heartbeat import ConsumerData, SubscriptionData
from rmq_remoting.codes import LanguageCode
from rmq_remoting.daemon.exposition import PAUSE, Family
from rmq_remoting.message_queue import MessageQueue
from tests.support.broker_settings import broker_settings
from tests.support.clock import START_MS, Clock
from tests.support.peers import Peer


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (479, "v5_3_3"),
        (478, "v5_3_3_snapshot"),
        (212, "v4_0_0_snapshot"),
        (213, "v4_0_0"),
        (411, "v4_9_9"),
        (412, "v5_0_0_snapshot"),
        (611, "v5_9_9"),
        (612, "higher_version"),
        (-1, "-1"),
        (211, "211"),
    ],
)
def test_versions_have_apaches_names(version: int, text: str) -> None:
    assert version_text(version) == text


def _in_flight(messages: int) -> InFlight:
    """Popped and unacknowledged messages of the topic P and the group CG."""
    in_flight = InFlight(lambda queue: None, Clock().clocks)
    key = CheckPointKey("P", "CG", 0, 0, 1000, "broker-a")
    in_flight.add(CheckPoint(key, 60_000, tuple(range(messages)), 0))
    return in_flight


@pytest.fixture
def broker(tmp_path: Path) -> Observed:
    settings = broker_settings(storePathRootDir=tmp_path)
    topics = TopicTable(settings, "DefaultCluster", "broker-a", Clock())
    return Observed(
        settings=settings,
        topics=topics,
        groups=SubscriptionGroupTable(settings, Clock()),
        offsets=ConsumerOffsetTable(Clock()),
        consumers=ConsumerTable(),
        queue_locks=QueueLocks(lambda: 0.0),
        producers=ProducerTable(),
        statistics=BrokerStatistics(topics.system_topics, Clock()),
        store=MessageStore(settings, settings, settings),
        held_pulls=HeldPulls(lambda: 0.0),
        in_flight=_in_flight(3),
        tiers=[],
    )


def _families(broker: Observed) -> dict[str, Family]:
    return {family.name: family for family in BrokerCollector(broker).collect()}


def test_a_scrape_pauses_among_many_queues(broker: Observed) -> None:
    broker.groups.update(SubscriptionGroupConfig(group_name="CG"))
    for number in range(10_000):
        broker.offsets.commit("CG", "T", number, 0)
    collected = list(BrokerCollector(broker).collect())
    assert collected.count(PAUSE) >= 10_000 // 256


def test_the_lag_is_the_uncommitted_messages(broker: Observed) -> None:
    for group in ("CG", "CID_RMQ_SYS_X"):
        broker.groups.update(SubscriptionGroupConfig(group_name=group))
    queue = broker.store.queues.get_or_create("T", 1)
    queue.max_offset = 10
    broker.offsets.commit("CG", "T", 1, 4)
    broker.offsets.commit("CG", "T", 0, 7)  # of a queue that is gone
    broker.offsets.commit("CG", "%RETRY%CG", 0, 0)
    broker.offsets.commit("CID_RMQ_SYS_X", "T", 1, 10)
    broker.offsets.commit("Deleted", "T", 1, 1)

    families = _families(broker)

    assert dict(families["rocketmq_consumer_lag_messages"].series) == {
        ("T", "CG", "false", "false"): 6,
        ("%RETRY%CG", "CG", "true", "false"): 0,
        ("T", "CID_RMQ_SYS_X", "false", "true"): 0,
    }


def test_messages_in_flight_are_told_apart(broker: Observed) -> None:
    broker.groups.update(SubscriptionGroupConfig(group_name="CG"))
    for topic in ("T", "P"):
        broker.store.queues.get_or_create(topic, 0).max_offset = 10
    broker.offsets.commit("CG", "T", 0, 4)
    broker.offsets.note_pulled(key_of("CG", "T"), 0, 9)
    broker.offsets.commit("CG", "P", 0, 8)  # popped up to there

    families = _families(broker)

    def values(name: str) -> dict[str, object]:
        return {labels[0]: value for labels, value in families[f"rocketmq_consumer_{name}_messages"].series}

    assert values("lag") == {"T": 6, "P": 5}
    assert values("inflight") == {"T": 5, "P": 3}
    assert values("ready") == {"T": 1, "P": 2}


def test_counters_of_topics_and_groups_become_series(broker: Observed) -> None:
    topic = broker.statistics.of_topic("T")
    topic.put_messages, topic.put_bytes = 3, 300
    topic.put_sizes.observe(100)
    broker.statistics.of_topic("TBW102").put_messages = 1
    group = broker.statistics.of_group("CG", "T")
    group.got_messages, group.got_bytes, group.filtered_messages = 2, 200, 7

    families = _families(broker)

    assert dict(families["rocketmq_messages_in_total"].series) == {
        ("T", "normal", "false"): 3,
        ("TBW102", "normal", "true"): 1,
    }
    assert dict(families["rocketmq_throughput_in_total"].series)["T", "normal", "false"] == 300
    assert dict(families["rocketmq_messages_out_total"].series) == {("T", "CG", "false", "false"): 2}
    assert dict(families["rocketmq_throughput_out_total"].series) == {("T", "CG", "false", "false"): 200}
    assert dict(families["rmq_messages_filtered_total"].series) == {("T", "CG", "false", "false"): 7}


def test_delayed_messages_have_a_message_type_of_their_own(broker: Observed) -> None:
    for name, messages, delayed in (("SCHEDULE_TOPIC_XXXX", 2, 2), ("T", 5, 2)):
        topic = broker.statistics.of_topic(name)
        topic.put_messages, topic.put_bytes = messages, messages * 100
        topic.delayed_messages, topic.delayed_bytes = delayed, delayed * 100

    families = _families(broker)

    expected = {
        ("SCHEDULE_TOPIC_XXXX", "delay", "true"): 2,
        ("T", "normal", "false"): 3,
        ("T", "delay", "false"): 2,
    }
    assert dict(families["rocketmq_messages_in_total"].series) == expected
    assert dict(families["rocketmq_throughput_in_total"].series) == {
        labels: count * 100 for labels, count in expected.items()
    }


async def test_locked_queues_and_groups_with_different_subscriptions(broker: Observed) -> None:
    broker.queue_locks.lock("CG", [MessageQueue("T", "broker-a", queue_id) for queue_id in range(3)], "c1")
    for group, client_id, topic in (("CG", "c1", "T"), ("CG", "c2", "U"), ("Agrees", "c3", "T")):
        data = ConsumerData(group_name=group, subscription_data_set=[SubscriptionData(topic=topic)])
        client = ConnectedClient(Peer().connection, client_id, LanguageCode.JAVA, 479, START_MS)
        broker.consumers.register(Heartbeat(data), client)
    families = _families(broker)
    assert list(families["rmq_queue_locks"].series) == [(("CG",), 3)]
    assert list(families["rmq_group_subscription_variants"].series) == [(("CG",), 2)]
