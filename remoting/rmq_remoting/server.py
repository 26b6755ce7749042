"""The listening side: accepts connections, keeps them in a set, and closes idle ones."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections.abc import Callable
from typing import Final

from .connection import Connection, ConnectionSettings, ConnectionStatistics
from .dispatch import Dispatcher
from .errors import RemotingError

log = logging.getLogger("rmq.remoting.server")

# Descriptors that are kept for files: this share of the limit, within these bounds. A log that cannot get its
# next file would refuse all messages.
_RESERVED_SHARE: Final = 8
_LEAST_RESERVED: Final = 16
_MOST_RESERVED: Final = 256
# At most one line about refused connections per interval.
_LOG_SECONDS: Final = 60.0


def bind_socket(host: str, port: int) -> socket.socket:
    """Bind a port without listening yet, for a daemon that needs its port number to build its parts.

    Port 0 binds any free one. Raises OSError.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
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
        on_open: Callable[[Connection], None] | None = None,
        on_close: Callable[[Connection], None] | None = None,
    ) -> None:
        self.dispatcher = dispatcher
        self.statistics = ConnectionStatistics()
        self.connections: set[Connection] = set()
        self._settings = settings or ConnectionSettings()
        self._idle_seconds = idle_seconds
        self._backlog = backlog
        self._on_open = on_open
        self._on_close = on_close
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._stopped = False
        self._next_log_at = 0.0

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
        return self.port

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        if self._server is None or not self._server.sockets:
            raise RemotingError("the server does not listen: call start() first")
        return int(self._server.sockets[0].getsockname()[1])

    def stop_accepting(self) -> None:
        """Accept no new connections; open ones stay open."""
        if self._server is not None:
            self._server.close()

    async def stop(self, grace_seconds: float = 1.0) -> None:
        """Close all connections; abort those whose peers do not read the rest within `grace_seconds`."""
        self._stopped = True
        self.stop_accepting()
        if self._sweeper is not None:
            self._sweeper.cancel()
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

    def _accept(self) -> asyncio.Protocol:
        accepted = Connection(self.dispatcher, self._settings, self.statistics, self._opened, self._closed)
        return accepted.as_protocol

    def _opened(self, connection: Connection) -> None:
        if self._stopped:  # accepted before stop() was called
            connection.abort()
        elif connection.descriptor >= (most := _most_connections()):
            self._refuse(connection, most)
        self.connections.add(connection)
        if self._on_open is not None:
            self._on_open(connection)

    def _refuse(self, connection: Connection, most: float) -> None:
        """End a connection that would take one of the last descriptors."""
        self.statistics.refused += 1
        now = asyncio.get_running_loop().time()
        if now >= self._next_log_at:
            self._next_log_at = now + _LOG_SECONDS
            log.error(
                "connection refused peer=%s cause=too many open files and connections most=%.0f refused=%d; "
                "the last ones are kept for files. Raise LimitNOFILE (systemd) or ulimit -n, or let clients "
                "share connections",
                connection.peer,
                most,
                self.statistics.refused,
            )
        connection.abort()

    def _closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if self._on_close is not None:
            self._on_close(connection)

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
        self._sweeper = loop.call_later(self._sweep_seconds, self._close_idle)


def _most_connections() -> float:
    """Return the number of a descriptor from which on connections are refused.

    The kernel gives the lowest free number: the number of a new connection tells how many are in use.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return float("inf")
    return limit - min(max(limit // _RESERVED_SHARE, _LEAST_RESERVED), _MOST_RESERVED)
