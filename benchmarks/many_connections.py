"""Synchronous sends over many connections, from one event loop.

The Java client has one connection per broker, so it cannot show what connections cost. Here each connection
has at most one send in flight; at most `in_flight` of them have one at a time, in turns. All sends are the
same bytes for both brokers.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, cast

from rmq_remoting.framing import encode_frame
from tests.support.broker_requests import create_topic, send
from tests.support.raw_client import raw_client

_TOPIC: Final = "Connections"
_QUEUES: Final = 8
_LENGTH: Final = struct.Struct(">i")
# The code of a response with a binary header: behind the length and the header's length.
_CODE: Final = slice(8, 10)
_SUCCESS: Final = b"\0\0"
# Connections that are opened at a time; more overflow the listen queue.
_OPENED_AT_ONCE: Final = 100


class SendsRefused(Exception):
    """A send was not answered with SUCCESS, or its connection was closed."""


class ManyConnections:
    """Connections that send in turns."""

    def __init__(self, frames: Sequence[bytes], in_flight: int) -> None:
        self._frames = frames
        self._in_flight = in_flight
        self._idle: deque[_Sender] = deque()
        self._sent = 0
        self._stopped = True
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def open(self, port: int, count: int) -> None:
        """Open connections. Raises OSError."""
        loop = asyncio.get_running_loop()
        while len(self._idle) < count:
            opened = await asyncio.gather(
                *(
                    loop.create_connection(lambda: _Sender(self), "127.0.0.1", port)
                    for _ in range(min(_OPENED_AT_ONCE, count - len(self._idle)))
                )
            )
            self._idle += (sender for _, sender in opened)

    async def send(self, seconds: float) -> float:
        """Send for a while, and return the sends per second. Raises SendsRefused."""
        self._sent, self._stopped = 0, False
        began = time.monotonic()
        for _ in range(min(self._in_flight, len(self._idle))):
            self._next()
        await asyncio.wait([self._failed], timeout=seconds)
        self._stopped = True
        if self._failed.done():
            self._failed.result()
        return self._sent / (time.monotonic() - began)

    def close(self) -> None:
        """Close all connections."""
        self._stopped = True
        for sender in self._idle:
            sender.close()

    def answered(self, sender: _Sender, code: bytes) -> None:
        """Count a send, and let the connection that has waited for longest go on."""
        self._idle.append(sender)
        if code != _SUCCESS:
            self.failed(f"a send was answered with code {int.from_bytes(code, 'big')}")
        elif not self._stopped:
            self._sent += 1
            self._next()

    def failed(self, cause: str) -> None:
        """Stop with an error, unless the connections are being closed anyway."""
        if not self._stopped and not self._failed.done():
            self._failed.set_exception(SendsRefused(cause))

    def _next(self) -> None:
        self._idle.popleft().send(self._frames[self._sent % len(self._frames)])


class _Sender(asyncio.Protocol):
    """One connection."""

    def __init__(self, owner: ManyConnections) -> None:
        self._owner = owner
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, frame: bytes) -> None:
        assert self._transport is not None
        self._transport.write(frame)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) < _LENGTH.size:
            return
        (length,) = _LENGTH.unpack_from(self._received)
        if len(self._received) == _LENGTH.size + length:
            code, self._received = self._received[_CODE], b""
            self._owner.answered(self, code)

    def connection_lost(self, error: Exception | None) -> None:
        self._owner.failed(f"the broker closed a connection: {error}")

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()


@asynccontextmanager
async def many_connections(
    port: int, count: int, in_flight: int, *, body_bytes: int = 128
) -> AsyncIterator[ManyConnections]:
    """Open `count` connections to the broker at `port`, and close them afterwards. Raises OSError."""
    async with raw_client(port) as client:
        await client.ask(create_topic(_TOPIC, _QUEUES))
    frames = [encode_frame(send(_TOPIC, b"x" * body_bytes, queue_id=queue_id)) for queue_id in range(_QUEUES)]
    connections = ManyConnections(frames, in_flight)
    try:
        await connections.open(port, count)
        yield connections
    finally:
        connections.close()
