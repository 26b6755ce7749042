"""Offsets of a stream on clusters with failures."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from pyspark_rocketmq.driver.stream_offsets import StreamOffsets
from pyspark_rocketmq.errors import DataLoss, SourceUnavailable
from pyspark_rocketmq.offsets import QueueKey, QueueOffsets
from pyspark_rocketmq.options import ReadOptions
from pyspark_rocketmq.stream_position import StreamPosition
from tests.unit.spark.fake_driver_cluster import FakeDriverCluster

A, B, C = QueueKey("T", "a", 0), QueueKey("T", "a", 1), QueueKey("T", "b", 0)


class Query:
    """A stream with a virtual clock. `trigger` runs a batch to its end."""

    def __init__(self, view: FakeDriverCluster, **given: str) -> None:
        self.now = 0.0
        if "subscribePattern" not in given:
            given = {"subscribe": "T", **given}
        options = ReadOptions.for_stream(
            {"rocketmq.namesrv.addr": "127.0.0.1:9876", "brokerTimeout": "10s", **given}
        )
        self.offsets = StreamOffsets(view.as_cluster(), options, lambda: self.now, self.wait)
        self.on_wait: list[Callable[[], None]] = []
        self.position = StreamPosition(self.offsets.initial())

    @property
    def at(self) -> QueueOffsets:
        return self.position.offsets

    def wait(self, seconds: float) -> None:
        self.now += seconds
        for change in self.on_wait:
            change()

    def trigger(self, *, all_available: bool = False, after: float = 1.0) -> QueueOffsets:
        """Run a trigger some seconds after the last one."""
        self.now += after
        self.position = self.offsets.latest(self.position, all_available=all_available)
        return self.at


@pytest.fixture
def view() -> FakeDriverCluster:
    return FakeDriverCluster({A: (5, 50), B: (0, 10)})


def test_stream_begins_at_the_end_or_at_the_given_position(view: FakeDriverCluster) -> None:
    assert Query(view).at == {A: 50, B: 10}
    assert Query(view, startingOffsets="earliest").at == {A: 5, B: 0}


def test_batch_ends_at_the_newest_offset_or_the_limit(view: FakeDriverCluster) -> None:
    query = Query(view, startingOffsets="earliest", maxOffsetsPerTrigger="11")
    assert query.trigger() == {A: 13, B: 3}
    assert query.trigger(all_available=True) == {A: 50, B: 10}
    assert query.trigger() == {A: 50, B: 10}
    assert query.offsets.newest == {A: 50, B: 10}


def test_new_queue_enters_with_its_oldest_message(view: FakeDriverCluster) -> None:
    query = Query(view)
    view.held[C] = (3, 9)
    assert query.trigger() == {A: 50, B: 10, C: 3}
    assert query.trigger() == {A: 50, B: 10, C: 9}


def test_drain_reads_stored_messages_and_ends(view: FakeDriverCluster) -> None:
    query = Query(view, startingOffsets="earliest", maxOffsetsPerTrigger="40", minOffsetsPerTrigger="30")
    view.held[C] = (3, 9)
    query.offsets.drain()
    view.held[A] = (5, 500)
    view.held[QueueKey("T", "b", 7)] = (0, 5)
    ends = [query.trigger() for _ in range(6)]
    assert ends[-1] == ends[-2] == {A: 50, B: 10, C: 9}


def test_drain_waits_for_unreachable_queues(view: FakeDriverCluster) -> None:
    query = Query(view, startingOffsets="earliest")
    view.away = {A}
    query.offsets.drain()

    def back() -> None:
        view.away = set()
        view.held[A] = (5, 60)

    query.on_wait.append(back)
    assert query.trigger(after=0) == {A: 60, B: 10}
    assert 0 < query.now < 1


def test_drain_starting_beyond_its_target_is_no_data_loss(view: FakeDriverCluster) -> None:
    query = Query(view)
    view.held[A] = (5, 40)
    query.offsets.drain()
    view.held[A] = (5, 50)
    assert query.trigger(after=0) == {A: 50, B: 10}
    assert query.now == 0


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize(
    ("held", "error", "text"),
    [
        ({B: (0, 10)}, SourceUnavailable, "no broker has offered these queues.*T/a/0"),
        ({A: (0, 3), B: (0, 10)}, DataLoss, "T/a/0 was read up to 5 and ends at 3"),
    ],
)
def test_drain_without_a_queue_fails_or_warns(
    view: FakeDriverCluster,
    held: dict[QueueKey, tuple[int, int]],
    error: type[Exception],
    text: str,
    fails: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    query = Query(view, startingOffsets="earliest", failOnDataLoss=str(fails), retiredQueues="fail")
    view.held = held
    query.offsets.drain()
    if fails:
        with pytest.raises(error, match=text):
            query.trigger(after=0)
    else:
        assert query.trigger(after=0) == {A: 5, B: 10}
        assert "drain goes on without unreachable queues queues=T/a/0" in caplog.text
    assert query.now == pytest.approx(10.0)


def test_other_queues_go_on_while_a_broker_is_down(view: FakeDriverCluster) -> None:
    query = Query(view, startingOffsets="earliest")
    view.away = {A}
    assert query.trigger() == {A: 5, B: 10}
    view.held[B] = (0, 20)
    assert query.trigger(after=10) == {A: 5, B: 20}
    view.away = set()
    assert query.trigger() == {A: 50, B: 20}
    view.away = {A}
    query.trigger()
    query.trigger(after=10)
    with pytest.raises(SourceUnavailable, match=r"T/a/0.*away"):
        query.trigger()


@pytest.mark.parametrize("fails", [True, False])
def test_queue_that_no_broker_offers_any_more_can_be_an_error(
    view: FakeDriverCluster, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(view, startingOffsets="earliest", failOnDataLoss=str(fails), retiredQueues="fail")
    del view.held[A]
    with caplog.at_level(logging.WARNING, "pyspark_rocketmq.driver"):
        assert query.trigger() == {A: 5, B: 10}
    assert "T/a/0" in caplog.text
    if fails:
        with pytest.raises(SourceUnavailable, match=r"T/a/0.*retiredQueues"):
            query.trigger(after=10.1)
    else:
        assert query.trigger(after=10.1) == {A: 5, B: 10}


@pytest.mark.parametrize("fails", [True, False])
def test_truncated_queue_fails_or_warns(view: FakeDriverCluster, fails: bool) -> None:
    query = Query(view, failOnDataLoss=str(fails))
    view.held[A] = (0, 20)
    assert query.trigger() == {A: 50, B: 10}
    if fails:
        with pytest.raises(DataLoss, match="T/a/0 was read up to 50 and ends at 20"):
            query.trigger(after=10.1)
    else:
        assert query.trigger(after=10.1) == {A: 50, B: 10}
    view.held[A] = (0, 60)
    assert query.trigger() == {A: 60, B: 10}


@pytest.mark.parametrize("drains", [True, False])
def test_truncation_reported_by_a_master_is_an_error_before_the_queue_grows(
    view: FakeDriverCluster, drains: bool
) -> None:
    query = Query(view)
    view.masters = {A, B}
    view.held[A] = (0, 20)
    if drains:
        query.offsets.drain()
    began = query.now
    with pytest.raises(DataLoss, match="T/a/0 was read up to 50 and ends at 20"):
        query.trigger(after=0)
    assert 5 <= query.now - began < 7


def test_restarted_master_gets_a_grace_period(view: FakeDriverCluster) -> None:
    query = Query(view)
    view.masters = {A, B}
    view.held[A] = (0, 20)
    query.on_wait.append(lambda: view.held.update({A: (5, 50)} if query.now > 2 else {}))
    assert query.trigger() == {A: 50, B: 10}
    view.held[A] = (5, 60)
    assert query.trigger() == {A: 60, B: 10}


def test_lagging_replica_is_waited_for(view: FakeDriverCluster) -> None:
    query = Query(view)
    view.masters = {A, B}
    view.held[A] = (0, 20)
    query.on_wait.append(view.masters.clear)
    assert query.trigger(after=0) == {A: 50, B: 10}
    assert query.now < 2


def test_processed_offsets_are_committed_to_the_group(view: FakeDriverCluster) -> None:
    query = Query(view, startingOffsets="earliest", groupId="G", commitOffsetsToGroup="true")
    view.refuses_commits = {A}
    query.trigger()
    assert view.groups["G"] == {B: 0}
    view.refuses_commits = set()
    query.trigger()
    assert view.groups["G"] == {A: 50, B: 10}
    query.trigger()
    assert view.commits == [{B: 0}, {A: 50, B: 10}]


def test_nothing_is_committed_without_the_option(view: FakeDriverCluster) -> None:
    query = Query(view, groupId="G")
    query.trigger()
    assert view.commits == []


def test_batches_without_start_offsets(view: FakeDriverCluster) -> None:
    query = Query(view)
    assert query.offsets.newest_or_last() == {A: 50, B: 10}
    view.away = {A}
    view.held[B] = (0, 12)
    assert query.offsets.newest_or_last() == {A: 50, B: 12}
    view.held = {A: (5, 50), B: (0, 3)}
    query.now += 1
    assert query.offsets.newest_or_last() == {A: 50, B: 12}


def test_batches_without_start_offsets_read_new_queues_from_the_oldest_message(
    view: FakeDriverCluster,
) -> None:
    query = Query(view)
    query.offsets.newest_or_last()
    view.held[C] = (3, 9)
    end = query.offsets.newest_or_last()
    assert query.offsets.begin(query.at, end) == {A: 50, B: 10, C: 3}
    view.held[C] = (30, 90)  # all messages of the batch have expired when it is repeated
    assert query.offsets.begin(query.at, end) == {A: 50, B: 10, C: 9}


@pytest.mark.parametrize("fails", [True, False])
def test_batches_without_start_offsets_and_a_truncated_queue(
    view: FakeDriverCluster, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(view, failOnDataLoss=str(fails))
    view.held[A] = (0, 20)
    end = query.offsets.newest_or_last()
    if fails:
        with pytest.raises(DataLoss, match="T/a/0 was read up to 50 and ends at 20"):
            query.offsets.begin(query.at, end)
    else:
        assert query.offsets.begin(query.at, end) == {A: 20, B: 10}
        assert "T/a/0" in caplog.text


# --- an idle stream ---


def test_idle_stream_asks_at_most_once_a_second(view: FakeDriverCluster) -> None:
    query = Query(view)
    query.trigger(after=0)
    for _ in range(1000):
        query.trigger(after=0.01)
    assert query.now == pytest.approx(10)
    before = view.rounds
    for _ in range(1000):
        query.trigger(after=0.01)
    assert view.rounds - before in {9, 10}


def test_stream_with_work_asks_at_every_trigger(view: FakeDriverCluster) -> None:
    query = Query(view)
    query.trigger()
    for number in range(1, 20):
        view.held[A] = (5, 50 + number)
        assert query.trigger(after=0.01) == {A: 50 + number, B: 10}


def test_message_after_a_short_pause_is_found_soon(view: FakeDriverCluster) -> None:
    query = Query(view)
    query.trigger()
    for _ in range(20):  # 0.2 s without messages
        query.trigger(after=0.01)
    view.held[A] = (5, 60)
    began = query.now
    while query.trigger(after=0.01) != {A: 60, B: 10}:
        assert query.now - began < 0.15
