"""A body, times and the start of a RocketBroker for tests with a real broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from pydantic import BaseModel

from rmq_faststream import RocketBroker

SECONDS: Final = 10.0
# Delay of the first redelivery (Apache RocketMQ 5.3.3, MessageStoreConfig).
FIRST_RETRY_SECONDS: Final = 10


class Order(BaseModel):
    """The body of a message."""

    number: int


@asynccontextmanager
async def started(broker: RocketBroker) -> AsyncIterator[RocketBroker]:
    """Start a broker for the block of `async with`."""
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()
