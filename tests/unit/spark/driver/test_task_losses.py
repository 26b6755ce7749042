"""Losses between the plan of a batch and its read, as tasks report them and without reports."""

from __future__ import annotations

from typing import cast

import pytest

from pyspark_rocketmq.columns import arrow_schema
from pyspark_rocketmq.driver.loss_collector import LossCollector
from pyspark_rocketmq.driver.stream_offsets import StreamOffsets
from pyspark_rocketmq.driver.task_losses import TaskLosses
from pyspark_rocketmq.offsets import QueueKey, QueueOffsets
from pyspark_rocketmq.options import ReadOptions
from pyspark_rocketmq.spark_versions import HAS_TRIGGER_LIMITS
from pyspark_rocketmq.stream_position import StreamPosition
from pyspark_rocketmq.stream_reader import StreamReader
from pyspark_rocketmq.tasks.loss_reports import LossReport
from pyspark_rocketmq.tasks.partitions import ReportAddress, TaskPartition
from pyspark_rocketmq.tasks.ranges import QueueRange
from tests.unit.spark.fake_driver_cluster import FakeDriverCluster

A, B = QueueKey("T", "a", 0), QueueKey("T", "b", 0)
ADDRESS = ReportAddress("127.0.0.1", 1, "t")


class FakeCollector:
    """Reports that a test puts in place."""

    address = ADDRESS

    def __init__(self) -> None:
        self.report = LossReport()
        self.closed = False

    def take(self) -> LossReport:
        taken, self.report = self.report, LossReport()
        return taken

    def close(self) -> None:
        self.closed = True


class Batches:
    """The losses of a query over the queues A and B."""

    def __init__(self, *, reports: bool = True) -> None:
        self.view = FakeDriverCluster({A: (0, 100), B: (0, 100)})
        self.collector = FakeCollector() if reports else None
        self.opened = 0
        self.found: list[tuple[QueueKey, int, int]] = []
        self.losses = TaskLosses(self.view.as_cluster(), self._open, self._lost)

    def _open(self) -> LossCollector | None:
        self.opened += 1
        return cast("LossCollector | None", self.collector)

    def _lost(self, queue: QueueKey, begin: int, end: int, cause: str) -> None:
        assert cause
        self.found.append((queue, begin, end))

    def settle(self, **ends: int) -> list[tuple[QueueKey, int, int]]:
        """Return the losses that the reader reports once the query has read to these offsets."""
        self.found = []
        start = {queue: ends[queue.broker] for queue in (A, B) if queue.broker in ends}
        self.losses.settle(QueueOffsets(start))
        return self.found


@pytest.fixture
def batches() -> Batches:
    return Batches()


def test_reported_losses_count(batches: Batches) -> None:
    collector = batches.collector
    assert collector is not None
    assert batches.losses.planned([QueueRange(A, 0, 10), QueueRange(B, 0, 5)]) == ADDRESS
    assert batches.losses.planned([]) == ADDRESS
    assert batches.opened == 1
    batches.view.held[A] = (8, 100)
    collector.report = LossReport([QueueRange(A, 0, 10), QueueRange(B, 0, 5)], [QueueRange(A, 3, 6)])
    # The messages 6 and 7 expired after their read.
    assert batches.settle(a=10, b=5) == [(A, 3, 6)]
    assert batches.view.rounds == 0
    assert batches.settle(a=10, b=5) == []
    batches.losses.close()
    assert collector.closed


@pytest.mark.parametrize("reports", [True, False])
def test_expired_messages_that_no_task_reported_count(reports: bool) -> None:
    batches = Batches(reports=reports)
    batches.losses.planned([QueueRange(A, 0, 10), QueueRange(B, 2, 5)])
    batches.view.held = {A: (4, 100), B: (7, 100)}
    if batches.collector is not None:
        batches.collector.report = LossReport([QueueRange(A, 0, 2), QueueRange(A, 3, 10)])
        assert batches.settle(a=10, b=5) == [(A, 2, 3), (B, 2, 5)]
    else:
        assert batches.settle(a=10, b=5) == [(A, 0, 4), (B, 2, 5)]
    assert batches.settle(a=10, b=5) == []


