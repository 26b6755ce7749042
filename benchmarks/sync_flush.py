"""Sends that are answered after a flush (SYNC_FLUSH): ours and Apache's broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack

from benchmarks.comparison import Figure, Side, alternate, count_failed
from benchmarks.load import WARM_UP_SECONDS, LoadClient, LoadResult
from benchmarks.store_bench import StoreBench, apache_broker, load_client, own_broker
from tests.support.own_servers import OwnNamesrv

_TOPIC = "SyncFlush"
_SYNC = {"flushDiskType": "SYNC_FLUSH"}
_BYTES = 1024

_Measure = Callable[[LoadClient, int], Awaitable[LoadResult]]


async def sync_flush(bench: StoreBench) -> Sequence[Figure]:
    """SYNC_FLUSH: sends of 1 KiB with 64 threads, and with one."""
    async with AsyncExitStack() as stack:
        ours_at = await stack.enter_async_context(OwnNamesrv())
        peer_at = await stack.enter_async_context(OwnNamesrv())
        folder = bench.folder("sync-flush")
        await stack.enter_async_context(own_broker(ours_at.address, folder / "ours", _SYNC))
        await stack.enter_async_context(apache_broker(peer_at.address, folder / "peer", _SYNC))
        clients = {}
        for side, address in (("ours", ours_at.address), ("peer", peer_at.address)):
            client = load_client(folder / f"client-{side}", address, keep_running=True)
            clients[side] = stack.enter_context(client)
            print(f"  warming up {side} for {bench.warm_up_seconds} s", flush=True)
            await _many(client, bench.warm_up_seconds)
        many = Figure("SYNC_FLUSH: synchronous sends, 64 threads, 1 KiB", "messages/s", at_least=1.5)
        one = Figure("SYNC_FLUSH: the same with one thread", "messages/s", at_least=1.0)
        for figure, measure in ((many, _many), (one, _one)):
            ours, peer = (_side(measure, clients, side, bench.seconds, figure) for side in clients)
            await alternate([figure], ours, peer, bench.rounds, warm_up=True)
        return [many, one]


async def _many(client: LoadClient, seconds: int) -> LoadResult:
    return await client.sync(_TOPIC, size=_BYTES, seconds=seconds, warmup_s=WARM_UP_SECONDS)


async def _one(client: LoadClient, seconds: int) -> LoadResult:
    return await client.one_thread(_TOPIC, size=_BYTES, seconds=seconds, warmup_s=WARM_UP_SECONDS)


def _side(
    measure: _Measure, clients: Mapping[str, LoadClient], side: str, seconds: int, figure: Figure
) -> Side:
    async def once() -> Sequence[float]:
        result = await measure(clients[side], seconds)
        count_failed([figure], side, result)
        return (result.messages_per_second,)

    return once
