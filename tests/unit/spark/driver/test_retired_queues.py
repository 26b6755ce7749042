"""Queues that no broker offers any more: when they leave a stream, and what happens to their messages."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import DataLoss, SourceUnavailable
from pyspark_rocketmq.offsets import QueueKey
from pyspark_rocketmq.stream_position import StreamPosition
from tests.unit.spark.driver.test_stream_offsets import Query
from tests.unit.spark.fake_driver_cluster import FakeDriverCluster

A, B, C = QueueKey("T", "a", 0), QueueKey("T", "a", 1), QueueKey("T", "b", 0)
OTHER = QueueKey("Told", "a", 0)


@pytest.fixture
def view() -> FakeDriverCluster:
    return FakeDriverCluster({A: (5, 50), B: (0, 10), C: (0, 7)})


def test_read_queue_of_a_decommissioned_broker_leaves_after_broker_timeout(view: FakeDriverCluster) -> None:
    query = Query(view)
    query.trigger()
    del view.held[C]
    view.brokers = frozenset("a")
    assert query.trigger() == {A: 50, B: 10, C: 7}
    assert query.trigger(after=9) == {A: 50, B: 10, C: 7}
    assert query.trigger() == {A: 50, B: 10}
    assert query.position.retired == {C: 7}
    view.held[A] = (5, 60)
    assert query.trigger(after=100) == {A: 60, B: 10}


def test_returning_broker_continues_where_it_left(view: FakeDriverCluster) -> None:
    query = Query(view)
    del view.held[C]
    view.brokers = frozenset("a")
    query.trigger()
    query.trigger(after=10)
    restarted = Query(view)
    restarted.position = StreamPosition.from_nested(query.position.to_nested())
    view.held[C] = (0, 9)
    view.brokers = frozenset("ab")
    assert restarted.trigger() == {A: 50, B: 10, C: 7}
    assert restarted.position.retired == {}
    assert restarted.trigger() == {A: 50, B: 10, C: 9}


def test_fewer_read_queues_leave_after_topic_timeout(view: FakeDriverCluster) -> None:
    query = Query(view, brokerTimeout="1h", topicTimeout="3s")
    del view.held[B]
    query.trigger()
    assert query.trigger(after=3) == {A: 50, C: 7}
    assert query.position.retired == {B: 10}


@pytest.mark.parametrize("is_pattern", [True, False])
def test_deleted_topic_of_a_pattern_leaves_for_good(view: FakeDriverCluster, is_pattern: bool) -> None:
    view.held = {A: (0, 5), OTHER: (0, 9)}
    chosen = {"subscribePattern": "T.*"} if is_pattern else {"subscribe": "T,Told"}
    query = Query(view, **chosen)
    query.trigger()
    del view.held[OTHER]
    query.trigger()
    if not is_pattern:
        with pytest.raises(SourceUnavailable, match="Told/a/0"):
            query.trigger(after=10.1)
        return
    assert query.trigger(after=10) == {A: 5}
    assert query.position.retired == {}
    view.held[OTHER] = (0, 30)  # another topic of that name
    assert query.trigger() == {A: 5, OTHER: 0}


@pytest.mark.parametrize("fails", [True, False])
def test_unread_messages_of_a_retired_queue_are_lost(view: FakeDriverCluster, fails: bool) -> None:
    query = Query(view, startingOffsets="earliest", maxOffsetsPerTrigger="3", failOnDataLoss=str(fails))
    assert query.trigger() == {A: 6, B: 1, C: 1}
    del view.held[C]
    view.brokers = frozenset("a")
    query.trigger()
    if fails:
        with pytest.raises(DataLoss, match="T/b/0 from offset 1 to 6"):
            query.trigger(after=10)
        return
    assert C not in query.trigger(after=10)
    (loss,) = query.offsets.losses.losses()
    assert (loss.queue, loss.messages, loss.ranges) == (C, 6, ((1, 7),))
    assert query.trigger(after=100)[A] > 6  # the others go on


@pytest.mark.parametrize("brokers", [None, frozenset[str]()])
def test_nothing_leaves_while_name_servers_know_no_brokers(
    view: FakeDriverCluster, brokers: frozenset[str] | None
) -> None:
    query = Query(view, failOnDataLoss="false")
    del view.held[C]
    view.brokers = brokers
    query.trigger()
    assert query.trigger(after=1000) == {A: 50, B: 10, C: 7}


def test_drain_does_not_wait_for_retired_queues(view: FakeDriverCluster) -> None:
    query = Query(view, startingOffsets="earliest")
    query.position = StreamPosition(query.at.merged({C: 3}))
    del view.held[C]
    view.brokers = frozenset("a")
    query.offsets.drain()
    assert query.trigger(after=0) == {A: 50, B: 10}
    assert query.position.retired == {C: 3}
    assert query.trigger(after=0) == {A: 50, B: 10}
    assert query.now == 0


def test_broker_that_returns_before_the_timeout_changes_nothing(view: FakeDriverCluster) -> None:
    query = Query(view)
    held = view.held.pop(C)
    view.brokers = frozenset("a")
    query.trigger()
    query.trigger(after=9)
    view.held[C] = held
    query.trigger()
    del view.held[C]
    query.trigger()
    assert query.trigger(after=9) == {A: 50, B: 10, C: 7}


def test_retired_queue_without_start_offsets(view: FakeDriverCluster) -> None:
    """PySpark 4.0 and 4.1 do not pass the start of a batch."""
    query = Query(view)
    query.offsets.newest_or_last()
    del view.held[C]
    view.brokers = frozenset("a")
    query.now += 1
    assert query.offsets.newest_or_last() == {A: 50, B: 10, C: 7}
    query.now += 10
    end = query.offsets.newest_or_last()
    assert end == {A: 50, B: 10}
    assert query.offsets.begin(query.at, end) == {A: 50, B: 10, C: 7}


def test_routes_are_in_doubt_while_a_queue_is_absent(view: FakeDriverCluster) -> None:
    query = Query(view)
    query.trigger()
    assert view.doubted == set()
    held = view.held.pop(C)
    query.trigger()
    assert view.doubted == {"T"}
    view.held[C] = held
    view.doubted.clear()
    query.trigger()
    assert view.doubted == set()


def test_time_without_answers_before_the_absence_does_not_fail_the_query(view: FakeDriverCluster) -> None:
    """A stopping broker does not answer for a moment before name servers drop it."""
    query = Query(view)
    query.trigger()
    view.away = {C}
    query.trigger()
    del view.held[C]
    view.brokers = frozenset("a")
    query.trigger(after=3)
    assert query.trigger(after=9) == {A: 50, B: 10, C: 7}
    assert query.trigger() == {A: 50, B: 10}
    assert query.position.retired == {C: 7}
