"""Plain text and TLS on one port, which gRPC's library cannot serve: a listener in front of two ports of it.

The first byte of a connection tells what its client speaks. From then on bytes pass unread between the client
and one of two ports on the loopback interface, which belong to the gRPC server. Connections of another
listener, whose clients turn out to speak HTTP/2, go the same way. The server sees the address of this process
as its peer, so the front remembers the client's address by the port of its own connection. Source of the
behaviour: Apache RocketMQ 5.3.3, ProxyAndTlsProtocolNegotiator and Http2ProtocolProxyHandler.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from dataclasses import dataclass
from typing import Final, cast

from rmq_remoting.peer_address import address_text, peer_address
from rmq_remoting.repeated_event import RepeatedEvent
from rmq_remoting.server import bind_socket

log = logging.getLogger("rmq.proxy")

_HANDSHAKE_BYTE: Final = 0x16
# A client that sends nothing for this long is closed.
_FIRST_BYTE_SECONDS: Final = 10.0
# Bytes that wait for one side before the other one is no longer read.
_HIGH_WATER_BYTES: Final = 256 * 1024
_LOG_SECONDS: Final = 60.0
_BACKLOG: Final = 1024


@dataclass(frozen=True, slots=True)
class Entrance:
    """A port of the gRPC server; with `tls` connections to it are encrypted."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None


class Front:
    """The listener of a port with plain text and TLS. Belongs to one loop."""

    def __init__(
        self, plain: Entrance, tls: Entrance, connect_timeout_seconds: float, most_connections: int
    ) -> None:
        """`plain` takes connections in plain text, and decrypted ones; `tls` takes encrypted ones."""
        self._most_connections = most_connections
        self._refused = RepeatedEvent(_LOG_SECONDS)
        self._plain = plain
        self._tls = tls
        self._connect_timeout_seconds = connect_timeout_seconds
        self._server: asyncio.Server | None = None
        self._clients: set[_ClientSide] = set()
        # The client's address by the address that the gRPC server sees.
        self.names: dict[str, str] = {}

    async def listen(self, host: str, port: int, *, reuse_port: bool = False) -> int:
        """Listen, and return the port; `reuse_port`: further processes may, too. Raises OSError."""
        loop = asyncio.get_running_loop()
        # A socket made by asyncio for `::` would take no IPv4 connections, as the ports without a front do.
        bound = bind_socket(host, port, reuse_port=reuse_port)
        try:
            bound.listen(_BACKLOG)  # uvloop's create_server does not raise where this fails
        except OSError:
            bound.close()
            raise
        self._server = await loop.create_server(lambda: _ClientSide(self), sock=bound, backlog=_BACKLOG)
        return int(self._server.sockets[0].getsockname()[1])

    def adopt(self, transport: asyncio.Transport, first: bytes) -> None:
        """Serve a decrypted connection of another listener; `first` are the bytes received so far."""
        client = _ClientSide(self)
        transport.set_protocol(client)
        client.connection_made(transport)
        if first:
            client.data_received(first)

    def stop_listening(self) -> None:
        """Accept no further connections; the open ones stay."""
        if self._server is not None:
            self._server.close()

    def close(self) -> None:
        """Close all connections."""
        self.stop_listening()
        for client in list(self._clients):
            client.abort()

    # --- of the client sides ---

    def opened(self, client: _ClientSide) -> bool:
        """Count a connection; return False if it must be closed, because there are too many."""
        if len(self._clients) >= self._most_connections:
            if count := self._refused.occurred():
                log.warning(
                    "gRPC connections refused, too many count=%d limit=%d; raise grpcConnectionsMaxNum or "
                    "the limit of open files, or start another proxy",
                    count,
                    self._most_connections,
                )
            return False
        self._clients.add(client)
        return True

    def closed(self, client: _ClientSide) -> None:
        self._clients.discard(client)

    async def connect(self, first: int, side: _ServerSide) -> None:
        entrance = self._tls if first == _HANDSHAKE_BYTE else self._plain
        async with asyncio.timeout(self._connect_timeout_seconds):
            await asyncio.get_running_loop().create_connection(
                lambda: side, entrance.host, entrance.port, ssl=entrance.tls
            )


class _Side(asyncio.Protocol):
    """One of the two connections; what it receives goes to the other."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _Side | None = None

    def data_received(self, data: bytes) -> None:
        other = self.other
        if other is not None and other.transport is not None:
            other.transport.write(data)

    def pause_writing(self) -> None:
        other = self.other
        if other is not None and other.transport is not None:
            other.transport.pause_reading()

    def resume_writing(self) -> None:
        other = self.other
        if other is not None and other.transport is not None:
            other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        other, self.other = self.other, None
        if other is not None and other.transport is not None:
            other.other = None
            # close() still sends the bytes that were written before.
            other.transport.close() if exc is None else other.transport.abort()


class _ClientSide(_Side):
    """The connection of a client, at first without a server side."""

    def __init__(self, front: Front) -> None:
        super().__init__()
        self._front = front
        self._first = b""
        self._linking: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none by their class.
        opened = cast("asyncio.Transport", transport)
        if not self._front.opened(self):
            opened.abort()
            return
        self.transport = opened
        opened.set_write_buffer_limits(_HIGH_WATER_BYTES)
        self._timer = asyncio.get_running_loop().call_later(_FIRST_BYTE_SECONDS, self.abort)

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            super().data_received(data)
            return
        self._first += data
        if self._linking is None and self.transport is not None:
            if self._timer is not None:
                self._timer.cancel()
            self.transport.pause_reading()
            self._linking = asyncio.get_running_loop().create_task(self._link())

    def eof_received(self) -> bool:
        """Pass the end on, and keep the connection: the server may still answer, and then ends it."""
        other = self.other
        if other is None or other.transport is None or not other.transport.can_write_eof():
            return False
        other.transport.write_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._front.closed(self)
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def abort(self) -> None:
        """End the connection at once."""
        if self.transport is not None:
            self.transport.abort()

    async def _link(self) -> None:
        """Connect to the gRPC server, and pass on the bytes received so far."""
        try:
            await self._front.connect(self._first[0], _ServerSide(self._front, self))
        except OSError as error:  # TimeoutError is one
            log.warning("gRPC connection dropped cause=%s", str(error) or type(error).__name__)
            self.abort()

    def linked(self, side: _ServerSide, to_server: asyncio.Transport) -> None:
        """Exchange bytes with the gRPC server from now on."""
        if self.transport is None or self.transport.is_closing():
            side.abort()
            return
        self.other, side.other = side, self
        to_server.write(self._first)
        self._first = b""
        self.transport.resume_reading()


class _ServerSide(_Side):
    """The connection to the gRPC server on behalf of a client."""

    def __init__(self, front: Front, client: _ClientSide) -> None:
        super().__init__()
        self._front = front
        self._client = client
        self._name = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert self._client.transport is not None
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(_HIGH_WATER_BYTES)
        self._name = address_text(peer_address(transport.get_extra_info("sockname")))
        host, port = peer_address(self._client.transport.get_extra_info("peername"))
        # Before the first byte, so that no call can arrive without it.
        self._front.names[self._name] = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        # Here, not after the connect: the server sends its settings at once, and none of them may be lost.
        self._client.linked(self, self.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._front.names.pop(self._name, None)
        super().connection_lost(exc)

    def eof_received(self) -> bool:
        # The gRPC server never ends one half alone. A client that has vanished would keep its half for ever.
        return False

    def abort(self) -> None:
        """End the connection at once."""
        if self.transport is not None:
            self.transport.abort()