def test_batch_that_has_not_ended_is_not_judged(batches: Batches) -> None:
    batches.losses.planned([QueueRange(A, 0, 10)])
    batches.view.held[A] = (10, 100)
    assert batches.settle(a=0, b=0) == []
    assert batches.settle(a=10, b=0) == [(A, 0, 10)]


def test_broker_that_does_not_answer_is_asked_again(batches: Batches) -> None:
    batches.losses.planned([QueueRange(A, 0, 10)])
    batches.view.held[A] = (4, 100)
    batches.view.away = {A}
    assert batches.settle(a=10) == []
    batches.view.away = set()
    assert batches.settle(a=10) == [(A, 0, 4)]


def test_recreated_queue_is_no_expired_one(batches: Batches) -> None:
    batches.losses.planned([QueueRange(A, 0, 10)])
    batches.view.held[A] = (3, 6)
    assert batches.settle(a=10) == []


def query(view: FakeDriverCluster, collector: FakeCollector, **given: str) -> StreamOffsets:
    where = {"rocketmq.namesrv.addr": "127.0.0.1:9876", "subscribe": "T", "startingOffsets": "earliest"}
    return StreamOffsets(
        view.as_cluster(),
        ReadOptions.for_stream(where | given),
        lambda: 0.0,
        open_collector=lambda *_: cast(LossCollector, collector),
    )


def test_loss_in_the_last_batch_of_a_drain_causes_one_more_batch() -> None:
    """Spark tells a listener about a loss with the progress of a batch."""
    collector = FakeCollector()
    offsets = query(FakeDriverCluster({A: (0, 10)}), collector, failOnDataLoss="false")
    offsets.drain()
    start = StreamPosition(offsets.initial())
    end = offsets.latest(start, all_available=True)
    assert end == StreamPosition(QueueOffsets({A: 10}))
    assert offsets.planned([QueueRange(A, 0, 10)]) == ADDRESS
    collector.report = LossReport([QueueRange(A, 0, 10)], [QueueRange(A, 0, 3)])
    after = offsets.latest(end, all_available=True)
    assert after == StreamPosition(QueueOffsets({A: 10}), lost=3)
    assert [(loss.queue, loss.ranges) for loss in offsets.losses.losses()] == [(A, ((0, 3),))]
    assert offsets.latest(after, all_available=True) == after
    offsets.close()
    assert collector.closed


@pytest.mark.parametrize(("fails", "address"), [("false", ADDRESS), ("true", None)])
def test_partitions_tell_tasks_where_to_report(fails: str, address: ReportAddress | None) -> None:
    where = {"rocketmq.namesrv.addr": "127.0.0.1:9876", "subscribe": "T", "failOnDataLoss": fails}
    collector = FakeCollector()
    offsets = query(FakeDriverCluster({A: (0, 10)}), collector, failOnDataLoss=fails)
    reader = StreamReader(ReadOptions.for_stream(where), arrow_schema(["body"]), offsets)
    (partition,) = reader.partitions({"T": {"a": {"0": 0}}}, {"T": {"a": {"0": 10}}})
    assert isinstance(partition, TaskPartition)
    if not HAS_TRIGGER_LIMITS:
        address = None  # these versions have no place for the report
    assert partition.report_to == address
    reader.stop()
    assert collector.closed == (address is not None)


def test_tasks_of_a_query_that_fails_on_loss_report_nothing() -> None:
    collector = FakeCollector()
    offsets = query(FakeDriverCluster({A: (0, 10)}), collector)
    assert offsets.planned([QueueRange(A, 0, 10)]) is None
    collector.report = LossReport([], [QueueRange(A, 0, 3)])
    start = StreamPosition(offsets.initial())
    assert offsets.latest(start, all_available=True).lost == 0
