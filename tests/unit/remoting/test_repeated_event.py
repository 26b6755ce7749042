"""Events that a peer can repeat: one line in the log per interval."""

from __future__ import annotations

import asyncio

import pytest

from rmq_remoting.repeated_event import RepeatedEvent


@pytest.mark.virtual_time
async def test_one_line_per_interval_with_the_count_since_the_last() -> None:
    event = RepeatedEvent(10.0)
    assert [event.occurred() for _ in range(3)] == [1, 0, 0]
    await asyncio.sleep(9.9)
    assert event.occurred() == 0
    await asyncio.sleep(0.2)
    assert [event.occurred(), event.occurred()] == [4, 0]
