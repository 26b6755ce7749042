"""The listening side: admits connections, keeps them in a set, and closes idle ones."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Final

from .admission import Admission
from .connection import Connection, ConnectionSettings, ConnectionStatistics
from .dispatch import Dispatcher
from .errors import RemotingError
from .memory_transport import connect_in_memory
from .peer_address import address_text
from .protocol_detection import ProtocolDetector, ServerTls, TlsMode, speaks_http2
from .repeated_event import RepeatedEvent

log = logging.getLogger(__name__)

_LOOPBACK: Final = "127.0.0.1"
_EVERY_INTERFACE: Final = frozenset({"0.0.0.0", "::"})
# Bytes that peers do not read, on all connections of a listener together.
_MAX_UNSENT_BYTES: Final = 256 * 1024 * 1024
# Interval of counting them. They are counted sooner once so much was written since: 1,000 peers that asked
# for 1 MiB each filled 1 GiB within a second.
_UNSENT_CHECK_SECONDS: Final = 1.0
_UNSENT_CHECK_BYTES: Final = 32 * 1024 * 1024
# Bytes of a connection that the kernel takes before the network does. Without a bound it takes up to 4 MiB of
# each peer that does not read: 1.3 GiB were measured for 1,000 peers that asked for 1 MiB each.
_MOST_KERNEL_BYTES: Final = 256 * 1024
# At most one line of a kind about connections that were refused per interval.
_LOG_SECONDS: Final = 60.0


@dataclass(slots=True)
class TlsStatistics:
    """Plain counters of the TLS handshakes of a server."""

    handshakes: int = 0
    failed_handshakes: int = 0
    plain_refused: int = 0  # plain text although TLS is enforced


def bind_socket(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """Bind a port without listening yet, for a daemon that needs its port number to build its parts.

    Port 0 binds any free one. `reuse_port`: other processes may bind it in the same way, and the system
    spreads connections over them. Raises OSError.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):  # accepted sockets inherit it
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _MOST_KERNEL_BYTES)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound


