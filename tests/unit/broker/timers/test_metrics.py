"""Metrics and runtime info of timed messages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_broker.timers.metrics import TimerCollector
from rmq_remoting.bodies.timer import TimerMetricsSerializeWrapper
from rmq_remoting.daemon.exposition import Family
from rmq_remoting.daemon.histogram import Histogram
from tests.support.clock import START_MS
from tests.unit.broker.delivery.parts import DeliveryBroker
from tests.unit.broker.timers.parts import opened, with_properties

_LABELS = ("local", "disk")


@pytest.fixture
async def delivery(tmp_path: Path) -> AsyncIterator[DeliveryBroker]:
    made = opened(tmp_path)
    yield made
    made.store.close()


def _put(delivery: DeliveryBroker, topic: str, after_ms: int) -> None:
    delivery.writer.put(with_properties({"TIMER_DELIVER_MS": str(START_MS + after_ms)}, topic))


def _scrape(delivery: DeliveryBroker) -> dict[str, Family]:
    found = {family.name: family for family in TimerCollector(delivery.timers).collect()}
    assert all((family.kind == "counter") == name.endswith("_total") for name, family in found.items())
    return found


async def test_waiting_and_delivered_messages(delivery: DeliveryBroker) -> None:
    for topic, after_ms in (("T", 500), ("T", 30_500), ("U", 100_000_000)):
        _put(delivery, topic, after_ms)
    assert _scrape(delivery)["rocketmq_timer_enqueue_lag"].series == [(_LABELS, 3)]
    await delivery.pass_seconds(1)
    await delivery.timers.count_by_time()
    await delivery.timers.sample_rates()
    found = _scrape(delivery)
    assert dict(found["rocketmq_timing_messages"].series) == {(*_LABELS, "T"): 1, (*_LABELS, "U"): 1}
    assert found["rocketmq_timing_messages"].label_names == ("storage_type", "storage_medium", "topic")
    assert found["rocketmq_timer_enqueue_lag"].series == [(_LABELS, 0)]
    assert found["rocketmq_timer_dequeue_lag"].series == [(_LABELS, 2)]
    assert found["rocketmq_timer_dequeue_latency_milliseconds"].series == [(_LABELS, 0)]
    assert dict(found["rocketmq_timer_enqueue_total"].series) == {(*_LABELS, "T"): 2, (*_LABELS, "U"): 1}
    assert dict(found["rocketmq_timer_dequeue_total"].series) == {(*_LABELS, "T"): 1}
    by_bound = {labels[-1]: value for labels, value in found["rocketmq_timer_message_snapshot"].series}
    assert by_bound == {"60": 1} | dict.fromkeys(["5", "300", "900", "3600", "14400", "28800", "86400"], 0)
    delays = dict(found["rocketmq_delay_message_latency_seconds"].series)[*_LABELS, "U"]
    assert isinstance(delays, Histogram)
    assert delays.bounds == (60, 600, 3600, 43_200, 86_400, 259_200)
    ((_, lateness),) = found["rmq_timer_lateness_milliseconds"].series
    assert isinstance(lateness, Histogram)
    assert lateness.total == 500
    assert delivery.timers.runtime_info() == {
        "timerReadBehind": "0",
        "timerOffsetBehind": "0",
        "timerCongestNum": "2",
        "timerEnqueueTps": "3.0",
        "timerDequeueTps": "1.0",
    }


async def test_a_deleted_topic_has_no_metrics(delivery: DeliveryBroker) -> None:
    _put(delivery, "T", 30_500)
    await delivery.pass_seconds(1)
    delivery.timers.counts.forget_topics(["T"])
    assert _scrape(delivery)["rocketmq_timing_messages"].series == []


async def test_counts_are_encoded_as_by_apache(delivery: DeliveryBroker) -> None:
    content = (
        b'{"dataVersion":{"counter":27,"stateVersion":0,"timestamp":1795221415005},"timingCount":{'
        b'"TopicTimer":{"count":2,"timeStamp":1795221358029}}}'
    )
    counts = delivery.timers.counts
    counts.decode(content)
    assert counts.waiting == {"TopicTimer": 2}
    assert counts.encode() == content
    counts.entered("TopicTimer", 0, is_delete=False)
    written = TimerMetricsSerializeWrapper.decode(counts.encode())
    assert written.timing_count["TopicTimer"].count == 3
    assert written.data_version is not None
    assert written.data_version.counter == 28
