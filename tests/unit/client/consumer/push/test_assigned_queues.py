"""The assigned queues of a push consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from rmq_client import ConsumerTiming
from rmq_client.consumer.processing.process_queue import ProcessQueue
from rmq_client.consumer.push.assigned_queues import AssignedQueues, StartOffset
from rmq_client.consumer.rebalancing.rebalance_listener import RebalanceCalls
from rmq_client.consumer.rebalancing.share import Share
from rmq_client.namespaces import NO_NAMESPACE
from tests.unit.client.consumer.listener_support import QUEUE, MemoryOffsets


@pytest.mark.virtual_time
@pytest.mark.parametrize(("sole_member", "seconds"), [(True, 0.0), (False, 0.5)])
async def test_a_taken_queue_is_pulled_once_its_previous_member_could_commit(
    sole_member: bool, seconds: float
) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    tasks: list[asyncio.Task[None]] = []
    pulled: list[float] = []

    async def pull(
        process_queue: ProcessQueue, start_offset: StartOffset | None, takeover_seconds: float
    ) -> None:
        await asyncio.sleep(takeover_seconds)
        pulled.append(loop.time() - began)

    def start(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        tasks.append(asyncio.create_task(work))
        return tasks[-1]

    assigned = AssignedQueues(
        "g",
        cast(Any, None),
        MemoryOffsets(),
        None,
        ConsumerTiming(takeover_seconds=0.5),
        pull,
        start,
        RebalanceCalls(None, loop, NO_NAMESPACE),
    )
    assert await assigned.apply("T", Share(frozenset({QUEUE}), sole_member))
    await asyncio.gather(*tasks)
    assert pulled == [pytest.approx(seconds)]
