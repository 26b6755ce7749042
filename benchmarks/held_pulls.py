"""5,000 held pulls: their CPU time while idle, and their latency when a message arrives."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from benchmarks.comparison import Figure, repeat
from benchmarks.store_bench import StoreBench, own_broker
from rmq_remoting.codes import RequestCode
from tests.support.broker_requests import create_topic, pull, pulled, request, send, sent, succeeded
from tests.support.own_servers import OwnBroker, OwnNamesrv
from tests.support.raw_client import RawClient, raw_client

_PULLS = 5000
_EACH_ITS_OWN = "HeldApart"
_ALL_ON_ONE = "HeldTogether"
# Longer than a round takes, shorter than the broker's limit.
_HOLD_MS = 29_000
_IDLE_SECONDS = 10.0
_WAKE_UPS = 50


async def held_pulls(bench: StoreBench) -> Sequence[Figure]:
    """5,000 held pulls: CPU while nothing arrives; one is woken; all are woken."""
    count = bench.scaled(_PULLS)
    figures = [
        Figure(f"{count:,} held pulls, nothing arrives: broker CPU", "% of a core", ours_at_most=0.5),
        Figure("one of them is woken: from send to message, the slowest of 50", "ms", ours_at_most=10.0),
        Figure("all of them, on one queue, are woken: from send to last message", "s", ours_at_most=1.0),
    ]
    settings = {"maxTopicQueueNums": str(_PULLS)}
    async with (
        OwnNamesrv() as namesrv,
        own_broker(namesrv.address, bench.folder("held-pulls"), settings) as broker,
        raw_client(broker.port) as sender,
        _clients(broker, count) as clients,
    ):
        for topic, queues in ((_EACH_ITS_OWN, count), (_ALL_ON_ONE, 1)):
            succeeded(await sender.ask(create_topic(topic, queues)))

        async def side() -> Sequence[float]:
            return (
                await _idle_percent(broker, clients),
                await _slowest_wake_up_ms(sender, clients),
                await _all_woken_seconds(sender, clients),
            )

        await repeat(figures, side, bench.rounds)
    return figures


@asynccontextmanager
async def _clients(broker: OwnBroker, count: int) -> AsyncIterator[list[RawClient]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(raw_client(broker.port)) for _ in range(count)]


async def _idle_percent(broker: OwnBroker, clients: list[RawClient]) -> float:
    """Hold one pull per client on a separate queue, and measure the broker's CPU time."""
    for queue_id, client in enumerate(clients):
        offset = await _end_of(client, _EACH_ITS_OWN, queue_id)
        client.send(pull(_EACH_ITS_OWN, queue_id=queue_id, offset=offset, suspend_ms=_HOLD_MS))
    await asyncio.sleep(1)
    before = broker.usage().cpu_seconds
    await asyncio.sleep(_IDLE_SECONDS)
    return 100 * (broker.usage().cpu_seconds - before) / _IDLE_SECONDS


async def _slowest_wake_up_ms(sender: RawClient, clients: list[RawClient]) -> float:
    """Send to some of the queues, one after the other; the remaining pulls are answered afterwards."""
    slowest = 0.0
    step = max(1, len(clients) // _WAKE_UPS)
    for queue_id in range(0, len(clients), step):
        began = time.perf_counter()
        sender.send(send(_EACH_ITS_OWN, queue_id=queue_id))
        assert len(pulled(await clients[queue_id].receive())) == 1
        slowest = max(slowest, time.perf_counter() - began)
        sent(await sender.receive())
    for queue_id, client in enumerate(clients):
        if queue_id % step:
            sent(await sender.ask(send(_EACH_ITS_OWN, queue_id=queue_id)))
            await client.receive()
    return slowest * 1000


async def _all_woken_seconds(sender: RawClient, clients: list[RawClient]) -> float:
    end = await _end_of(sender, _ALL_ON_ONE, 0)
    for client in clients:
        client.send(pull(_ALL_ON_ONE, offset=end, suspend_ms=_HOLD_MS))
    await asyncio.sleep(1)
    began = time.perf_counter()
    sender.send(send(_ALL_ON_ONE))
    for answer in await asyncio.gather(*(client.receive() for client in clients)):
        assert len(pulled(answer)) == 1
    seconds = time.perf_counter() - began
    sent(await sender.receive())
    return seconds


async def _end_of(client: RawClient, topic: str, queue_id: int) -> int:
    answer = await client.ask(request(RequestCode.GET_MAX_OFFSET, topic=topic, queueId=queue_id))
    return int(answer.ext_fields["offset"])
