"""The connecting side: one connection per address, opened on demand and reopened after its end."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from .backoff import Backoff
from .command import RemotingCommand
from .connection import Connection, ConnectionSettings, ConnectionStatistics
from .dispatch import Dispatcher
from .errors import ConnectError, TlsError
from .framing import MAX_FRAME_BYTES
from .memory_transport import Link
from .signing import RequestSigner, SigningConnection
from .tasks import is_being_cancelled, shielded

_PORT_DIGITS: Final = 5
# The end of a TLS connection is announced and acknowledged; Apache's servers do not acknowledge it.
_GOODBYE_SECONDS: Final = 0.1
# An unreachable address that nobody asks for is forgotten this long after its backoff time: brokers that move
# leave their old addresses behind.
_FORGET_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class ClientTls:
    """TLS of all connections of a client.

    `server_name`: the name in the servers' certificates, if that is not the host of each address.
    """

    context: ssl.SSLContext
    server_name: str | None = None


class _Unreachable:
    """The failures to connect to one address: how many in a row, the last one, and when to try again."""

    __slots__ = ("failures", "kind", "not_before", "reason")

    def __init__(self) -> None:
        self.failures = 0
        self.not_before = 0.0
        self.kind = ConnectError
        self.reason = ""


class RemotingClient:
    """Sends requests to addresses (`host:port`); the peers' own requests go to the dispatcher.

    Belongs to one loop. Concurrent callers share one attempt to connect. After a failure there is no further
    attempt for a backoff time, which doubles up to `max_backoff_seconds` and is shortened at random. Until
    then callers get ConnectError at once.
    """

    def __init__(
        self,
        dispatcher: Dispatcher | None = None,
        *,
        settings: ConnectionSettings | None = None,
        connect_timeout_seconds: float = 3.0,
        first_backoff_seconds: float = 0.05,
        max_backoff_seconds: float = 3.0,
        on_close: Callable[[str], None] | None = None,
        signer: RequestSigner | None = None,
        tls: ClientTls | None = None,
        links: Mapping[str, Link] | None = None,
    ) -> None:
        """`signer` signs every request; `tls` encrypts every connection.

        `links` connect to servers of this process, by address, without a socket and without TLS.
        """
        self.dispatcher = dispatcher or Dispatcher()
        self.statistics = ConnectionStatistics()
        self._settings = replace(
            settings or ConnectionSettings(), stops_reading=False, max_header_bytes=MAX_FRAME_BYTES
        )
        self._connect_timeout_seconds = connect_timeout_seconds
        self._backoff = Backoff(first_backoff_seconds, max_backoff_seconds)
        self._on_close = on_close
        self._signer = signer
        self._tls = tls
        self._links = links or {}
        self._connections: dict[str, Connection] = {}
        # Including connections that are closing: their peers may take time to read the last bytes.
        self._not_ended: set[Connection] = set()
        self._connecting: dict[str, asyncio.Task[Connection]] = {}
        self._unreachable: dict[str, _Unreachable] = {}
        self._stopped = False

    def existing(self, address: str) -> Connection | None:
        """Return the open connection to `address`, if there is one: the fast path without an await."""
        connection = self._connections.get(address)
        return None if connection is None or connection.is_closed else connection

    def addresses(self) -> list[str]:
        """Return every address with an open connection."""
        return [address for address, connection in self._connections.items() if not connection.is_closed]

    async def connect(self, address: str) -> Connection:
        """Return the connection to `address`, opened if necessary. Raises ConnectError."""
        connection = self.existing(address)
        if connection is not None:
            return connection
        if self._stopped:
            raise self._stopped_error(address)
        task = self._connecting.get(address)
        if task is None:
            failed = self._unreachable.get(address)
            now = asyncio.get_running_loop().time()
            if failed is not None and (wait := failed.not_before - now) > 0:
                raise failed.kind(f"{failed.reason}; next attempt in {wait:.2f} s")
            task = asyncio.create_task(self._open(address), name=f"connect {address}")
            self._connecting[address] = task
            task.add_done_callback(lambda ended: self._connect_ended(address, ended))
        try:
            return await shielded(task)
        except asyncio.CancelledError:
            if task.cancelled() and not is_being_cancelled():  # cancelled by stop(), not by the caller
                raise self._stopped_error(address) from None
            raise

    async def request(
        self, address: str, command: RemotingCommand, timeout_seconds: float
    ) -> RemotingCommand:
        """Send a request and wait for its response. Raises RequestError; a refusal is a response."""
        connection = self.existing(address) or await self.connect(address)
        return await connection.send_request(command, timeout_seconds)

    async def oneway(self, address: str, command: RemotingCommand) -> None:
        """Send a request without a response. Raises RequestError if it cannot be sent."""
        connection = self.existing(address) or await self.connect(address)
        connection.send_oneway(command)

    def close_address(self, address: str) -> None:
        """Close the connection to `address`; the next request opens a new one."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    async def stop(self, grace_seconds: float = 1.0) -> None:
        """Close all connections; abort those whose peers do not read the rest within `grace_seconds`."""
        self._stopped = True
        connecting = list(self._connecting.values())
        for task in connecting:
            task.cancel()
        await asyncio.gather(*connecting, return_exceptions=True)
        connections = list(self._not_ended)
        for connection in connections:
            connection.close()
        late = {asyncio.ensure_future(connection.wait_closed()) for connection in connections}
        if late:
            _, late = await asyncio.wait(late, timeout=min(_GOODBYE_SECONDS, grace_seconds))
            if late and any(connection.unsent_bytes for connection in connections):
                _, late = await asyncio.wait(late, timeout=grace_seconds - _GOODBYE_SECONDS)
            for connection in connections:
                connection.abort()
            for end in late:
                end.cancel()
        self._connections.clear()

    async def _open(self, address: str) -> Connection:
        loop = asyncio.get_running_loop()
        host, port = split_address(address)
        connection = self._new_connection(address)
        link = self._links.get(address)
        try:
            if link is not None:
                link(connection.as_protocol)
            else:
                async with asyncio.timeout(self._connect_timeout_seconds):
                    await loop.create_connection(
                        lambda: connection.as_protocol, host, port, **self._tls_arguments(host)
                    )
        except (OSError, TimeoutError, UnicodeError) as error:  # UnicodeError: an impossible host name
            failure = self._failure(address, error)
            self._note_failure(address, failure, loop.time())
            raise failure from error
        self._unreachable.pop(address, None)
        self._connections[address] = connection
        self._not_ended.add(connection)
        return connection

    def _note_failure(self, address: str, failure: ConnectError, now: float) -> None:
        """Begin the wait before the next attempt, and forget addresses that are no longer asked for."""
        for known, failed in list(self._unreachable.items()):
            if failed.not_before + _FORGET_SECONDS < now:
                del self._unreachable[known]
        failed = self._unreachable.setdefault(address, _Unreachable())
        failed.failures += 1
        failed.not_before = now + self._backoff.pause(failed.failures)
        failed.kind, failed.reason = type(failure), str(failure)

    def _new_connection(self, address: str) -> Connection:
        def on_close(closed: Connection) -> None:
            self._lost(address, closed)

        if self._signer is None:
            return Connection(self.dispatcher, self._settings, self.statistics, on_close=on_close)
        return SigningConnection(self._signer, self.dispatcher, self._settings, self.statistics, on_close)

    def _tls_arguments(self, host: str) -> dict[str, Any]:
        if self._tls is None:
            return {}
        return {
            "ssl": self._tls.context,
            "server_hostname": self._tls.server_name or host,
            # For peers that do not acknowledge the end; uvloop and asyncio would wait for half a minute.
            "ssl_shutdown_timeout": self._settings.linger_seconds,
        }

    def _failure(self, address: str, error: OSError | TimeoutError | UnicodeError) -> ConnectError:
        text = f"cannot connect to {address}: "
        if isinstance(error, ssl.SSLCertVerificationError):
            return TlsError(f"{text}its certificate is not trusted: {error.verify_message.rstrip('.')}")
        # A server that shuts down may also cut a handshake short: that is no error of TLS.
        cut_short = isinstance(error, (ConnectionResetError, ConnectionAbortedError, ssl.SSLEOFError))
        if isinstance(error, ssl.SSLError) and not cut_short:
            return TlsError(f"{text}TLS failed ({error.reason or error}): does the server use TLS?")
        text += str(error) or f"no connection within {self._connect_timeout_seconds} s"
        if self._tls is not None and cut_short:
            text += " (in the TLS handshake: does the server use TLS?)"
        return ConnectError(text)

    def _connect_ended(self, address: str, task: asyncio.Task[Connection]) -> None:
        self._connecting.pop(address, None)
        if not task.cancelled():
            task.exception()  # marks it as retrieved, even if all callers were cancelled

    def _lost(self, address: str, connection: Connection) -> None:
        self._not_ended.discard(connection)
        if self._connections.get(address) is connection:
            del self._connections[address]
        if self._on_close is not None:
            self._on_close(address)

    @staticmethod
    def _stopped_error(address: str) -> ConnectError:
        return ConnectError(f"not connecting to {address}: this client has been stopped")


def split_address(address: str) -> tuple[str, int]:
    """Split `host:port` or `[IPv6]:port`. Raises ConnectError."""
    host, separator, port = address.rpartition(":")
    is_number = port.isascii() and port.isdigit() and len(port) <= _PORT_DIGITS
    if not separator or not host or not is_number or not 0 < int(port) < 65_536:
        raise ConnectError(f"{address!r} is not an address of the form host:port")
    return host.strip("[]"), int(port)
