"""A TCP proxy that injects network faults: it stalls and cuts connections, and drops data. It may end TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from rmq_remoting.command import RemotingCommand
from rmq_remoting.framing import FrameDecoder
from tests.support.ports import LOOPBACK

_CHUNK_BYTES: Final = 65_536


class FaultProxy:
    """A proxy between clients and a server. All of its connections share the current fault."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        listen_host: str = LOOPBACK,
        listen_port: int = 0,
        tls: ssl.SSLContext | None = None,
        on_command: Callable[[RemotingCommand], None] | None = None,
    ) -> None:
        """`tls`: clients use TLS, the server does not. `on_command` gets each command of a client."""
        self.port = listen_port
        self._listen_host = listen_host
        self._tls = tls
        self._on_command = on_command
        self.accepted = 0
        # Number of bytes from the server that still pass before their connection is cut; None: no limit.
        self.cut_after_bytes: int | None = None
        # The same for bytes from clients.
        self.cut_requests_after_bytes: int | None = None
        self._target = host, port
        self._server: asyncio.Server | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._links: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """The address for clients."""
        return f"{self._listen_host}:{self.port}"

    @property
    def open_connections(self) -> int:
        """Number of connected clients."""
        return len(self._writers) // 2

    def stall(self) -> None:
        """Hold back all data in both directions; connections stay open."""
        self._flowing.clear()

    def resume(self) -> None:
        """Pass on the held data, and all data from now on."""
        self._flowing.set()

    def cut(self) -> None:
        """Reset every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def listen(self) -> None:
        """Start listening; after `refuse`, on the same port again."""
        self._server = await asyncio.start_server(self._accept, self._listen_host, self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    def refuse(self) -> None:
        """Refuse new connections from now on; `cut` ends the others."""
        if self._server is not None:
            self._server.close()

    async def close(self) -> None:
        """Close the listener and all connections."""
        self.refuse()
        self.cut()
        for link in list(self._links):
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        link = asyncio.ensure_future(self._link(reader, writer))
        self._links.add(link)
        link.add_done_callback(self._links.discard)

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._target)
        except BaseException as error:
            writer.transport.abort()
            if isinstance(error, OSError):
                return
            raise
        writers = {writer, server_writer}
        self._writers |= writers
        pumps = [
            asyncio.ensure_future(self._pump(reader, server_writer, from_server=False)),
            asyncio.ensure_future(self._pump(server_reader, writer, from_server=True)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self._writers -= writers
            for each in writers:
                each.close()
            for each in writers:
                with suppress(OSError):
                    await each.wait_closed()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, from_server: bool
    ) -> None:
        decoder = FrameDecoder()
        with suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                await self._flowing.wait()
                if self._on_command is not None and not from_server:
                    for command in decoder.feed(data):
                        self._on_command(command)
                passing, is_last = self._passing(data, from_server=from_server)
                writer.write(passing)
                await writer.drain()
                if is_last:
                    writer.close()
                    return

    def _passing(self, data: bytes, *, from_server: bool) -> tuple[bytes, bool]:
        """Return the part of the data that passes, and whether the connection is cut after it."""
        left = self.cut_after_bytes if from_server else self.cut_requests_after_bytes
        if left is None:
            return data, False
        is_last = len(data) >= left
        after = None if is_last else left - len(data)
        if from_server:
            self.cut_after_bytes = after
        else:
            self.cut_requests_after_bytes = after
        return data[:left], is_last


@asynccontextmanager
async def fault_proxy(host: str, port: int, **options: Any) -> AsyncIterator[FaultProxy]:
    """A listening proxy to host:port; `options` are those of FaultProxy."""
    proxy = FaultProxy(host, port, **options)
    await proxy.listen()
    try:
        yield proxy
    finally:
        await proxy.close()
