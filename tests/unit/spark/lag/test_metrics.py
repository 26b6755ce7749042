"""Lag as exported to Prometheus."""

from __future__ import annotations

from uuid import UUID

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest

from pyspark_rocketmq.lag import LagListener
from pyspark_rocketmq.offsets import QueueKey
from pyspark_rocketmq.stream_losses import LOST, QueueLoss, losses_to_nested
from tests.support.spark_events import QUERY, ended, offsets_of, progress, source

GONE = QueueKey("U", "a", 3)
OTHER, OTHER_RUN = str(UUID(int=2)), str(UUID(int=22))


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def listener() -> LagListener:
    return LagListener(clock=lambda: 1000.0)


def samples(registry: CollectorRegistry, name: str) -> dict[tuple[str, ...], float]:
    """Return values by label values, the query first."""
    return {
        tuple(sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == name
    }


def test_metrics_exist_as_long_as_the_query(registry: CollectorRegistry, listener: LagListener) -> None:
    listener.publish(registry)
    assert samples(registry, "rmq_spark_lag_messages") == {}
    listener.onQueryProgress(
        progress(990, source({0: 5, 1: 1}, {0: 10, 1: 3}), source({0: 1}, {0: 1}, topic="U"))
    )
    assert samples(registry, "rmq_spark_lag_messages") == {("orders", "T"): 7, ("orders", "U"): 0}
    assert samples(registry, "rmq_spark_lag_seconds") == {("orders", "T"): 10, ("orders", "U"): 0}
    assert samples(registry, "rmq_spark_rows_total") == {("orders",): 20}
    assert samples(registry, "rmq_spark_input_rows_per_second") == {("orders",): 10}
    assert samples(registry, "rmq_spark_processed_rows_per_second") == {("orders",): 40}
    assert samples(registry, "rmq_spark_batch_duration_seconds") == {("orders",): 1.5}
    assert samples(registry, "rmq_spark_last_event_timestamp_seconds") == {("orders",): 1000}
    listener.onQueryTerminated(ended())
    assert [family.samples for family in registry.collect()] == [[]] * 8


def test_metrics_by_queue(registry: CollectorRegistry, listener: LagListener) -> None:
    listener.publish(registry, per_queue=True)
    listener.onQueryProgress(progress(990, source({0: 5, 1: 1}, {0: 10, 1: 1})))
    assert samples(registry, "rmq_spark_queue_lag_messages") == {
        ("orders", "T", "a", "0"): 5,
        ("orders", "T", "a", "1"): 0,
    }
    assert samples(registry, "rmq_spark_queue_lag_seconds") == {
        ("orders", "T", "a", "0"): 10,
        ("orders", "T", "a", "1"): 0,
    }


def test_lost_messages(registry: CollectorRegistry, listener: LagListener) -> None:
    listener.publish(registry, per_queue=True)
    newest = {**offsets_of("T", {0: 10}), LOST: losses_to_nested([QueueLoss(GONE, 7, ((3, 10),))])}
    listener.onQueryProgress(progress(990, source({0: 5}, None, latestOffset=newest)))
    assert samples(registry, "rmq_spark_lost_messages_total") == {("orders", "T"): 0, ("orders", "U"): 7}
    assert samples(registry, "rmq_spark_queue_lost_messages_total") == {("orders", "U", "a", "3"): 7}
    lag = listener.lag("orders")
    assert lag is not None
    assert (lag.messages, lag.lost_messages) == (5, 7)
    assert [(loss.queue, loss.ranges) for loss in lag.losses] == [(GONE, ((3, 10),))]


def test_unknown_lag_has_no_samples(registry: CollectorRegistry, listener: LagListener) -> None:
    listener.publish(registry)
    listener.onQueryProgress(progress(990, source({0: 5}, None)))
    assert samples(registry, "rmq_spark_lag_messages") == samples(registry, "rmq_spark_lag_seconds") == {}
    assert samples(registry, "rmq_spark_rows_total") == {("orders",): 10}


def test_labels_of_unnamed_and_equally_named_queries(
    registry: CollectorRegistry, listener: LagListener
) -> None:
    """No series appears twice: Prometheus would reject the whole scrape."""
    listener.publish(registry)
    listener.onQueryProgress(progress(990, source({0: 5}, {0: 6}), name=None))
    assert samples(registry, "rmq_spark_lag_messages") == {(QUERY, "T"): 1}
    listener.onQueryTerminated(ended())
    listener.onQueryProgress(progress(990, source({0: 5}, {0: 6})))
    listener.onQueryProgress(progress(990, source({0: 5}, {0: 8}), query=OTHER, run=OTHER_RUN))
    assert samples(registry, "rmq_spark_lag_messages") == {
        (f"orders {QUERY}", "T"): 1,
        (f"orders {OTHER}", "T"): 3,
    }


def test_default_registry(listener: LagListener) -> None:
    listener.publish()
    try:
        listener.onQueryProgress(progress(990, source({0: 5}, {0: 6})))
        assert b'rmq_spark_lag_messages{query="orders",topic="T"} 1.0' in generate_latest()
        with pytest.raises(ValueError, match="Duplicated timeseries"):
            LagListener().publish()
    finally:
        listener.close()
    assert samples(REGISTRY, "rmq_spark_lag_messages") == {}
    listener.publish()
    listener.close()
