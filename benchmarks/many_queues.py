"""20,000 queues in 2,000 topics, with 4,096 descriptors: start, memory, and the rate of sends to all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from benchmarks.comparison import Figure, Side, alternate, count_failed, repeat
from benchmarks.filling import TOPIC_PREFIX
from benchmarks.load import LoadClient
from benchmarks.store_bench import MEBIBYTE, StoreBench, fill, load_client, start_seconds
from tests.support.own_servers import OwnBroker, OwnNamesrv

_TOPICS = 2000
_QUEUES = 10
_MESSAGES_PER_QUEUE = 20
_RECORD_BYTES = 256
_DESCRIPTORS = 4096
_IDLE_SECONDS = 3


async def many_queues(bench: StoreBench) -> Sequence[Figure]:
    """20,000 queues in 2,000 topics: start, memory, rate."""
    topics = bench.scaled(_TOPICS)
    queues = topics * _QUEUES
    folder = bench.folder("many-queues")
    await fill(
        folder / "store",
        {},
        messages=queues * _MESSAGES_PER_QUEUE,
        record_bytes=_RECORD_BYTES,
        topics=topics,
        queues=_QUEUES,
    )
    what = f"{queues:,} queues in {topics:,} topics"
    starting = [
        Figure(f"{what}: from exec to ready", "s", ours_at_most=5.0),
        Figure(f"{what}: memory without mapped files", "MiB", ours_at_most=400.0),
    ]
    rate = Figure(
        f"{what}: synchronous sends to all, 64 threads, beside one topic", "messages/s", at_least=0.9
    )
    loaded = Figure(f"{what}: memory without mapped files after these sends", "MiB", ours_at_most=400.0)
    async with OwnNamesrv() as namesrv:
        broker = _LimitedBroker(namesrv.address, home=folder)
        try:
            await repeat(starting, _start(broker), bench.rounds)
            await start_seconds(broker)
            with load_client(folder / "client", namesrv.address, keep_running=True) as client:
                await alternate(
                    [rate],
                    _sends(client, topics, bench.seconds, rate),
                    _sends(client, 0, bench.seconds, rate),
                    bench.rounds,
                    warm_up=True,
                )
            loaded.ours.append(broker.usage().anonymous_bytes / MEBIBYTE)
            await broker.stop(timeout_s=60)
        finally:
            broker.close()
    return [*starting, rate, loaded]


class _LimitedBroker(OwnBroker):
    """Our broker with a hard limit of file descriptors."""

    def _command(self) -> Sequence[str]:
        return ["prlimit", f"--nofile={_DESCRIPTORS}:{_DESCRIPTORS}", *super()._command()]


def _start(broker: OwnBroker) -> Side:
    async def side() -> Sequence[float]:
        seconds = await start_seconds(broker)
        await asyncio.sleep(_IDLE_SECONDS)
        memory = broker.usage().anonymous_bytes / MEBIBYTE
        await broker.stop(timeout_s=60)
        return seconds, memory

    return side


def _sends(client: LoadClient, topics: int, seconds: int, figure: Figure) -> Side:
    async def side() -> Sequence[float]:
        if topics:
            result = await client.sync(TOPIC_PREFIX, topics=topics, queues=_QUEUES, seconds=seconds)
        else:
            result = await client.sync("OneTopic", seconds=seconds)
        count_failed([figure], "ours" if topics else "peer", result)
        return (result.messages_per_second,)

    return side
