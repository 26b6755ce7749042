"""Shared parts of tests of push consumers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from rmq_client import ConsumerTiming, MessageExt, PushConsumer
from tests.support.clusters import RunningCluster
from tests.support.fake_cluster import FakeCluster

# All intervals of a consumer, short enough for tests.
QUICK: Final = ConsumerTiming(
    rebalance_seconds=1.0,
    rebalance_again_seconds=0.02,
    takeover_seconds=0.02,
    commit_seconds=0.05,
    retry_seconds=0.1,
    lock_renewal_seconds=0.05,
    flow_control_pause_seconds=0.01,
    busy_pause_seconds=0.01,
    error_pause_seconds=0.05,
    suspended_pause_seconds=0.01,
    stop_grace_seconds=5.0,
)


class Inbox:
    """A listener that keeps its messages."""

    def __init__(self) -> None:
        self.messages: list[MessageExt] = []
        self.threads: set[str] = set()

    def __call__(self, messages: list[MessageExt]) -> None:
        self.threads.add(threading.current_thread().name)
        self.messages += messages

    async def as_coroutine(self, messages: list[MessageExt]) -> None:
        self(messages)

    @property
    def bodies(self) -> list[bytes]:
        return sorted(message.body for message in self.messages)


@asynccontextmanager
async def consumer_of(
    cluster: RunningCluster | FakeCluster, listener: Any, **options: Any
) -> AsyncIterator[PushConsumer]:
    options = {"group": "g", "topics": ["T"], "consume_from": "first", "timing": QUICK, **options}
    async with PushConsumer(cluster.address, listener=listener, **options) as consumer:
        yield consumer


def put(cluster: RunningCluster | FakeCluster, count: int, queues: int = 4) -> list[bytes]:
    """Store messages `000`, `001` ... in the queues in turn."""
    bodies = [b"%03d" % number for number in range(count)]
    for number, body in enumerate(bodies):
        cluster.broker.put("T", body, queue_id=number % queues)
    return bodies


async def until_assigned(consumer: PushConsumer, count: int, timeout_seconds: float = 5.0) -> None:
    async with asyncio.timeout(timeout_seconds):
        while len(await consumer.assigned_queues()) != count:  # noqa: ASYNC110  # another thread rebalances
            await asyncio.sleep(0.01)
