"""Options are resolved to queues and offsets."""

from __future__ import annotations

import re
from typing import Literal

import pytest

from pyspark_rocketmq.driver.offset_resolution import offered_queues, resolve, selected_queues
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.offsets import EARLIEST, LATEST, QueueKey, QueueOffsets
from pyspark_rocketmq.options import Anchor, AtOffsets, AtTime, AtTimes, Position, ReadOptions
from tests.unit.spark.fake_driver_cluster import FakeDriverCluster

A, B, C = QueueKey("T", "a", 0), QueueKey("T", "a", 1), QueueKey("T", "b", 0)
OTHER = QueueKey("U", "a", 0)


@pytest.fixture
def view() -> FakeDriverCluster:
    view = FakeDriverCluster({A: (5, 50), B: (0, 10), C: (7, 70), OTHER: (0, 1)})
    view.groups["G"] = {A: 20}
    view.times = {queue: {1000: queue.queue_id + 30} for queue in (A, B, C)}
    return view


def options(**given: str) -> ReadOptions:
    return ReadOptions.for_batch({"rocketmq.namesrv.addr": "127.0.0.1:9876", **given})


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"subscribe": "T"}, [A, B, C]),
        ({"subscribe": "U,T"}, [A, B, C, OTHER]),
        ({"subscribePattern": "[TU]"}, [A, B, C, OTHER]),
        ({"subscribePattern": "V"}, []),
        ({"assign": '{"T": {"b": [0], "a": [1]}}'}, [B, C]),
    ],
)
def test_selected_queues(view: FakeDriverCluster, given: dict[str, str], wanted: list[QueueKey]) -> None:
    assert selected_queues(view.as_cluster(), options(**given)) == wanted
    assert list(offered_queues(view.as_cluster(), options(**given)).queues) == wanted


def test_missing_assigned_queue_is_rejected(view: FakeDriverCluster) -> None:
    with pytest.raises(OptionError, match=re.escape("T/a/9")):
        selected_queues(view.as_cluster(), options(assign='{"T": {"a": [0, 9]}}'))


def test_assigned_queue_of_an_absent_broker_is_kept(view: FakeDriverCluster) -> None:
    given = options(assign='{"T": {"a": [0], "z": [3]}}')
    assert selected_queues(view.as_cluster(), given) == [A, QueueKey("T", "z", 3)]
    assert offered_queues(view.as_cluster(), given).queues == (A,)


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (Anchor.EARLIEST, [5, 0, 7]),
        (Anchor.LATEST, [50, 10, 70]),
        (Anchor.GROUP, [20, 0, 7]),
        (AtTime(1000), [30, 31, 30]),
        (AtTimes(QueueOffsets({B: 1000})), [50, 31, 70]),
        (AtOffsets(QueueOffsets({A: 33, B: EARLIEST, C: LATEST})), [33, 0, 70]),
        (AtOffsets(QueueOffsets({C: 8})), [50, 10, 8]),
    ],
)
def test_positions_are_resolved_to_offsets(
    view: FakeDriverCluster, position: Position, expected: list[int]
) -> None:
    found = resolve(view.as_cluster(), [A, B, C], position, Anchor.LATEST, "G")
    assert list(found.items()) == list(zip([A, B, C], expected, strict=True))


@pytest.mark.parametrize(
    ("position", "option"),
    [
        (AtTime(1000, must_exist=True), "startingTimestamp"),
        (AtTimes(QueueOffsets({A: 1000, B: 1000}), must_exist=True), "startingOffsetsByTimestamp"),
    ],
)
def test_times_after_the_last_message_are_rejected_if_one_must_exist(
    view: FakeDriverCluster, position: Position, option: str
) -> None:
    view.times[B] = {1000: 9}
    found = resolve(view.as_cluster(), [A, B, C], position, Anchor.EARLIEST, "G")
    assert found[A] == 30
    assert found[B] == 9
    view.times[B] = {1000: 10}  # the end of B: it has no message at that time or later
    with pytest.raises(OptionError, match=re.escape("T/a/1 has none since 1000 ms")) as raised:
        resolve(view.as_cluster(), [A, B, C], position, Anchor.EARLIEST, "G")
    assert raised.value.option == option


@pytest.mark.parametrize("edge", ["starting", "ending"])
@pytest.mark.parametrize("by_time", [True, False])
def test_positions_in_missing_queues_are_rejected(
    view: FakeDriverCluster, edge: Literal["starting", "ending"], by_time: bool
) -> None:
    named = QueueOffsets({A: 1000, QueueKey("T", "a", 7): 1000})
    position, option = (
        (AtTimes(named), f"{edge}OffsetsByTimestamp") if by_time else (AtOffsets(named), f"{edge}Offsets")
    )
    with pytest.raises(OptionError, match=re.escape("T/a/7")) as raised:
        resolve(view.as_cluster(), [A, B, C], position, Anchor.LATEST, "G", edge)
    assert raised.value.option == option


def test_positions_in_queues_of_absent_brokers_are_logged(
    view: FakeDriverCluster, caplog: pytest.LogCaptureFixture
) -> None:
    position = AtOffsets(QueueOffsets({A: 9, QueueKey("T", "z", 0): 3}))
    found = resolve(view.as_cluster(), [A, B], position, Anchor.LATEST, "G")
    assert found == {A: 9, B: 10}
    assert "offsets of missing queues ignored" in caplog.text
    assert "T/z/0" in caplog.text
