"""Lag computed from the events that Spark sends."""

from __future__ import annotations

from uuid import UUID

import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.lag import LagListener, QueryLag
from pyspark_rocketmq.offsets import QueueKey
from tests.support.spark_events import QUERY, RUN, ended, idle, progress, source

OTHER_RUN = str(UUID(int=12))
RATE = {"description": "RateStreamV2[rowsPerSecond=1]", "topic": "x"}


class Told:
    """A listener with a virtual clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.listener = LagListener(clock=lambda: self.now)

    def lag(self, query: str = "orders") -> QueryLag:
        lag = self.listener.lag(query)
        assert lag is not None
        return lag


@pytest.fixture
def told() -> Told:
    return Told()


def test_lag_is_stored_minus_read_messages(told: Told) -> None:
    told.listener.onQueryProgress(progress(999, source({0: 12, 1: 3}, {0: 30, 1: 5}), batch=4))
    lag = told.lag()
    assert lag.messages == 20
    assert (lag.query_id, lag.run_id, lag.name, lag.batch_id) == (QUERY, RUN, "orders", 4)
    assert (lag.rows, lag.batch_seconds, lag.heard_at) == (10, 1.5, 1000)
    assert (lag.input_rows_per_second, lag.processed_rows_per_second) == (5.0, 20.0)
    (topic,) = lag.topics
    assert [(each.queue, each.messages) for each in topic.queues] == [
        (QueueKey("T", "a", 0), 18),
        (QueueKey("T", "a", 1), 2),
    ]


def test_query_is_found_by_name_and_ids(told: Told) -> None:
    told.listener.onQueryProgress(progress(999, source({0: 1}, {0: 1})))
    assert told.lag("orders") == told.lag(QUERY) == told.lag(RUN)
    assert told.listener.lag(UUID(QUERY)) == told.lag()
    assert told.listener.lag("payments") is None


def test_seconds_are_the_age_of_the_oldest_message(told: Told) -> None:
    told.listener.onQueryProgress(progress(990, source({0: 100}, {0: 100})))
    told.listener.onQueryProgress(progress(1000, source({0: 150}, {0: 200})))
    told.now = 1003
    assert told.lag().seconds == pytest.approx(8)
    assert not told.lag().at_least
    # The age grows while no event arrives.
    told.now = 1063
    assert told.lag().seconds == pytest.approx(68)


def test_age_of_an_initial_backlog_is_a_lower_bound(told: Told) -> None:
    told.listener.onQueryProgress(progress(990, source({0: 10}, {0: 200})))
    assert told.lag().seconds == pytest.approx(10)
    assert told.lag().at_least


def test_no_backlog_has_age_zero(told: Told) -> None:
    told.listener.onQueryProgress(progress(10, source({0: 200}, {0: 200})))
    lag = told.lag()
    assert (lag.messages, lag.seconds, lag.at_least) == (0, 0.0, False)


def test_idle_time_before_a_burst_does_not_count(told: Told) -> None:
    told.listener.onQueryProgress(progress(100, source({0: 100}, {0: 100})))
    told.listener.onQueryIdle(idle(950))
    told.listener.onQueryProgress(progress(960, source({0: 101}, {0: 200})))
    assert told.lag().seconds == pytest.approx(1000 - 950.1)


def test_idle_event_does_not_affect_queues_with_a_backlog(told: Told) -> None:
    """A backlog during idle triggers, as of a broker that is down, keeps its age."""
    told.listener.onQueryProgress(progress(100, source({0: 100}, {0: 100})))
    told.listener.onQueryProgress(progress(110, source({0: 100}, {0: 200})))
    told.now = 2000
    told.listener.onQueryIdle(idle(1999))
    lag = told.lag()
    assert lag.seconds == pytest.approx(1900)
    assert lag.heard_at == 2000
    # Its broker may have stored messages right after the last trigger.
    told.listener.onQueryProgress(progress(2000, source({0: 200}, {0: 300})))
    assert told.lag().seconds == pytest.approx(1890)


def test_queue_of_an_unreachable_broker_keeps_its_backlog(told: Told) -> None:
    told.listener.onQueryProgress(progress(100, source({0: 10, 1: 10}, {0: 10, 1: 30})))
    told.listener.onQueryProgress(progress(200, source({0: 20, 1: 10}, {0: 20})))
    assert told.lag().messages == 20
    assert told.lag().seconds == pytest.approx(900)


def test_queue_that_leaves_the_query_is_dropped(told: Told) -> None:
    told.listener.onQueryProgress(progress(100, source({0: 10, 1: 10}, {0: 10, 1: 30})))
    told.listener.onQueryProgress(progress(200, source({0: 20}, {0: 20, 1: 30})))
    assert told.lag().messages == 0


def test_other_sources_are_ignored(told: Told) -> None:
    kafka = '{"events":{"0":5,"1":7}}'
    told.listener.onQueryProgress(
        progress(999, source(3, 5, rows=1000), source({0: 1}, {0: 4}), source(kafka, kafka, rows=1000))
    )
    assert told.lag().messages == 3
    assert told.lag().rows == 10
    assert told.lag().processed_rows_per_second == 20.0
    assert [topic.topic for topic in told.lag().topics] == ["T"]


@pytest.mark.parametrize("offset", [None, 3, "null", "None", "not JSON", "{}", '{"T":{"0":5}}', '[{"T":1}]'])
def test_queries_without_a_rocketmq_source_are_ignored(told: Told, offset: str | int | None) -> None:
    told.listener.onQueryProgress(progress(999, source(offset, offset)))
    told.listener.onQueryIdle(idle(999))
    told.listener.onQueryTerminated(ended())
    assert told.listener.lags() == []


@pytest.mark.parametrize("newest", [None, "None", "null"])
def test_lag_is_unknown_without_newest_offsets(told: Told, newest: str | None) -> None:
    told.listener.onQueryProgress(progress(999, source({0: 1}, newest)))
    lag = told.lag()
    assert (lag.messages, lag.seconds, lag.at_least) == (None, None, False)
    assert (lag.rows, lag.topics) == (10, ())


def test_several_sources_of_one_query(told: Told) -> None:
    """Topics are separate; for a queue that both read, the source with the larger lag counts."""
    told.listener.onQueryProgress(
        progress(
            999,
            source({0: 5}, {0: 10}, topic="A"),
            source({0: 2}, {0: 11}, topic="B"),
            source({0: 8}, {0: 12}, topic="A"),
        )
    )
    assert [(topic.topic, topic.messages) for topic in told.lag().topics] == [("A", 7), ("B", 9)]
    assert told.lag().messages == 16
    assert told.lag().rows == 30


def test_rates_that_are_not_finite_are_zero(told: Told) -> None:
    odd = source({0: 1}, {0: 1}, inputRowsPerSecond=float("inf"), processedRowsPerSecond=float("nan"))
    told.listener.onQueryProgress(progress(999, odd))
    assert (told.lag().input_rows_per_second, told.lag().processed_rows_per_second) == (0.0, 0.0)


def test_rows_are_counted_over_the_batches(told: Told) -> None:
    for batch in range(3):
        told.listener.onQueryProgress(progress(100 + batch, source({0: batch}, {0: 9}, rows=7), batch=batch))
    assert told.lag().rows == 21


def test_ended_queries_are_forgotten(told: Told) -> None:
    told.listener.onQueryProgress(progress(999, source({0: 1}, {0: 4})))
    told.listener.onQueryTerminated(ended())
    assert told.listener.lag("orders") is None
    told.listener.onQueryTerminated(ended())  # of an unknown query
    assert told.listener.lags() == []


def test_restart_reported_before_the_end_of_the_previous_run(told: Told) -> None:
    """The end of the last run does not affect the new one, which counts from 0."""
    told.listener.onQueryProgress(progress(900, source({0: 1}, {0: 40})))
    told.listener.onQueryProgress(progress(999, source({0: 30}, {0: 40}), run=OTHER_RUN))
    assert [lag.run_id for lag in told.listener.lags()] == [OTHER_RUN]
    told.listener.onQueryTerminated(ended())
    assert told.lag().messages == 10
    assert told.lag().rows == 10


def test_source_options_are_checked() -> None:
    with pytest.raises(OptionError, match="subscribe"):
        LagListener({"rocketmq.namesrv.addr": "127.0.0.1:9876"})
