"""The metrics of delayed delivery and redelivery."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_broker.monitoring.delivery_metrics import DeliveryCollector
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.daemon.exposition import Family
from tests.unit.broker.delivery.parts import DeliveryBroker, inner


@pytest.fixture
async def delivery(tmp_path: Path) -> AsyncIterator[DeliveryBroker]:
    made = DeliveryBroker(tmp_path)
    yield made
    made.store.close()


def _scrape(delivery: DeliveryBroker) -> dict[str, Family]:
    collector = DeliveryCollector(delivery.delayed, delivery.statistics, delivery.topics.system_topics)
    found = {family.name: family for family in collector.collect()}
    assert all((family.kind == "counter") == name.endswith("_total") for name, family in found.items())
    return found


async def test_delayed_messages(delivery: DeliveryBroker) -> None:
    for level in (1, 1, 2):
        delivery.writer.put(inner(), level)
    delivery.clock.pass_seconds(0.5)
    await delivery.delayed.deliver_due()
    delivery.clock.pass_seconds(1)
    assert _scrape(delivery)["rmq_delayed_messages_overdue_seconds"].series == [((), 0.5)]

    await delivery.delayed.deliver_due()

    found = _scrape(delivery)
    assert found["rmq_delayed_messages"].series == [(("1",), 0), (("2",), 1)]
    assert found["rmq_delayed_messages"].label_names == ("level",)
    assert found["rmq_delayed_messages_delivered_total"].series == [((), 2)]
    assert found["rmq_delayed_messages_lost_total"].series == [((), 0)]
    assert found["rmq_delayed_messages_overdue_seconds"].series == [((), 0)]
    ((_, lateness),) = found["rmq_delayed_messages_lateness_milliseconds"].series
    assert getattr(lateness, "total", None) == 1000


async def test_sent_back_messages_and_dead_letters(delivery: DeliveryBroker) -> None:
    delivery.topics.update(TopicConfig(topic_name="T"))
    delivery.retries.count("g", "T", is_dead_letter=False)
    delivery.retries.count("g", "T", is_dead_letter=True)
    delivery.retries.count("CID_RMQ_SYS_x", "T", is_dead_letter=True)

    found = _scrape(delivery)

    assert found["rmq_messages_sent_back_total"].label_names == ("consumer_group", "topic", "is_system")
    assert dict(found["rmq_messages_sent_back_total"].series) == {
        ("g", "T", "false"): 2,
        ("CID_RMQ_SYS_x", "T", "true"): 1,
    }
    assert dict(found["rocketmq_send_to_dlq_messages_total"].series) == {
        ("g", "T", "false"): 1,
        ("CID_RMQ_SYS_x", "T", "true"): 1,
    }
