"""Ages of files count the time that has passed, whatever the wall clock was set to."""

from __future__ import annotations

import random

import pytest

from rmq_broker.store.cleaning.file_ages import FileAges
from tests.support.clock import Clock
from tests.support.rows import each_row

_MINUTE, _HOUR = 60_000, 3_600_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ages(clock: Clock) -> FileAges:
    return FileAges(clock.clocks)


def _set(clock: Clock, ages: FileAges, hours: float) -> None:
    clock.set_by(hours * 3600)
    ages.look()


def test_without_a_step(clock: Clock, ages: FileAges) -> None:
    assert ages.age_ms(clock.now_ms - 71 * _HOUR) == 71 * _HOUR
    assert ages.age_ms(clock.now_ms) == 0


@pytest.mark.parametrize("hours", [1000, 5, -5, -1000])
def test_files_of_before_a_step(clock: Clock, ages: FileAges, hours: float) -> None:
    modified_ms = clock.now_ms
    clock.pass_seconds(60)
    _set(clock, ages, hours)
    assert ages.age_ms(modified_ms) == _MINUTE
    clock.pass_seconds(60)
    assert ages.age_ms(modified_ms) == 2 * _MINUTE


@pytest.mark.parametrize("hours", [1000, 5, -5, -1000])
def test_files_of_after_a_step(clock: Clock, ages: FileAges, hours: float) -> None:
    _set(clock, ages, hours)
    clock.pass_seconds(60)
    modified_ms = clock.now_ms
    clock.pass_seconds(60)
    assert ages.age_ms(modified_ms) == _MINUTE


def test_files_of_between_two_steps(clock: Clock, ages: FileAges) -> None:
    before_ms = clock.now_ms
    clock.pass_seconds(60)
    _set(clock, ages, 5)
    clock.pass_seconds(60)
    between_ms = clock.now_ms
    clock.pass_seconds(60)
    _set(clock, ages, -5)
    clock.pass_seconds(60)
    assert (ages.age_ms(before_ms), ages.age_ms(between_ms)) == (4 * _MINUTE, 2 * _MINUTE)


def test_a_file_that_is_written_before_a_step_is_noticed(clock: Clock, ages: FileAges) -> None:
    clock.pass_seconds(60)
    clock.set_by(-5 * 3600)
    clock.pass_seconds(1)
    modified_ms = clock.now_ms
    clock.pass_seconds(5)
    assert ages.age_ms(modified_ms) == 5000


def test_of_two_possible_times_the_later_one_counts(clock: Clock, ages: FileAges) -> None:
    """After a step back the clock shows the same times a second time."""
    modified_ms = clock.now_ms
    clock.pass_seconds(2 * 3600)
    _set(clock, ages, -2)
    clock.pass_seconds(3600)
    assert ages.age_ms(modified_ms) == _HOUR


@each_row("seed", range(20))
def test_no_file_is_ever_taken_for_an_older_one(seed: int) -> None:
    chance, clock = random.Random(seed), Clock()
    ages = FileAges(clock.clocks)
    files: list[tuple[int, int]] = []
    for number in range(60):
        clock.pass_seconds(chance.random() * 3600)
        files.append((clock.now_ms, clock.steady_ms()))
        if number % 4 == 0:
            clock.pass_seconds(11)
            _set(clock, ages, chance.choice([-100, -5, -0.1, 0.1, 5, 100]))
        for modified_ms, written_ms in files:
            assert ages.age_ms(modified_ms) <= clock.steady_ms() - written_ms
