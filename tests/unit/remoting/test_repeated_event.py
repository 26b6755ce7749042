"""Events that a peer can repeat: one line in the log per interval."""

from __future__ import annotations

from rmq_remoting.repeated_event import RepeatedEvent


def test_one_line_per_interval_with_the_count_since_the_last() -> None:
    now_seconds = 100.0
    event = RepeatedEvent(10.0, lambda: now_seconds)
    assert [event.occurred() for _ in range(3)] == [1, 0, 0]
    now_seconds += 9.9
    assert event.occurred() == 0
    now_seconds += 0.2
    assert [event.occurred(), event.occurred()] == [4, 0]
