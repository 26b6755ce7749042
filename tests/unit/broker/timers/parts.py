"""A broker's timer in virtual time, and its directory after stops, kills and power cuts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from rmq_broker.delivery.inner_message import InnerMessage
from tests.support.clock import START_MS, Clock
from tests.unit.broker.delivery.parts import DeliveryBroker, inner

TIMER = "rmq_sys_wheel_timer"
# The clock begins at a full second.
assert START_MS % 1000 == 0


def opened(folder: Path, clock: Clock | None = None, **keys: object) -> DeliveryBroker:
    """Open a directory."""
    return DeliveryBroker(folder, clock, **{"mappedFileSizeTimerLog": 4096, **keys})


async def flushed(delivery: DeliveryBroker) -> None:
    """Flush the commit log, then write the timer's files."""
    delivery.store.commit_log.flush()
    await delivery.timers.flush()
    assert not delivery.timers.pending.has_changed


@asynccontextmanager
async def killed(delivery: DeliveryBroker, folder: Path, **keys: object) -> AsyncIterator[DeliveryBroker]:
    """Open the directory of a killed broker, at the same time."""
    delivery.store.close()
    delivery.clock.restart()
    again = opened(folder, delivery.clock, **keys)
    try:
        yield again
    finally:
        again.store.close()


def with_properties(
    properties: Mapping[str, str], topic: str = "T", body: bytes = b"x", queue_id: int = 0
) -> InnerMessage:
    """Return a message with these properties."""
    made = inner(topic, body, queue_id=queue_id)
    made.set_properties(properties)
    return made
