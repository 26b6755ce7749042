"""Plain text and TLS on one port: the first byte of a connection tells which of them the client speaks.

The first byte of a TLS handshake is 0x16. The first byte of a frame is the highest byte of its length, which
is 0 or 1. HTTP/2 begins with the letters PRI, or is agreed on in the handshake (ALPN).

Source: Apache RocketMQ 5.3.3, NettyRemotingServer.TlsModeHandler, TlsMode and Http2ProtocolProxyHandler.
"""

from __future__ import annotations

import asyncio
import enum
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol, cast

from .peer_address import descriptor_of, peer_address

_HANDSHAKE_BYTE: Final = 0x16
_HTTP2_BYTE: Final = ord("P")
# The name of HTTP/2 in a handshake.
HTTP2_NAME: Final = "h2"
# As in Apache's servers: the default of Netty's SslHandler.
_HANDSHAKE_SECONDS: Final = 10.0
# How long the peer may take to acknowledge the end of a TLS connection.
_SHUTDOWN_SECONDS: Final = 5.0


class TlsMode(enum.StrEnum):
    """The connections that a server accepts."""

    DISABLED = "disabled"  # plain text only
    PERMISSIVE = "permissive"  # plain text and TLS
    ENFORCING = "enforcing"  # TLS only


class TlsUnavailable(Exception):
    """The server cannot serve a client that wants TLS; the message says why."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """TLS of a server.

    `context` returns the context of the next handshake, or raises TlsUnavailable. A handshake that takes
    longer than `handshake_seconds` ends the connection.
    """

    mode: TlsMode
    context: Callable[[], Awaitable[ssl.SSLContext]]
    handshake_seconds: float = _HANDSHAKE_SECONDS


class DetectionHost(Protocol):
    """The server, as a detector sees it."""

    def detection_began(self, detector: ProtocolDetector, descriptor: int, /) -> None:
        """Admit a new connection, or abort it."""

    def detected(
        self, detector: ProtocolDetector, transport: asyncio.Transport, first: bytes, /, *, is_encrypted: bool
    ) -> None:
        """Serve a connection; `first` are the bytes that it has received already."""

    def handshake_failed(self, detector: ProtocolDetector, cause: str, /) -> None:
        """Count a failed TLS handshake; the connection has been aborted."""

    def plain_text_refused(self, detector: ProtocolDetector, /) -> None:
        """Count a client that sent plain text although TLS is enforced; its connection has been aborted."""

    def detection_ended(self, detector: ProtocolDetector, /) -> None:
        """Forget a detector; may be called more than once."""


class ProtocolDetector(asyncio.Protocol):
    """A new connection until its first bytes tell the protocol and, with TLS, the handshake is complete."""

    def __init__(self, host: DetectionHost, tls: ServerTls | None) -> None:
        """Without `tls` the connection is in plain text."""
        self._host = host
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._encryption: asyncio.Task[None] | None = None
        self.opened_at = self._loop.time()
        self.address: tuple[str, int] = ("", 0)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Report the new connection to the server, which may abort it."""
        self._transport = cast(asyncio.Transport, transport)
        self.address = peer_address(transport.get_extra_info("peername"))
        self._host.detection_began(self, descriptor_of(self._transport))

    def data_received(self, data: bytes) -> None:
        """Pass a connection in plain text on, or begin the handshake."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        tls = self._tls
        if tls is not None and data[0] == _HANDSHAKE_BYTE:
            transport.pause_reading()  # until `start_tls` has replaced this protocol
            self._encryption = self._loop.create_task(self._encrypt(transport, data, tls))
        elif tls is not None and tls.mode is TlsMode.ENFORCING:
            transport.abort()
            self._host.plain_text_refused(self)
        else:
            self._transport = None
            self._host.detected(self, transport, data, is_encrypted=False)
            self._host.detection_ended(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of a connection whose protocol is still unknown."""
        self._transport = None
        self._host.detection_ended(self)

    def abort(self) -> None:
        """End the connection at once."""
        if self._encryption is not None:
            self._encryption.cancel()
        if self._transport is not None:
            self._transport.abort()

    async def _encrypt(self, transport: asyncio.Transport, first: bytes, tls: ServerTls) -> None:
        early = _EarlyData()
        try:
            encrypted = await self._handshake(transport, first, early, tls)
            self._host.detected(self, encrypted, b"".join(early.parts), is_encrypted=True)
        except (OSError, TlsUnavailable) as error:  # ssl.SSLError and TimeoutError are OSErrors
            transport.abort()
            self._host.handshake_failed(self, _cause(error))
        except BaseException:
            transport.abort()
            raise
        finally:
            self._transport = None
            self._host.detection_ended(self)

    async def _handshake(
        self, transport: asyncio.Transport, first: bytes, early: _EarlyData, tls: ServerTls
    ) -> asyncio.Transport:
        """Complete a handshake whose first bytes were read already. Raises OSError, TlsUnavailable."""
        context = await tls.context()
        if transport.is_closing():
            raise ConnectionResetError("connection lost before the handshake")
        handshake = self._loop.create_task(
            self._loop.start_tls(
                transport,
                early,
                context,
                server_side=True,
                ssl_handshake_timeout=tls.handshake_seconds,
                ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
            )
        )
        # The first step of `start_tls` gives the transport another protocol, and schedules that protocol's
        # `connection_made` for the loop's next iteration.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        protocol = transport.get_protocol()
        if protocol is not self and not handshake.done():
            _feed(cast(asyncio.BufferedProtocol, protocol), first)
        encrypted = await handshake
        if encrypted is None or transport.is_closing():
            raise ConnectionResetError("connection lost during the handshake")
        return encrypted


def speaks_http2(transport: asyncio.Transport, first: bytes) -> bool:
    """Whether the client of a connection speaks HTTP/2; `first` are the bytes received so far."""
    if first:
        return first[0] == _HTTP2_BYTE
    tls = transport.get_extra_info("ssl_object")
    return tls is not None and tls.selected_alpn_protocol() == HTTP2_NAME


class _EarlyData(asyncio.Protocol):
    """Keeps the bytes that arrive between the end of a handshake and the return of `start_tls`."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        """Keep the bytes."""
        self.parts.append(data)


def _feed(protocol: asyncio.BufferedProtocol, data: bytes) -> None:
    """Pass bytes to a protocol as if its transport had read them now."""
    rest = memoryview(data)
    while rest:
        buffer = memoryview(protocol.get_buffer(len(rest)))
        count = min(len(buffer), len(rest))
        buffer[:count] = rest[:count]
        protocol.buffer_updated(count)
        rest = rest[count:]


def _cause(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return str(error) or type(error).__name__
