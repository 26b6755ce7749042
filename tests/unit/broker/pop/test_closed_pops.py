"""Messages of a master's pops that an acting replica closes, and the master that takes them over."""

from __future__ import annotations

from rmq_broker.pop.check_point import CheckPoint, CheckPointKey
from rmq_broker.pop.closed_pops import ClosedPops, close_open, closed_by_replica
from rmq_broker.pop.journal import Acked


def _point(start: int = 10, *, acked: int = 0) -> CheckPoint:
    key = CheckPointKey("T", "G", 1, start, 1_700_000_000_000 + start, "broker-a")
    return CheckPoint(key, 60_000, (start, start + 1, start + 3), 0, acked)


def _told(closed: ClosedPops) -> list[Acked]:
    return closed_by_replica(closed.encode())


def test_a_replica_tells_what_it_has_closed_of_its_masters_pops() -> None:
    closed = ClosedPops()
    masters, own = _point(), _point(20)
    assert closed.follow([masters]) == [masters]
    closed.note(masters, (11,))
    closed.note(masters, (13, 11))
    closed.note(own, (20,))
    assert _told(closed) == [Acked(masters.key, (11, 13))]
    assert len(closed) == 2


def test_a_replica_that_acts_again_continues_with_what_it_has_closed() -> None:
    closed = ClosedPops()
    first, second = _point(10), _point(20)
    closed.follow([first, second])
    closed.note(first, (10, 11, 13))
    closed.note(second, (20,))
    # The master has not taken it over: its journal has both check points as they were.
    first, second = _point(10), _point(20)
    assert closed.follow([first, second]) == [second]
    assert second.open_offsets() == [21, 23]
    # It has taken over the first one, whose check point is complete in its journal.
    assert closed.follow([_point(20)])[0].open_offsets() == [21, 23]
    assert _told(closed) == [Acked(second.key, (20,))]


def test_a_master_closes_open_messages_alone() -> None:
    point = _point(acked=0b1)
    assert close_open(point, Acked(point.key, (10, 11, 12))) == [11]
    assert point.open_offsets() == [13]


def test_a_replica_of_apaches_tells_nothing() -> None:
    assert closed_by_replica(b"") == []
