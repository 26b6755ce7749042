"""Time series over the last minute, hour and day."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rmq_broker.statistics.time_series import SAMPLE_EVERY_SECONDS, SeriesTable, Span, TimeSeries, Totals
from tests.support.memory import allocated_bytes

_HOUR_SECONDS = 3600


class _Counter:
    def __init__(self) -> None:
        self.counted = Totals(0, 0, 0)

    def add(self, messages: int, size_bytes: int = 0, calls: int = 0) -> None:
        before = self.counted
        self.counted = Totals(
            before.messages + messages, before.size_bytes + size_bytes, before.calls + calls
        )

    def totals(self) -> Totals:
        return self.counted


def _run(series: TimeSeries, counter: _Counter, start_s: int, seconds: int, per_second: int) -> int:
    """Count so much per second, sampling as the broker does; when it ends."""
    for now_s in range(start_s + 1, start_s + seconds + 1):
        counter.add(per_second, per_second * 100, 1)
        if now_s % SAMPLE_EVERY_SECONDS == 0:
            series.sample(now_s * 1000)
    return start_s + seconds


def test_a_young_series_covers_its_whole_life() -> None:
    counter = _Counter()
    series = TimeSeries(counter.totals, 5000)
    nothing = Span(0, 0.0, 0.0)
    assert series.messages(5000) == (nothing, nothing, nothing)
    counter.add(3, 600, 1)
    # A rate is over ten seconds at least.
    assert series.messages(5001) == (Span(3, 0.3, 3.0),) * 3
    assert series.size_bytes(25_000) == (Span(600, 30.0, 600.0),) * 3


def test_each_span_drops_older_samples() -> None:
    counter = _Counter()
    series = TimeSeries(counter.totals, 0)
    now_s = _run(series, counter, 0, 2 * _HOUR_SECONDS, 10)
    now_s = _run(series, counter, now_s, 60, 20)
    minute, hour, day = series.messages(now_s * 1000)
    assert minute == Span(1200 - 200, 20.0, 20.0)  # from the sample that is 50 seconds old
    assert hour.per_second == pytest.approx(10, rel=0.05)
    assert 50 * 60 <= hour.sum / hour.per_second <= 61 * 60
    assert day.sum == 2 * _HOUR_SECONDS * 10 + 60 * 20
    now_s = _run(series, counter, now_s, 22 * _HOUR_SECONDS, 0)
    minute, hour, day = series.messages(now_s * 1000)
    assert (minute.sum, hour.sum) == (0, 0)
    assert day.sum == _HOUR_SECONDS * 10 + 60 * 20
    now_s = _run(series, counter, now_s, 2 * _HOUR_SECONDS, 0)
    assert series.messages(now_s * 1000).day.sum == 0


def test_a_series_stays_small() -> None:
    counter = _Counter()
    series = TimeSeries(counter.totals, 0)

    def run() -> None:
        for sample in range(1, 10_000):
            series.sample(sample * 10_000)

    assert allocated_bytes(run) < 4000


def test_without_counted_calls_there_is_no_average() -> None:
    counter = _Counter()
    series = TimeSeries(counter.totals, 0)
    counter.add(5)
    assert series.messages(1000).minute.per_call == 0.0


def test_a_table_samples_each_series_every_ten_seconds() -> None:
    table: SeriesTable[str] = SeriesTable()
    samples: dict[str, int] = {}

    def totals_of(key: str) -> Callable[[], Totals]:
        def totals() -> Totals:
            samples[key] = samples.get(key, 0) + 1
            return Totals(0, 0, 0)

        return totals

    keys = [f"topic-{number}" for number in range(200)]
    for key in keys:
        table.add(key, totals_of(key), 0)
    most_at_once = 0
    for second in range(30):
        before = sum(samples.values())
        table.sample(second * 1000)
        most_at_once = max(most_at_once, sum(samples.values()) - before)
    assert samples == dict.fromkeys(keys, 3)
    assert most_at_once < 100
    table.discard("topic-7")
    table.discard("unknown")
    assert table.find("topic-7") is None and table.find("topic-8") is not None
    assert len(table) == 199
