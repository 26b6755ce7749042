"""Since when messages are there, out of where a queue ended at which time."""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.lag.arrival_times import Arrival, ArrivalTimes


def observe(*places: tuple[float, int]) -> ArrivalTimes:
    """A queue that ended at these offsets, at these times."""
    arrivals = ArrivalTimes()
    for at, newest in places:
        arrivals.observe(newest, at)
    return arrivals


def test_nothing_is_known_of_what_is_not_there() -> None:
    assert ArrivalTimes().newest is None
    assert ArrivalTimes().arrival_of(0) is None
    assert observe((10, 7)).arrival_of(7) is None


def test_what_was_there_at_first_is_older_than_that() -> None:
    arrival = observe((10, 7), (20, 9)).arrival_of(3)
    assert arrival == Arrival(10, math.inf)
    assert arrival.at_least


def test_a_message_came_between_two_triggers() -> None:
    arrivals = observe((10, 100), (20, 200))
    assert arrivals.arrival_of(100) == Arrival(10, 10)
    assert arrivals.arrival_of(150) == Arrival(15, 10)


def test_a_pause_before_it_does_not_count() -> None:
    arrivals = observe((10, 100), (500, 100))
    arrivals.observe_unchanged(900)
    arrivals.observe(200, 910)
    assert arrivals.arrival_of(100) == Arrival(900, 10)


def test_a_broker_says_exactly_when_it_was_stored() -> None:
    arrivals = observe((1000, 300))
    arrivals.set_store_time(200, 400)
    assert arrivals.arrival_of(200) == Arrival(400, 0)
    # The next ones are between that and the first trigger.
    assert arrivals.arrival_of(250) == Arrival(700, 600)
    arrivals.set_store_time(250, 990)
    assert arrivals.arrival_of(200) == Arrival(400, 0)
    assert arrivals.arrival_of(250) == Arrival(990, 0)


@pytest.mark.parametrize(("said", "believed"), [(5, 10), (15, 15), (70, 20)])
def test_a_brokers_clock_cannot_turn_the_order_round(said: float, believed: float) -> None:
    arrivals = observe((10, 100), (20, 200))
    arrivals.set_store_time(100, said)
    assert arrivals.arrival_of(100) == Arrival(believed, 0)
    arrivals = observe((10, 100), (20, 200))
    arrivals.set_store_time(150, said)
    assert arrivals.arrival_of(150) == Arrival(believed, 0)


def test_a_queue_that_is_made_anew_begins_anew() -> None:
    arrivals = observe((10, 100), (20, 200), (30, 5))
    assert arrivals.newest == 5
    arrivals.observe(8, 40)
    assert arrivals.arrival_of(5) == Arrival(30, 10)


def test_a_replica_that_is_behind_for_a_moment_makes_nothing_younger() -> None:
    arrivals = observe((10, 100), (20, 200), (30, 150), (40, 300))
    assert arrivals.arrival_of(100) == Arrival(10, 20)


def test_what_is_passed_is_forgotten() -> None:
    arrivals = observe((10, 100), (20, 200), (30, 300))
    arrivals.forget_before(250)
    assert len(arrivals) == 2
    assert arrivals.arrival_of(250) == Arrival(25, 10)
    arrivals.forget_before(300)
    assert len(arrivals) == 1
    assert arrivals.arrival_of(300) is None


@given(st.data())
def test_the_truth_is_within_what_it_says(data: st.DataObject) -> None:
    """Messages at random times, triggers at others: far more than it keeps."""
    came = sorted(data.draw(st.lists(st.integers(0, 1000), min_size=1, max_size=400)))
    triggers = sorted(data.draw(st.sets(st.integers(0, 1100), min_size=1, max_size=300)))
    arrivals, end = ArrivalTimes(), 0
    for at in triggers:
        newest = bisect_right(came, at)
        arrivals.observe(newest, at)
        assert len(arrivals) <= 64
        end = data.draw(st.integers(end, newest)) if at % 7 == 0 else end
        arrivals.forget_before(end)
        if end < newest and at % 31 == 0:
            arrivals.set_store_time(end, came[end])
        arrival = arrivals.arrival_of(end)
        assert (arrival is None) == (end >= newest)
        if arrival is not None and arrival.at_least:
            assert came[end] <= arrival.at
        elif arrival is not None:
            assert abs(came[end] - arrival.at) <= arrival.open_seconds + 1e-6


def test_thinning_leaves_the_ends() -> None:
    arrivals = ArrivalTimes()
    for at in range(1000):
        arrivals.observe(at, at)
        assert len(arrivals) <= 64
    assert arrivals.newest == 999
    times = [arrival.at for offset in range(999) if (arrival := arrivals.arrival_of(offset))]
    assert times[0] == 0
    assert all(before <= after for before, after in pairwise(times))
    assert all(abs(at - offset) < 1e-6 for offset, at in enumerate(times)), "they came evenly"
