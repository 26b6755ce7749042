"""A broker's timer in virtual time, and what becomes of its directory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from rmq_broker.delivery.inner_message import InnerMessage
from tests.unit.broker.delivery.parts import Delivery, inner
from tests.unit.broker.parts import START_MS, Clock

TIMER = "rmq_sys_wheel_timer"
# The clock begins at a full second.
assert START_MS % 1000 == 0


def opened(folder: Path, clock: Clock | None = None, **keys: object) -> Delivery:
    """A directory, opened."""
    return Delivery(folder, clock, **{"mappedFileSizeTimerLog": 4096, **keys})


async def flushed(delivery: Delivery) -> None:
    """Bring the log, and then the timer's files, to the disk."""
    delivery.store.commit_log.flush()
    await delivery.timers.flush()
    assert not delivery.timers.pending.has_changed


@asynccontextmanager
async def killed(delivery: Delivery, folder: Path, **keys: object) -> AsyncIterator[Delivery]:
    """What a killed broker leaves, opened by the next one, at the same time of day."""
    delivery.store.close()
    again = opened(folder, delivery.clock, **keys)
    try:
        yield again
    finally:
        again.store.close()


def with_properties(
    properties: Mapping[str, str], topic: str = "T", body: bytes = b"x", queue_id: int = 0
) -> InnerMessage:
    """A message with these properties."""
    made = inner(topic, body, queue_id=queue_id)
    made.set_properties(properties)
    return made
