"""Messages in flight: bounds, and reports of their fall."""

from __future__ import annotations

from rmq_broker.pop.check_point import CheckPoint, CheckPointKey, QueueKey
from rmq_broker.pop.in_flight import InFlight
from tests.support.clock import Clock

_QUEUE = QueueKey("T", "CG", 0)


def _point(number: int, invisible_ms: int = 3_600_000) -> CheckPoint:
    return CheckPoint(CheckPointKey(*_QUEUE, number, 1000, "broker-a"), invisible_ms, (number,), 0)


def test_complete_check_points_are_kept_within_a_bound() -> None:
    clock = Clock(1000)
    points = InFlight(lambda queue: None, clock.clocks, max_complete=100, max_stale=100)
    early, late = _point(0, 500), _point(1)
    points.add(early)
    points.add(late)
    for number in range(2, 5000):
        point = _point(number)
        points.add(point)
        points.ack(point, number)
        assert points.scheduled <= 2 * (2 + 100 + 1) + 100 + 1
    assert points.get(point.key) is point, "acknowledgements are idempotent"
    clock.now_ms = 1500
    assert [points.take_due(), points.take_due()] == [early, None]
    clock.now_ms = 10_000_000
    assert [points.take_due(), points.take_due()] == [late, None]
    assert points.get(point.key) is None


def test_a_fall_of_the_messages_in_flight_is_reported() -> None:
    told: list[QueueKey] = []
    points = InFlight(told.append, Clock(1000).clocks)
    first, second = _point(0), _point(1)
    points.add(first)
    points.add(second)
    assert told == []
    points.ack(first, 0)
    points.ack(first, 0)
    assert told == [_QUEUE]
    points.drop(second)
    assert told == [_QUEUE, _QUEUE]
