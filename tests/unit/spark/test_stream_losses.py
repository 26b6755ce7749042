"""Losses of a stream, as counted and as reported."""

from __future__ import annotations

import json

import pytest

from pyspark_rocketmq.offsets import QueueKey
from pyspark_rocketmq.stream_losses import (
    LOST,
    MAX_RANGES,
    LossLedger,
    QueueLoss,
    losses_to_nested,
    split_report,
    uncovered,
)

A, B = QueueKey("T", "a", 0), QueueKey("T", "b", 3)


def test_overlapping_ranges_count_once() -> None:
    ledger = LossLedger()
    assert ledger.record(A, 5, 10) == 5
    assert ledger.record(A, 7, 10) == 0
    assert ledger.record(A, 7, 12) == 2
    assert ledger.record(A, 20, 21) == 1
    assert ledger.losses() == [QueueLoss(A, 8, ((5, 12), (20, 21)))]
    ledger.restart(A)
    assert ledger.record(A, 0, 3) == 3
    assert ledger.losses() == [QueueLoss(A, 11, ((0, 3),))]


def test_ranges_come_in_any_order() -> None:
    ledger = LossLedger()
    assert [ledger.record(A, *part) for part in ((20, 30), (0, 5), (3, 22), (0, 30), (7, 7))] == [
        10,
        5,
        15,
        0,
        0,
    ]
    assert ledger.record(B, 1, 2) == 1
    assert ledger.losses() == [QueueLoss(A, 30, ((0, 30),)), QueueLoss(B, 1, ((1, 2),))]
    assert ledger.messages == 31


def test_ranges_that_are_no_longer_kept_do_not_count_again() -> None:
    ledger = LossLedger()
    for number in range(MAX_RANGES + 1):
        ledger.record(A, 10 * number, 10 * number + 5)
    assert ledger.record(A, 0, 5) == 0
    assert ledger.record(A, 3, 12) == 5  # 5 to 9: of the rest, 10 and 11 are known
    assert ledger.messages == 5 * MAX_RANGES + 10


@pytest.mark.parametrize(
    ("ranges", "parts"),
    [
        ([], [(5, 10)]),
        ([(0, 20)], []),
        ([(5, 6), (8, 9)], [(6, 8), (9, 10)]),
        ([(9, 12), (0, 6)], [(6, 9)]),
        ([(0, 5), (10, 11)], [(5, 10)]),
        ([(6, 9), (6, 7), (7, 8)], [(5, 6), (9, 10)]),
    ],
)
def test_parts_outside_of_ranges(ranges: list[tuple[int, int]], parts: list[tuple[int, int]]) -> None:
    assert uncovered(5, 10, ranges) == parts


def test_only_the_latest_ranges_are_kept() -> None:
    ledger = LossLedger()
    for number in range(100):
        ledger.record(A, 2 * number, 2 * number + 1)
    (loss,) = ledger.losses()
    assert loss.messages == 100
    assert len(loss.ranges) == MAX_RANGES
    assert loss.ranges[-1] == (198, 199)


def test_losses_survive_a_progress_report() -> None:
    ledger = LossLedger()
    ledger.record(B, 1, 3)
    ledger.record(A, 5, 9)
    report = {"T": {"a": {"0": 9}}, LOST: losses_to_nested(ledger.losses())}
    offsets, losses = split_report(json.loads(json.dumps(report)))
    assert offsets == {"T": {"a": {"0": 9}}}
    assert losses == {A: QueueLoss(A, 4, ((5, 9),)), B: QueueLoss(B, 2, ((1, 3),))}


@pytest.mark.parametrize(
    "wrong", [3, {"T": {"a": {"0": 4}}}, {"T": {"a": {"0": {"messages": 1, "ranges": [1]}}}}]
)
def test_unreadable_losses_are_ignored(wrong: object) -> None:
    assert split_report({"T": {}, LOST: wrong}) == ({"T": {}}, {})
    assert split_report("x") == ("x", {})
