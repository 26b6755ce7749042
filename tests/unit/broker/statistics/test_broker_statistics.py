"""Counters, rates and totals."""

from __future__ import annotations

from datetime import datetime

from rmq_broker.statistics.broker_statistics import BrokerStatistics, PutTimes
from tests.support.clock import START_MS, Clock


def _statistics(clock: Clock | None = None) -> BrokerStatistics:
    return BrokerStatistics({"SYSTEM"}, clock or Clock())


def _pass(statistics: BrokerStatistics, clock: Clock, seconds: int, puts_per_second: int) -> None:
    for _ in range(seconds):
        statistics.of_topic("T").put_messages += puts_per_second
        statistics.pulls_missed += 2
        clock.pass_seconds(1)
        statistics.sample()


def test_rates_over_ten_sixty_and_six_hundred_seconds() -> None:
    clock = Clock()
    statistics = _statistics(clock)
    assert statistics.runtime_info()["putTps"] == "0.0 0.0 0.0"
    _pass(statistics, clock, 540, 10)
    _pass(statistics, clock, 50, 100)
    _pass(statistics, clock, 10, 400)
    info = statistics.runtime_info()
    assert info["putTps"] == "400.0 150.0 24.0"
    assert info["getMissTps"] == info["getTotalTps"] == "2.0 2.0 2.0"
    assert info["getTransferredTps"] == "0.0 0.0 0.0"


def test_rates_of_a_young_broker_cover_its_whole_life() -> None:
    clock = Clock()
    statistics = _statistics(clock)
    _pass(statistics, clock, 5, 30)
    assert statistics.runtime_info()["putTps"] == "30.0 30.0 30.0"


def test_a_topics_rate_is_that_of_the_last_minute() -> None:
    clock = Clock()
    statistics = _statistics(clock)
    assert statistics.topic_put_tps("T") == 0.0
    _pass(statistics, clock, 60, 10)
    assert statistics.topic_put_tps("T") == 10.0
    _pass(statistics, clock, 60, 20)
    assert statistics.topic_put_tps("T") == 20.0
    assert statistics.topic_put_tps("Unknown") == 0.0


def test_totals_never_fall() -> None:
    statistics = _statistics()
    topic = statistics.of_topic("T")
    assert statistics.of_topic("T") is topic
    topic.put_messages += 5
    topic.put_bytes += 500
    statistics.of_group("CG", "T").got_messages += 3
    statistics.of_group("CG", "U").got_messages += 1
    statistics.forget_topic("T")
    statistics.forget_group("CG")
    statistics.forget_topic("Unknown")
    assert (statistics.put_messages, statistics.put_bytes, statistics.got_messages) == (5, 500, 4)
    assert not statistics.topics and not statistics.groups
    assert statistics.runtime_info()["msgGetTotalTodayNow"] == "4"


def test_events_are_counted_by_group_and_topic_until_one_is_deleted() -> None:
    statistics = _statistics()
    events = statistics.acknowledgements
    for group, topic, messages in (("CG", "T", 3), ("CG", "U", 2), ("CG2", "T", 1), ("CG", "T", 1)):
        events.add(group, topic, messages)
    assert events.counts() == {("CG", "T"): 4, ("CG", "U"): 2, ("CG2", "T"): 1}
    statistics.forget_topic("T")
    assert events.counts() == {("CG", "U"): 2}
    assert statistics.event_series("GROUP_ACK_NUMS", "CG", "T") is None
    statistics.forget_group("CG")
    assert (events.counts(), events.total) == ({}, 7)


