"""A relay that adds latency to a server, in both directions and in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from tests.support.proxy import FaultProxy

_CHUNK_BYTES: Final = 65_536


class SlowRelay(FaultProxy):
    """Forwards connections; data that arrives while `delay_seconds` is set is delayed. It may be changed."""

    delay_seconds = 0.0

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, from_server: bool
    ) -> None:
        loop = asyncio.get_running_loop()
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                due, data = await under_way.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                writer.write(data)
                await writer.drain()

        delivering = asyncio.ensure_future(deliver())
        try:
            with suppress(OSError):
                while data := await reader.read(_CHUNK_BYTES):
                    # Half of the delay in each direction.
                    under_way.put_nowait((loop.time() + self.delay_seconds / 2, data))
        finally:
            delivering.cancel()
            await asyncio.gather(delivering, return_exceptions=True)


@asynccontextmanager
async def slow_relay(host: str, port: int, target: tuple[str, int]) -> AsyncIterator[SlowRelay]:
    """A relay that listens on host:port."""
    relay = SlowRelay(*target, listen_host=host, listen_port=port)
    await relay.listen()
    try:
        yield relay
    finally:
        await relay.close()
