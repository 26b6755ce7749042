"""Push consumers of the SDK on real servers: timing and default settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from rmq_client import ConsumerTiming, PushConsumer

# Short waits; rebalances are rare enough to leave the servers time for other work.
QUICK: Final = ConsumerTiming(
    rebalance_seconds=2.0,
    rebalance_again_seconds=0.1,
    takeover_seconds=0.1,
    commit_seconds=0.2,
    retry_seconds=0.3,
    lock_renewal_seconds=1.0,
)


@asynccontextmanager
async def consumer_of(address: str, topic: str, listener: Any, **options: Any) -> AsyncIterator[PushConsumer]:
    options = {"group": f"g-{topic}", "topics": [topic], "consume_from": "first", "timing": QUICK, **options}
    async with PushConsumer(address, listener=listener, **options) as consumer:
        yield consumer
