"""The pull size follows the answers of a broker."""

from __future__ import annotations

from pyspark_rocketmq.tasks.pull_size import FilteredSpan, PullSize


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


def test_span_of_filtered_answers_is_guessed_low() -> None:
    span = FilteredSpan()
    assert span.current == 0
    span.answered(8192, 320)
    assert span.current == 280
    span.answered(280, 360)
    assert span.current == 290
    span.answered(290, 80)
    assert span.current == 70
    span.answered(3, 3)  # the rest of a piece says nothing
    assert span.current == 70
    span.answered(70, 0)
    assert span.current == 1
