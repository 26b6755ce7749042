"""A broker's directory after a crash, or after a stop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.unit.broker.pop.parts import PopBroker, pop_broker


@asynccontextmanager
async def opened_again(
    broker: PopBroker, offsets: bytes, orders: bytes | None = None
) -> AsyncIterator[PopBroker]:
    """The same directory, with the offsets (and the ordered pops) of the last write."""
    broker.close()
    broker.clock.restart()
    with pop_broker(broker.folder, broker.clock) as again:
        again.offsets.decode(offsets)
        if orders is not None:
            again.pops.orders.decode(orders)
        await again.pops.load()
        yield again
