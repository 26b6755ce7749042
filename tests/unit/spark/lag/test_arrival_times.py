"""Arrival times of messages, estimated from where a queue ended at which time."""

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


def test_no_arrival_beyond_the_end_of_the_queue() -> None:
    assert ArrivalTimes().newest is None
    assert ArrivalTimes().arrival_of(0) is None
    assert observe((10, 7)).arrival_of(7) is None


def test_initial_messages_have_a_lower_bound() -> None:
    arrival = observe((10, 7), (20, 9)).arrival_of(3)
    assert arrival == Arrival(10, math.inf)
    assert arrival.at_least


def test_arrival_is_interpolated_between_two_triggers() -> None:
    arrivals = observe((10, 100), (20, 200))
    assert arrivals.arrival_of(100) == Arrival(10, 10)
    assert arrivals.arrival_of(150) == Arrival(15, 10)


def test_idle_time_before_an_arrival_does_not_count() -> None:
    arrivals = observe((10, 100), (500, 100))
    arrivals.observe_unchanged(900)
    arrivals.observe(200, 910)
    assert arrivals.arrival_of(100) == Arrival(900, 10)


def test_store_time_from_a_broker_is_exact() -> None:
    arrivals = observe((1000, 300))
    arrivals.set_store_time(200, 400)
    assert arrivals.arrival_of(200) == Arrival(400, 0)
    # Later messages arrived between that time and the first trigger.
    assert arrivals.arrival_of(250) == Arrival(700, 600)
    arrivals.set_store_time(250, 990)
    assert arrivals.arrival_of(200) == Arrival(400, 0)
    assert arrivals.arrival_of(250) == Arrival(990, 0)


@pytest.mark.parametrize(("said", "believed"), [(5, 10), (15, 15), (70, 20)])
def test_store_times_cannot_reverse_the_order(said: float, believed: float) -> None:
    arrivals = observe((10, 100), (20, 200))
    arrivals.set_store_time(100, said)
    assert arrivals.arrival_of(100) == Arrival(believed, 0)
    arrivals = observe((10, 100), (20, 200))
    arrivals.set_store_time(150, said)
    assert arrivals.arrival_of(150) == Arrival(believed, 0)


def test_recreated_queue_starts_over() -> None:
    arrivals = observe((10, 100), (20, 200), (30, 5))
    assert arrivals.newest == 5
    arrivals.observe(8, 40)
    assert arrivals.arrival_of(5) == Arrival(30, 10)


def test_lagging_replica_makes_no_message_younger() -> None:
    arrivals = observe((10, 100), (20, 200), (30, 150), (40, 300))
    assert arrivals.arrival_of(100) == Arrival(10, 20)


def test_consumed_observations_are_dropped() -> None:
    arrivals = observe((10, 100), (20, 200), (30, 300))
    arrivals.forget_before(250)
    assert len(arrivals) == 2
    assert arrivals.arrival_of(250) == Arrival(25, 10)
    arrivals.forget_before(300)
    assert len(arrivals) == 1
    assert arrivals.arrival_of(300) is None


@given(st.data())
def test_true_arrival_is_within_the_stated_interval(data: st.DataObject) -> None:
    """Messages and triggers at random times, many more than are kept."""
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


def test_thinning_keeps_first_and_last() -> None:
    arrivals = ArrivalTimes()
    for at in range(1000):
        arrivals.observe(at, at)
        assert len(arrivals) <= 64
    assert arrivals.newest == 999
    times = [arrival.at for offset in range(999) if (arrival := arrivals.arrival_of(offset))]
    assert times[0] == 0
    assert all(before <= after for before, after in pairwise(times))
    assert all(abs(at - offset) < 1e-6 for offset, at in enumerate(times)), "they came evenly"
