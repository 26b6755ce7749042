"""Queues that were deleted and created again, and hold more messages than were read."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import DataLoss
from pyspark_rocketmq.offsets import QueueKey
from tests.unit.spark.driver.test_stream_offsets import Query
from tests.unit.spark.fake_driver_cluster import FakeDriverCluster

A, B = QueueKey("T", "a", 0), QueueKey("T", "a", 1)


@pytest.fixture
def view() -> FakeDriverCluster:
    view = FakeDriverCluster({A: (0, 50), B: (0, 10)})
    view.first_ms = {A: 1000, B: 1000}
    return view


@pytest.mark.parametrize("fails", [True, False])
def test_recreated_queue_that_outgrew_the_checkpoint_is_noticed(view: FakeDriverCluster, fails: bool) -> None:
    query = Query(view, failOnDataLoss=str(fails))
    query.trigger()
    view.held[A], view.first_ms[A] = (0, 70), 2000
    if fails:
        with pytest.raises(DataLoss, match="created again while they were read: T/a/0"):
            query.trigger(after=10)
        return
    assert query.trigger(after=10) == {B: 10}
    assert query.trigger() == {A: 0, B: 10}
    assert query.trigger() == {A: 70, B: 10}
    assert query.offsets.losses.losses() == []  # everything had been read


def test_unread_messages_of_the_deleted_queue_are_lost(view: FakeDriverCluster) -> None:
    query = Query(view, startingOffsets="earliest", maxOffsetsPerTrigger="10", failOnDataLoss="false")
    at = query.trigger()
    view.held[A], view.first_ms[A] = (0, 70), 2000
    query.trigger(after=10)
    (loss,) = query.offsets.losses.losses()
    assert (loss.queue, loss.messages) == (A, 50 - at[A])


def test_expired_messages_are_no_recreation(view: FakeDriverCluster) -> None:
    query = Query(view)
    query.trigger()
    view.held[A], view.first_ms[A] = (40, 70), 2000
    assert query.trigger(after=10) == {A: 70, B: 10}
    view.held[A] = (40, 80)
    assert query.trigger(after=10) == {A: 80, B: 10}


def test_messages_that_expire_between_two_requests_are_no_recreation(
    view: FakeDriverCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(view)
    query.trigger()
    view.held[A] = (0, 70)
    first_stored_ms = view.first_stored_ms

    def expire_first(queues: list[QueueKey]) -> dict[QueueKey, int]:
        view.held[A], view.first_ms[A] = (60, 70), 3000
        return first_stored_ms(queues)

    monkeypatch.setattr(view, "first_stored_ms", expire_first)
    assert query.trigger(after=10) == {A: 70, B: 10}


def test_replica_with_older_messages_is_no_recreation(view: FakeDriverCluster) -> None:
    view.held[A] = (30, 50)
    query = Query(view)
    query.trigger()
    view.held[A], view.first_ms[A] = (20, 60), 900
    assert query.trigger(after=10) == {A: 60, B: 10}