def test_days_end_at_midnight_and_leave_system_topics_out() -> None:
    evening = datetime(2024, 3, 9, 23, 59, 58).astimezone()
    clock = Clock(int(evening.timestamp() * 1000))
    statistics = _statistics(clock)
    statistics.of_topic("T").put_messages += 10
    statistics.of_topic("SYSTEM").put_messages += 1000
    statistics.of_group("CG", "T").got_messages += 4

    def told() -> list[str]:
        info = statistics.runtime_info()
        keys = ("YesterdayMorning", "TodayMorning", "TodayNow")
        return [info[f"msgPutTotal{key}"] for key in keys] + [info[f"msgGetTotal{key}"] for key in keys]

    statistics.sample()
    assert told() == ["0", "0", "10", "0", "0", "4"]
    clock.pass_seconds(3)
    statistics.sample()
    statistics.sample()
    statistics.of_topic("T").put_messages += 1
    assert told() == ["0", "10", "11", "0", "4", "4"]
    clock.pass_seconds(24 * 3600)
    statistics.sample()
    assert told() == ["10", "11", "11", "4", "4", "4"]


def test_latencies_are_shown_after_a_minute() -> None:
    times = PutTimes()
    times.under_a_millisecond += 900
    for elapsed_ms in [3] * 80 + [150] * 19 + [30_000]:
        times.add(elapsed_ms)
    assert times.max_ms == 30_000
    assert times.percentile(0.99) == 0.0
    times.end_minute()
    assert times.distribution().startswith("[<=0ms]:900 [0~10ms]:80 [10~50ms]:0 ")
    assert times.distribution().endswith(
        "[100~200ms]:19 [200~500ms]:0 [500ms~1s]:0 [1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:1 "
    )
    assert 0 < times.percentile(0.5) < 1
    assert 2 <= times.percentile(0.97) <= 3
    assert 140 <= times.percentile(0.99) <= 150
    assert times.percentile(1.0) == 10_000.0


def test_the_run_time_has_apaches_format() -> None:
    clock = Clock()
    statistics = _statistics(clock)
    clock.pass_seconds(((2 * 24 + 3) * 60 + 4) * 60 + 5)
    info = statistics.runtime_info()
    assert info["runtime"] == "[ 2 days, 3 hours, 4 minutes, 5 seconds ]"
    assert info["bootTimestamp"] == str(START_MS)


def test_series_of_topics_groups_and_the_broker() -> None:
    clock = Clock()
    statistics = _statistics(clock)
    topic = statistics.of_topic("T")
    group = statistics.of_group("CG", "T")
    for _ in range(60):
        topic.put_messages += 4
        topic.put_bytes += 400
        group.got_messages += 2
        group.got_bytes += 200
        group.answers += 1
        statistics.of_topic("SYSTEM").put_messages += 1
        clock.pass_seconds(1)
        statistics.sample()
    assert statistics.group_get_tps("CG", "T") == 2.0
    assert statistics.group_get_tps("CG", "U") == 0.0
    told = {
        "topic": statistics.topic_series("T"),
        "group": statistics.group_series("CG", "T"),
        "puts": statistics.broker_series("BROKER_PUT_NUMS"),
        "gets": statistics.broker_series("BROKER_GET_NUMS"),
        "clients' puts": statistics.broker_series("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC"),
        "clients' gets": statistics.broker_series("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC"),
    }
    spans = {name: series.messages(clock()) for name, series in told.items() if series is not None}
    assert {name: span.day.sum for name, span in spans.items()} == {
        "topic": 240,
        "group": 120,
        "puts": 300,
        "gets": 120,
        "clients' puts": 240,
        "clients' gets": 120,
    }
    assert [span.minute.per_second for span in spans.values()] == [4.0, 2.0, 5.0, 2.0, 4.0, 2.0]
    assert [span.day.per_call for span in spans.values()] == [1.0, 2.0, 0.0, 0.0, 0.0, 0.0]
    assert statistics.broker_series("NO_SUCH_NUMS") is None


def test_forgotten_topics_and_groups_have_no_series() -> None:
    statistics = _statistics()
    statistics.of_topic("T")
    statistics.of_group("CG", "T")
    statistics.of_group("CG", "U")
    statistics.forget_topic("T")
    assert statistics.topic_series("T") is None and statistics.group_series("CG", "T") is None
    assert statistics.group_series("CG", "U") is not None
    statistics.forget_group("CG")
    assert statistics.group_series("CG", "U") is None
