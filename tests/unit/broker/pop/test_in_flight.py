"""What is in consumers' hands: in time, told of, and in bounds."""

from __future__ import annotations

import pytest

from rmq_broker.pop import in_flight
from rmq_broker.pop.check_point import CheckPoint, CheckPointKey, QueueKey
from rmq_broker.pop.in_flight import InFlight

_QUEUE = QueueKey("T", "CG", 0)


def _point(number: int, invisible_ms: int = 3_600_000) -> CheckPoint:
    return CheckPoint(CheckPointKey(*_QUEUE, number, 1000, "broker-a"), invisible_ms, (number,), 0)


def test_what_is_done_with_is_not_kept_until_it_would_have_been_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight, "_MAX_DONE", 100)
    monkeypatch.setattr(in_flight, "_MAX_STALE", 100)
    points = InFlight(lambda queue: None)
    early, late = _point(0, 500), _point(1)
    points.add(early)
    points.add(late)
    for number in range(2, 5000):
        point = _point(number)
        points.add(point)
        points.ack(point, number)
        assert len(points._due) <= 2 * (2 + 100 + 1) + 100 + 1
    assert points.get(point.key) is point, "who acknowledges twice is told that it is well"
    assert list(points.due(1500)) == [early]
    assert list(points.due(10_000_000)) == [late]
    assert points.get(point.key) is None


def test_who_has_fewer_in_its_hands_is_told_of() -> None:
    told: list[QueueKey] = []
    points = InFlight(told.append)
    first, second = _point(0), _point(1)
    points.add(first)
    points.add(second)
    assert told == []
    points.ack(first, 0)
    points.ack(first, 0)
    assert told == [_QUEUE]
    points.drop(second)
    assert told == [_QUEUE, _QUEUE]
