"""The size of micro-batches: limits, shares of queues, and delays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.driver.rate_limit import RateLimiter, distribute
from pyspark_rocketmq.offsets import MAX_OFFSET, QueueKey, QueueOffsets
from pyspark_rocketmq.options.limits import TriggerLimits

from ..samples import near_keys, offsets, offsets_of, queue

backlogs = st.dictionaries(
    near_keys, st.integers(1, 1000) | st.integers(1, MAX_OFFSET), min_size=1, max_size=20
)
limits = st.integers(1, 50) | st.integers(1, MAX_OFFSET)


class _Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@given(backlogs, limits)
def test_limit_is_used_exactly(backlog: dict[QueueKey, int], limit: int) -> None:
    taken = distribute(backlog, limit)
    assert taken.keys() == backlog.keys()
    assert all(1 <= taken[key] <= backlog[key] for key in backlog)
    assert sum(taken.values()) == min(sum(backlog.values()), max(limit, len(backlog)))


@given(backlogs, limits)
def test_shares_are_proportional_to_the_backlog(backlog: dict[QueueKey, int], limit: int) -> None:
    taken = distribute(backlog, limit)
    waiting = sum(backlog.values())
    for key, count in backlog.items():
        # One offset for each queue comes first; rounding differs by less than one.
        fair = min(limit, waiting) * count / waiting
        assert abs(taken[key] - fair) <= len(backlog) + 2 + fair * 1e-9
    # Of two queues with the same backlog, either may get the remainder of a division.
    ordered = sorted(backlog, key=lambda key: (backlog[key], taken[key]))
    assert [taken[key] for key in ordered] == sorted(taken.values())


def test_example_shares() -> None:
    assert distribute({queue(0): 901, queue(1): 101}, 102) == {queue(0): 91, queue(1): 11}
    assert distribute({queue(0): 10, queue(1): 10, queue(2): 10}, 10) == {
        queue(0): 4,
        queue(1): 3,
        queue(2): 3,
    }
    assert distribute({queue(0): 2**62, queue(1): 2**62}, 2**62 + 1) == {queue(0): 2**61 + 1, queue(1): 2**61}


@given(backlogs, st.integers(-2, 2))
def test_limits_around_the_total_backlog(backlog: dict[QueueKey, int], beside: int) -> None:
    waiting = sum(backlog.values())
    taken = distribute(backlog, max(1, waiting + beside))
    assert all(1 <= taken[key] <= backlog[key] for key in backlog)
    assert sum(taken.values()) == max(len(backlog), min(waiting, waiting + beside))


def test_small_queue_is_not_starved_by_large_ones() -> None:
    backlog = {queue(number): 10**9 for number in range(7)} | {queue(7): 1}
    assert distribute(backlog, 8)[queue(7)] == 1
    assert distribute(backlog, 3)[queue(7)] == 1


@given(offsets_of(near_keys, 1000), offsets_of(near_keys, 1000), st.none() | st.integers(1, 100))
def test_batch_ends_between_start_and_latest(
    start: QueueOffsets, latest: QueueOffsets, limit: int | None
) -> None:
    end = RateLimiter(TriggerLimits(max_offsets=limit)).end_of_batch(start, latest)
    assert end.keys() == start.keys()
    for key, offset in end.items():
        assert start[key] <= offset <= max(start[key], latest.get(key, 0))
    assert (end == start) == (not start.backlog(latest))
    if limit is None:
        assert not end.backlog(latest)


def test_all_available_ignores_limits() -> None:
    rate_limiter = RateLimiter(TriggerLimits(max_offsets=3, min_offsets=2))
    assert rate_limiter.end_of_batch(offsets(0, 0), offsets(50, 1)) == offsets(2, 1)
    assert rate_limiter.end_of_batch(offsets(2, 1), offsets(50, 2), all_available=True) == offsets(50, 2)


def test_batch_waits_for_the_minimum_up_to_the_delay() -> None:
    clock = _Clock()
    rate_limiter = RateLimiter(TriggerLimits(min_offsets=10, max_delay_ms=5000), clock)
    first = rate_limiter.end_of_batch(offsets(0, 0), offsets(1, 0))
    assert first == offsets(1, 0)  # as in Spark's Kafka source, the first batch is not delayed
    assert rate_limiter.end_of_batch(first, offsets(5, 5)) == first
    assert rate_limiter.end_of_batch(first, offsets(6, 5)) == offsets(6, 5)
    clock.now += 4.999
    assert rate_limiter.end_of_batch(offsets(6, 5), offsets(7, 5)) == offsets(6, 5)
    clock.now += 0.001
    assert rate_limiter.end_of_batch(offsets(6, 5), offsets(7, 5)) == offsets(7, 5)
    assert rate_limiter.end_of_batch(offsets(7, 5), offsets(8, 5)) == offsets(7, 5)


def test_no_new_messages_make_no_batch_and_start_no_delay() -> None:
    clock = _Clock()
    rate_limiter = RateLimiter(TriggerLimits(min_offsets=10, max_delay_ms=5000), clock)
    start = rate_limiter.end_of_batch(offsets(0), offsets(1))
    clock.now += 6
    assert rate_limiter.end_of_batch(start, offsets(1)) == start
    assert rate_limiter.end_of_batch(start, offsets(2)) == offsets(2)


def test_drain_ignores_the_minimum_but_not_the_maximum() -> None:
    rate_limiter = RateLimiter(TriggerLimits(max_offsets=4, min_offsets=4))
    end = offsets(0)
    seen = []
    while (after := rate_limiter.end_of_batch(end, offsets(10), draining=True)) != end:
        end = after
        seen.append(end[queue(0)])
    assert seen == [4, 8, 10]


@pytest.mark.parametrize("latest", [QueueOffsets(), offsets(3), offsets(9, 3)])
def test_unreachable_or_truncated_queue_keeps_its_offset(latest: QueueOffsets) -> None:
    start = offsets(9, 9)
    assert RateLimiter(TriggerLimits()).end_of_batch(start, latest) == start
