"""The signatures of the sends within the replay window."""

from __future__ import annotations

import pytest

from rmq_broker.access.replay_window import ReplayWindow
from rmq_remoting.errors import CommandError
from tests.support.clock import Clock

_START_MS = 1_700_000_000_500
_WINDOW_MS = 60_000
_HOST = "10.0.0.1"


@pytest.fixture
def clock() -> Clock:
    return Clock(_START_MS)


@pytest.fixture
def window(clock: Clock) -> ReplayWindow:
    window = ReplayWindow(_WINDOW_MS, clock)
    clock.now_ms += 1
    return window


def _refusal(window: ReplayWindow, signature: str, born_ms: int) -> str:
    with pytest.raises(CommandError) as refusal:
        window.enter(signature, born_ms, _HOST)
    assert refusal.value.code == 16
    assert window.find(signature) is None
    return refusal.value.remark


def test_a_send_is_found_until_its_time_is_over(clock: Clock, window: ReplayWindow) -> None:
    send = window.enter("s", clock.now_ms, _HOST)
    window.answered("s", b"answer", 6)
    assert window.find("s") is send
    assert (send.host, send.answer) == (_HOST, b"answer")
    born_ms = clock.now_ms
    clock.now_ms += _WINDOW_MS - 1
    window.enter("t", clock.now_ms, _HOST)
    assert window.find("s") is send
    clock.now_ms += 1001
    window.enter("u", clock.now_ms, _HOST)
    assert window.find("s") is None
    assert "61.0 s ago, outside signatureReplayWindowSeconds=60" in _refusal(window, "s", born_ms)


def test_sends_of_the_future(clock: Clock, window: ReplayWindow) -> None:
    window.enter("s", clock.now_ms + _WINDOW_MS, _HOST)
    remark = _refusal(window, "t", clock.now_ms + _WINDOW_MS + 1)
    assert "60.0 s in the future, outside signatureReplayWindowSeconds=60" in remark


def test_sends_from_before_the_start(window: ReplayWindow) -> None:
    assert "before the broker was started" in _refusal(window, "s", _START_MS)
    window.enter("s", _START_MS + 1, _HOST)


def test_no_send_is_served_again_after_a_clock_step_back(clock: Clock, window: ReplayWindow) -> None:
    born_ms = clock.now_ms
    window.enter("s", born_ms, _HOST)
    clock.now_ms += 3_600_000
    window.enter("t", clock.now_ms, _HOST)
    clock.now_ms = born_ms
    assert window.find("s") is None
    _refusal(window, "s", born_ms)
    _refusal(window, "u", clock.now_ms)


def test_a_send_without_effect_may_be_sent_again(clock: Clock, window: ReplayWindow) -> None:
    window.enter("s", clock.now_ms, _HOST)
    window.forget("s")
    assert (window.find("s"), window.size_bytes) == (None, 0)
    window.enter("s", clock.now_ms, _HOST)
    window.forget("s")
    window.forget("s")
    window.answered("s", b"late", 4)
    assert (len(window), window.size_bytes) == (0, 0)


def test_all_memory_is_given_back(clock: Clock, window: ReplayWindow) -> None:
    for number in range(1000):
        window.enter(str(number), clock.now_ms + number * 20, _HOST)
        window.answered(str(number), b"answer", 200)
    assert window.size_bytes == 600_000
    clock.now_ms += 2 * _WINDOW_MS
    window.enter("last", clock.now_ms, _HOST)
    assert (len(window), window.size_bytes) == (1, 400)


def test_full_memory_closes_the_seconds_farthest_from_now(clock: Clock) -> None:
    window = ReplayWindow(_WINDOW_MS, clock, max_bytes=3 * 400)
    now_ms = clock.now_ms = _START_MS + 30_000
    window.enter("old", now_ms - 20_000, _HOST)
    window.enter("near", now_ms - 1000, _HOST)
    window.enter("ahead", now_ms + 40_000, _HOST)
    window.enter("now", now_ms, _HOST)
    assert [window.find(each) is not None for each in ("old", "near", "ahead", "now")] == [
        True,
        True,
        False,
        True,
    ]
    assert "too many sends were signed" in _refusal(window, "ahead", now_ms + 40_000)
    window.enter("more", now_ms + 1, _HOST)
    _refusal(window, "old", now_ms - 20_000)
    assert window.size_bytes <= 3 * 400
    assert window.closed_seconds == 2
    clock.now_ms += 2 * _WINDOW_MS
    window.enter("later", clock.now_ms, _HOST)
    assert "outside" in _refusal(window, "ahead", now_ms + 40_000)
