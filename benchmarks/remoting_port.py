"""The proxy's remoting port beside the broker's own port: sends and pulls of the SDK.

python -m benchmarks.remoting_port
python -m benchmarks.remoting_port --rounds 1 --seconds 1     a trial

Broker, proxy and client are processes of their own on one machine, so they compete for its cores. "ours" is
the way through the proxy, and "peer" the broker's own port.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from typing import Final

from benchmarks.comparison import Figure, Side, alternate
from benchmarks.ours import our_servers
from rmq_client import Message, Producer, PullConsumer
from rmq_client.admin import Admin
from tests.support.own_servers import OwnProxy
from tests.support.ports import LOOPBACK, free_port

_TOPIC: Final = "Bench"
_QUEUES: Final = 4
_SENDERS: Final = 64
_BODY: Final = bytes(1024)


async def _send(producer: Producer, seconds: float) -> tuple[float, int]:
    """Send from concurrent callers; return the messages a second, and their number."""
    ends_at = time.perf_counter() + seconds
    sent = 0

    async def sender() -> None:
        nonlocal sent
        while time.perf_counter() < ends_at:
            await producer.send(Message(_TOPIC, _BODY))
            sent += 1

    began = time.perf_counter()
    await asyncio.gather(*(sender() for _ in range(_SENDERS)))
    return sent / (time.perf_counter() - began), sent


async def _read(address: str, count: int) -> float:
    """Read messages of all queues from the beginning; return the messages a second."""
    async with PullConsumer(address, group="bench-reader", consume_from="first") as reader:
        queues = await reader.queues(_TOPIC)
        await reader.assign(queues)
        for queue in queues:
            await reader.seek(queue, 0)
        began, read = time.perf_counter(), 0
        while read < count:
            read += len(await reader.poll(max_messages=1000, timeout_seconds=10))
        return read / (time.perf_counter() - began)


async def compare(rounds: int, seconds: float) -> list[Figure]:
    """Measure both ways in turns, and print the figures."""
    async with contextlib.AsyncExitStack() as stack:
        servers = await stack.enter_async_context(our_servers())
        port = free_port()
        await stack.enter_async_context(
            OwnProxy(servers.namesrv_address, settings={"remotingListenPort": str(port)})
        )
        async with Admin(servers.namesrv_address) as admin:
            await admin.create_topic(_TOPIC, queues=_QUEUES)
        addresses = {"proxy": f"{LOOPBACK}:{port}", "broker": servers.namesrv_address}
        producers = {
            name: await stack.enter_async_context(Producer(address, group="bench"))
            for name, address in addresses.items()
        }
        stored = 0

        def sending(name: str) -> Side:
            async def run() -> tuple[float, ...]:
                nonlocal stored
                rate, count = await _send(producers[name], seconds)
                stored += count
                return (rate,)

            return run

        def reading(name: str) -> Side:
            async def run() -> tuple[float, ...]:
                return (await _read(addresses[name], stored),)

            return run

        sends = Figure(f"sends of 1 KiB, {_SENDERS} callers", "messages/s")
        await alternate([sends], sending("proxy"), sending("broker"), rounds, warm_up=True)
        reads = Figure("reads by one pull consumer", "messages/s")
        await alternate([reads], reading("proxy"), reading("broker"), rounds, warm_up=True)
        return [sends, reads]


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description="The proxy's remoting port beside the broker's own port.")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of measurements of each load")
    parser.add_argument("--seconds", type=float, default=5.0, help="time of one measurement of sends")
    options = parser.parse_args()
    asyncio.run(compare(options.rounds, options.seconds))


if __name__ == "__main__":
    main()
