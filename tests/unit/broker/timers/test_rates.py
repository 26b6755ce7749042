"""Rates of timed messages between two samples."""

from __future__ import annotations

from rmq_broker.timers.rates import TimerRates


def test_rates_are_those_between_two_samples() -> None:
    now_ms = 1000
    rates = TimerRates(lambda: now_ms)
    assert (rates.entered_per_second, rates.delivered_per_second) == (0.0, 0.0)
    now_ms = 3000
    rates.sample(10, 4)
    assert (rates.entered_per_second, rates.delivered_per_second) == (5.0, 2.0)
    now_ms = 3500
    rates.sample(10, 5)
    assert (rates.entered_per_second, rates.delivered_per_second) == (0.0, 2.0)


def test_a_deleted_topic_takes_its_counts_along() -> None:
    now_ms = 0
    rates = TimerRates(lambda: now_ms)
    now_ms = 1000
    rates.sample(10, 10)
    now_ms = 2000
    rates.sample(3, 3)
    assert (rates.entered_per_second, rates.delivered_per_second) == (0.0, 0.0)


def test_a_second_sample_at_the_same_time_changes_nothing() -> None:
    now_ms = 0
    rates = TimerRates(lambda: now_ms)
    now_ms = 1000
    rates.sample(10, 10)
    rates.sample(20, 20)
    assert rates.entered_per_second == 10.0
