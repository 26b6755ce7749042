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
