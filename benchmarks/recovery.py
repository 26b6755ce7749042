"""Start after `kill -9` under load with a large log: ours and Apache's broker, each on its own directory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from benchmarks.comparison import Figure, Side, alternate
from benchmarks.load import LoadClient
from benchmarks.store_bench import (
    GIBIBYTE,
    StoreBench,
    apache_broker,
    fill,
    load_client,
    own_broker,
    start_seconds,
)
from tests.support.apache import ApacheBroker
from tests.support.own_servers import OwnBroker, OwnNamesrv

_LOG_BYTES = 10 * GIBIBYTE
_RECORD_BYTES = 4096
_TOPIC = "Killed"
_LOAD_BYTES = 1024
# A load that ends with the killed broker.
_ENDLESS_SECONDS = 3600


async def recovery(bench: StoreBench) -> Sequence[Figure]:
    """Ready again after kill -9 under load, with a log of 10 GiB."""
    size = bench.scaled(_LOG_BYTES)
    bench.needs_disk(3 * size)
    folder = bench.folder("recovery")
    figure = Figure(
        f"ready again after kill -9 under load, log of {size / GIBIBYTE:.3g} GiB",
        "s",
        at_most=0.3,
        ours_at_most=2.0,
        must=True,
    )
    for side in ("ours", "peer"):
        await fill(
            folder / side / "store",
            {},
            messages=size // _RECORD_BYTES,
            record_bytes=_RECORD_BYTES,
            topics=4,
            queues=8,
        )
    async with OwnNamesrv() as ours_at, OwnNamesrv() as peer_at:
        ours = own_broker(ours_at.address, folder / "ours")
        peer = apache_broker(peer_at.address, folder / "peer")
        try:
            for broker in (ours, peer):
                await start_seconds(broker)
            await alternate(
                [figure],
                _side(ours, load_client(folder / "client-ours", ours_at.address), bench.seconds),
                _side(peer, load_client(folder / "client-peer", peer_at.address), bench.seconds),
                bench.rounds,
            )
        finally:
            ours.close()
            peer.close()
    return [figure]


def _side(broker: OwnBroker | ApacheBroker, client: LoadClient, load_seconds: int) -> Side:
    async def side() -> Sequence[float]:
        load = asyncio.create_task(client.sync(_TOPIC, size=_LOAD_BYTES, seconds=_ENDLESS_SECONDS))
        # Start of the client, plus one measured period.
        await asyncio.sleep(2 + load_seconds)
        if load.done():
            raise RuntimeError(f"the load ended by itself: {load.exception() or load.result().values}")
        broker.kill()
        load.cancel()
        with suppress(asyncio.CancelledError):
            await load
        return (await start_seconds(broker),)

    return side
