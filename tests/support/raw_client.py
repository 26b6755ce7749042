"""A client that sends any bytes, and may leave answers unread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rmq_remoting.command import RemotingCommand
from rmq_remoting.framing import FrameDecoder, encode_frame
from tests.support.ports import LOOPBACK
from tests.support.waiting import PATIENCE_SECONDS

_READ_BYTES = 65_536


class RawClient:
    """A TCP connection to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self._reader = reader
        self._decoder = FrameDecoder()
        self._received: list[RemotingCommand] = []

    def send(self, *commands: RemotingCommand) -> None:
        """Write commands, all at once."""
        self.writer.write(b"".join(map(encode_frame, commands)))

    def send_bytes(self, data: bytes) -> None:
        """Write any bytes."""
        self.writer.write(data)

    async def receive(self) -> RemotingCommand:
        """Return the next command. Raises EOFError at the end of the connection, and TimeoutError."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not self._received:
                data = await self._reader.read(_READ_BYTES)
                if not data:
                    raise EOFError("the server has closed the connection")
                self._received += self._decoder.feed(data)
                assert self._decoder.failure is None
        return self._received.pop(0)

    async def ask(self, command: RemotingCommand) -> RemotingCommand:
        """Send a request, and read its answer."""
        self.send(command)
        answer = await self.receive()
        assert answer.opaque == command.opaque
        return answer

    async def until_closed(self) -> list[RemotingCommand]:
        """Read to the end of the connection, whether it was closed or cut."""
        commands = []
        try:
            while True:
                commands.append(await self.receive())
        except (EOFError, ConnectionError):
            return commands


@asynccontextmanager
async def raw_client(port: int) -> AsyncIterator[RawClient]:
    """A connection to a port of this machine, cut at the end."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.transport.abort()
