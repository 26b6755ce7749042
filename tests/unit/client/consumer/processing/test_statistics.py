"""Statistics over a minute and an hour, with times given."""

from __future__ import annotations

import pytest

from rmq_client.consumer.processing.statistics import SAMPLE_SECONDS, ConsumerStatistics, TopicRecorder


def _run(recorder: TopicRecorder, begin: float, seconds: float, per_sample: int) -> float:
    """Record calls of 10 ms, `per_sample` between two samples, and return the time after them."""
    now = begin
    while now < begin + seconds:
        for _ in range(per_sample):
            recorder.called(1, 1, 0.01)
            recorder.pulled(2, 0.004)
        now += SAMPLE_SECONDS
        recorder.sample(now)
    return now


def test_rates_and_means() -> None:
    recorder = TopicRecorder(1000.0)
    now = _run(recorder, 1000.0, 600, 20)
    figures = recorder.statistics(now)
    assert figures.consumed_per_second == pytest.approx(2.0)
    assert figures.refused_per_second == pytest.approx(2.0)
    assert figures.pulled_per_second == pytest.approx(4.0)
    assert figures.call_ms == pytest.approx(10.0)
    assert figures.pull_ms == pytest.approx(4.0)
    assert figures.consumed == figures.refused == figures.refused_last_hour == 1200


def test_a_minute_without_calls_keeps_the_mean_of_the_hour() -> None:
    recorder = TopicRecorder(0.0)
    now = _run(recorder, 0.0, 60, 5)
    now = _run(recorder, now, 120, 0)
    figures = recorder.statistics(now)
    assert figures.consumed_per_second == 0
    assert figures.call_ms == pytest.approx(10.0)
    assert figures.refused_last_hour == 30


def test_refused_messages_are_counted_for_an_hour() -> None:
    recorder = TopicRecorder(0.0)
    now = _run(recorder, 0.0, 60, 5)
    now = _run(recorder, now, 4900, 0)
    figures = recorder.statistics(now)
    assert figures.refused_last_hour == 0
    assert figures.call_ms == 0
    assert figures.refused == 30


def test_rates_of_the_first_second_are_not_inflated() -> None:
    recorder = TopicRecorder(0.0)
    recorder.called(100, 0, 0.1)
    assert recorder.statistics(0.001).consumed_per_second == 100


def test_statistics_are_kept_per_topic() -> None:
    statistics = ConsumerStatistics()
    statistics.of("T", 0.0).called(1, 0, 0.1)
    assert statistics.of("T", 5.0) is statistics.of("T", 0.0)
    statistics.of("U", 0.0)
    statistics.sample(10.0)
    assert {topic: one.counts.consumed for topic, one in statistics.topics.items()} == {"T": 1, "U": 0}