class RemotingServer:
    """A listener on one port, whose connections share a dispatcher."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        settings: ConnectionSettings | None = None,
        idle_seconds: float = 120.0,
        backlog: int = 1024,
        admission: Admission | None = None,
        tls: ServerTls | None = None,
        max_unsent_bytes: int = _MAX_UNSENT_BYTES,
        on_open: Callable[[Connection], None] | None = None,
        on_close: Callable[[Connection], None] | None = None,
        on_http2: Callable[[asyncio.Transport, bytes], None] | None = None,
    ) -> None:
        """`admission` bounds the connections; without `tls` they are in plain text.

        Above `max_unsent_bytes` on all connections together, those with the most unsent bytes are closed.
        `on_http2` takes the connections of clients that speak HTTP/2, with the bytes received so far.
        """
        self.dispatcher = dispatcher
        self.statistics = ConnectionStatistics()
        self.tls_statistics = TlsStatistics()
        self.connections: set[Connection] = set()
        # Connections whose first bytes have not arrived, or whose TLS handshake is not complete.
        self._detectors: set[ProtocolDetector] = set()
        self._admission = admission or Admission()
        self._tls = tls if tls is not None and tls.mode is not TlsMode.DISABLED else None
        self._settings = settings or ConnectionSettings()
        self._idle_seconds = idle_seconds
        self._max_unsent_bytes = max_unsent_bytes
        self._backlog = backlog
        self._on_open = on_open
        self._on_close = on_close
        self._on_http2 = on_http2
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._unsent_check: asyncio.TimerHandle | None = None
        self._checked_written = -1  # bytes that had been written at the last check of unsent ones
        self._stopped = False
        self._refused = RepeatedEvent(_LOG_SECONDS)
        self._failed_handshakes = RepeatedEvent(_LOG_SECONDS)
        self._plain_refused = RepeatedEvent(_LOG_SECONDS)
        self._unread_closed = RepeatedEvent(_LOG_SECONDS)

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port (the assigned one if `port` is 0). Raises OSError."""
        return await self.start_on(bind_socket(host, port))

    async def start_on(self, bound: socket.socket) -> int:
        """Listen on a socket from `bind_socket`, which belongs to the server from now on. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._stopped = False
        try:
            bound.listen(self._backlog)  # uvloop's create_server does not raise where this fails
        except OSError:
            bound.close()
            raise
        self._server = await loop.create_server(self._accept, sock=bound, backlog=self._backlog)
        self._sweeper = loop.call_later(self._sweep_seconds, self._close_idle)
        self.statistics.on_written_limit = partial(loop.call_soon, self._close_unread)
        self._close_unread()
        return self.port

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        if self._server is None or not self._server.sockets:
            raise RemotingError("the server does not listen: call start() first")
        return int(self._server.sockets[0].getsockname()[1])

    def oldest_wait_seconds(self, codes: frozenset[int]) -> float:
        """Return for how long the oldest request with one of these codes has waited for its turn; 0: none.

        From any thread.
        """
        waits = [connection.waiting_since(codes) for connection in list(self.connections)]
        oldest = min((since for since in waits if since is not None), default=None)
        return 0.0 if oldest is None else max(0.0, self.dispatcher.clock() - oldest)

    def stop_accepting(self) -> None:
        """Accept no new connections; open ones stay open."""
        if self._server is not None:
            self._server.close()

    async def stop(self, grace_seconds: float = 1.0) -> None:
        """Close all connections; abort those whose peers do not read the rest within `grace_seconds`."""
        self._stopped = True
        self.stop_accepting()
        for timer in (self._sweeper, self._unsent_check):
            if timer is not None:
                timer.cancel()
        for detector in list(self._detectors):
            detector.abort()
        for connection in list(self.connections):
            connection.close()
        ends = [asyncio.ensure_future(connection.wait_closed()) for connection in list(self.connections)]
        if ends:
            _, late = await asyncio.wait(ends, timeout=grace_seconds)
            for connection in list(self.connections):
                connection.abort()
            for end in late:
                end.cancel()
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

    @property
    def open_connections(self) -> int:
        """Number of connections, those that have not sent their first byte included."""
        return len(self.connections) + len(self._detectors)

    # --- new connections ---

    def link(self, protocol: asyncio.Protocol) -> None:
        """Connect a client of this process, without a socket and without TLS. Raises OSError.

        The client shows the host that it would connect from, with the port 0.
        """
        if self._server is None or not self._server.sockets:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "the server accepts no connections")
        host = str(self._server.sockets[0].getsockname()[0])
        host = _LOOPBACK if host in _EVERY_INTERFACE else host
        connection = Connection(self.dispatcher, self._settings, self.statistics, self._opened, self._closed)
        connect_in_memory(
            asyncio.get_running_loop(), protocol, (host, 0), connection.as_protocol, (host, self.port)
        )

    def _accept(self) -> asyncio.Protocol:
        if self._tls is not None or self._on_http2 is not None:
            return ProtocolDetector(self, self._tls)
        return Connection(
            self.dispatcher, self._settings, self.statistics, self._opened, self._closed
        ).as_protocol

    def _opened(self, connection: Connection) -> None:
        """Serve a connection in plain text on a port without TLS, or abort it."""
        if self._admits(connection.remote_address, connection.descriptor):
            self._serve(connection)
        else:
            connection.abort()

    def _admits(self, address: tuple[str, int], descriptor: int) -> bool:
        if self._stopped:  # accepted before stop() was called
            return False
        problem = self._admission.admit(address, descriptor)
        if problem:
            self.statistics.refused += 1
            if count := self._refused.occurred():
                peer = address_text(address)
                log.error("connection refused peer=%s refused=%d cause=%s", peer, count, problem)
        return not problem

    def _serve(self, connection: Connection) -> None:
        self.connections.add(connection)
        if self._on_open is not None:
            self._on_open(connection)

    def _closed(self, connection: Connection) -> None:
        if connection in self.connections:
            self.connections.discard(connection)
            self._admission.leave(connection.remote_address)
            if self._on_close is not None:
                self._on_close(connection)

    # --- detection of the protocol ---

    def detection_began(self, detector: ProtocolDetector, descriptor: int) -> None:
        """Admit a new connection, or abort it."""
        if self._admits(detector.address, descriptor):
            self._detectors.add(detector)
        else:
            detector.abort()

    def detected(
        self, detector: ProtocolDetector, transport: asyncio.Transport, first: bytes, *, is_encrypted: bool
    ) -> None:
        """Serve a connection; `first` are the bytes that it has received already."""
        if self._stopped or detector not in self._detectors:
            transport.abort()
            return
        self._detectors.discard(detector)
        self.tls_statistics.handshakes += is_encrypted
        if self._on_http2 is not None and speaks_http2(transport, first):
            self._admission.leave(detector.address)
            self._on_http2(transport, first)
            return
        connection = Connection(
            self.dispatcher, self._settings, self.statistics, self._serve, self._closed
        ).as_protocol
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if first:
            connection.data_received(first)

    def handshake_failed(self, detector: ProtocolDetector, cause: str) -> None:
        """Count a failed TLS handshake; the connection has been aborted."""
        self.tls_statistics.failed_handshakes += 1
        if count := self._failed_handshakes.occurred():
            peer = address_text(detector.address)
            log.warning("TLS handshake failed peer=%s failed=%d cause=%s", peer, count, cause)

    def plain_text_refused(self, detector: ProtocolDetector) -> None:
        """Count a client that sent plain text although TLS is enforced; its connection has been aborted."""
        self.tls_statistics.plain_refused += 1
        if count := self._plain_refused.occurred():
            log.warning(
                "connection in plain text refused peer=%s refused=%d cause=tls.server.mode is enforcing; "
                "let the client use TLS",
                address_text(detector.address),
                count,
            )

    def detection_ended(self, detector: ProtocolDetector) -> None:
        """Forget a detector whose connection has ended; of others nothing is known any more."""
        if detector in self._detectors:
            self._detectors.discard(detector)
            self._admission.leave(detector.address)

    # --- connections to end ---

    def _close_unread(self) -> None:
        """Close connections whose peers do not read, those with the most unsent bytes first.

        Runs each second, and after each 32 MiB written.
        """
        if self._unsent_check is not None:
            self._unsent_check.cancel()
        if self._stopped:
            return
        loop = asyncio.get_running_loop()
        self._unsent_check = loop.call_later(_UNSENT_CHECK_SECONDS, self._close_unread)
        written = self.statistics.bytes_written
        self.statistics.written_limit = written + _UNSENT_CHECK_BYTES
        if written == self._checked_written:
            return  # thousands of connections that wait cost nothing
        self._checked_written = written
        # Connections below their own bound count, too: many of them hold much. 12,000 take 2 ms.
        total = sum(connection.unsent_bytes for connection in self.connections)
        if total <= self._max_unsent_bytes:
            return
        unread = [(size, each) for each in self.connections if (size := each.unsent_bytes)]
        unread.sort(key=itemgetter(0), reverse=True)
        for size, connection in unread:
            if total <= self._max_unsent_bytes:
                break
            total -= size
            self.statistics.unread_closed += 1
            if count := self._unread_closed.occurred():
                log.warning(
                    "connection closed peer=%s unsent_bytes=%d closed=%d cause=peers do not read their "
                    "responses, %d bytes wait for them in all, the limit is %d",
                    connection.peer,
                    size,
                    count,
                    total + size,
                    self._max_unsent_bytes,
                )
            connection.abort()

    @property
    def _sweep_seconds(self) -> float:
        return max(0.05, min(5.0, self._idle_seconds / 4))

    def _close_idle(self) -> None:
        """Close the connections whose peers have completed no command for `idle_seconds`."""
        loop = asyncio.get_running_loop()
        before = loop.time() - self._idle_seconds
        for connection in [c for c in self.connections if c.last_command_at < before and not c.is_closed]:
            self.statistics.idle_closed += 1
            connection.close()
        for detector in [each for each in self._detectors if each.opened_at < before]:
            self.statistics.idle_closed += 1
            detector.abort()
        self._sweeper = loop.call_later(self._sweep_seconds, self._close_idle)
