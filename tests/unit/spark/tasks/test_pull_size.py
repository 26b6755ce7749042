"""The pull size follows the answers of a broker."""

from __future__ import annotations

from pyspark_rocketmq.tasks.pull_size import PullSize


def test_short_answer_reduces_the_size_at_once() -> None:
    size = PullSize(1024)
    assert size.current == 1024
    size.answered(1024, 32)
    assert size.current == 32
    size.answered(32, 1)
    assert size.current == 1
    size.answered(1, 0)
    assert size.current == 1


def test_size_grows_after_many_full_answers() -> None:
    size = PullSize(100)
    size.answered(100, 32)
    for _ in range(63):
        size.answered(32, 32)
    assert size.current == 32
    size.answered(32, 32)
    assert size.current == 64
    for _ in range(64):
        size.answered(64, 64)
    assert size.current == 100


def test_small_requests_and_late_answers_are_ignored() -> None:
    size = PullSize(64)
    size.answered(64, 32)
    for _ in range(200):
        size.answered(5, 5)  # the rest of a range
    assert size.current == 32
    size.answered(64, 40)  # requested before
    assert size.current == 32
