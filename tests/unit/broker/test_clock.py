"""The steady clock, and steps of the wall clock."""

from __future__ import annotations

from rmq_broker.clock import ClockSteps, SteadyClock, system_clocks
from tests.support.clock import START_MS, Clock

_HOUR = 3600


def test_the_steady_clock_begins_with_the_wall_clock_and_is_not_set() -> None:
    wall, monotonic_ns = Clock(), 7_000_000_000
    steady = SteadyClock(wall, lambda: monotonic_ns)
    wall.set_by(-5 * _HOUR)
    assert steady() == START_MS
    monotonic_ns += 250_000_000
    assert steady() == START_MS + 250


def test_the_clocks_of_the_machine_agree() -> None:
    clocks = system_clocks()
    assert abs(clocks.now_ms() - clocks.steady_ms()) < 1000
    assert abs(clocks.now_ms() - clocks.now_seconds() * 1000) < 1000


def test_each_step_is_noticed_once() -> None:
    clock = Clock()
    steps = ClockSteps(clock.clocks)
    clock.pass_seconds(_HOUR)
    assert steps.look() == (clock.now_ms, 0)
    clock.set_by(5 * _HOUR)
    clock.pass_seconds(1)
    assert steps.look() == (clock.now_ms, 5 * _HOUR * 1000)
    assert steps.look() == (clock.now_ms, 0)
    clock.set_by(-5 * _HOUR)
    assert steps.look() == (clock.now_ms, -5 * _HOUR * 1000)


def test_a_clock_that_is_slewed_steps_once_the_difference_is_large() -> None:
    clock = Clock()
    steps = ClockSteps(clock.clocks)
    found = []
    for _ in range(12):
        clock.set_by(0.1)
        found.append(steps.look()[1])
    assert found == [0, 0, 0, 0, 500, 0, 0, 0, 0, 500, 0, 0]
