"""Time that a test advances: clocks, and timers of the loop."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest

from rmq_client.loop_thread import LoopThread
from rmq_testing.clock import AdvanceableClock, AdvanceableLoop


def test_all_clocks_advance_together() -> None:
    clock = AdvanceableClock()
    wall_ms, seconds, steady_ms = clock.now_ms(), clock.now_seconds(), clock.steady_ms()
    clock.advance(3600)
    assert 3_600_000 <= clock.now_ms() - wall_ms < 3_660_000
    assert 3600 <= clock.now_seconds() - seconds < 3660
    assert 3_600_000 <= clock.steady_ms() - steady_ms < 3_660_000
    assert clock.clocks.now_ms() == pytest.approx(clock.now_ms(), abs=60_000)


def test_time_is_not_set_back() -> None:
    with pytest.raises(ValueError, match=r"seconds=-0\.5: time cannot be set back"):
        AdvanceableClock().advance(-0.5)


def test_a_sleep_on_the_loop_ends_when_time_is_advanced() -> None:
    clock = AdvanceableClock()
    thread = LoopThread("advanceable", partial(AdvanceableLoop, clock))
    try:
        began = time.monotonic()
        sleeping = thread.submit(asyncio.sleep(3600, "woken"))
        thread.submit(asyncio.sleep(0)).result()
        assert not sleeping.done()
        clock.advance(3600)
        thread.submit(asyncio.sleep(0)).result()
        assert sleeping.result(10) == "woken"
        assert time.monotonic() - began < 10
    finally:
        thread.signal_stop()
        thread.join()
