"""A relay that makes a server slow: everything arrives later, in its order, as over a long line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

_CHUNK_BYTES: Final = 65_536


class SlowRelay:
    """Passes connections on. What comes while `delay_seconds` is set waits for so long; it may be changed."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.delay_seconds = 0.0
        self._target = target
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int) -> None:
        """Start."""
        self._server = await asyncio.start_server(self._accept, host, port)

    async def close(self) -> None:
        """End everything."""
        if self._server is not None:
            self._server.close()
        for link in list(self._links):
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.ensure_future(self._link(reader, writer))
        self._links.add(link)
        link.add_done_callback(self._links.discard)

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        # Half of the delay in either direction: an answer comes after all of it.
        pumps = [
            asyncio.ensure_future(self._pump(reader, far_writer)),
            asyncio.ensure_future(self._pump(far_reader, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for each in (writer, far_writer):
                each.close()
                with suppress(OSError):
                    await each.wait_closed()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
                    under_way.put_nowait((loop.time() + self.delay_seconds / 2, data))
        finally:
            delivering.cancel()
            await asyncio.gather(delivering, return_exceptions=True)


@asynccontextmanager
async def slow_relay(host: str, port: int, target: tuple[str, int]) -> AsyncIterator[SlowRelay]:
    """A relay that listens on host:port."""
    relay = SlowRelay(target)
    await relay.listen(host, port)
    try:
        yield relay
    finally:
        await relay.close()
