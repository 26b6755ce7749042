"""The port of the gRPC server, by `tls.server.mode`: plain text, TLS, or both."""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Any, Final

from rmq_remoting.admission import most_descriptor
from rmq_remoting.daemon.lifecycle import StartError
from rmq_remoting.daemon.tasks import TaskSupervisor
from rmq_remoting.daemon.tls_settings import TlsSettings
from rmq_remoting.protocol_detection import HTTP2_NAME, TlsMode

from ..calls import Peers
from .certificates import TASK, GrpcCertificates
from .front import Entrance, Front

log = logging.getLogger("rmq.proxy")

# A connection through a front has this number of sockets in this process.
_SOCKETS_WITH_FRONT: Final = 3
# The rest is for connections to brokers and for files.
_SHARE: Final = 0.75
_MOST: Final = 2**31 - 1
_LOOPBACK: Final = "127.0.0.1"
_LOOPBACKS: Final = {"": _LOOPBACK, "0.0.0.0": _LOOPBACK, "::": "::1"}


class GrpcPorts:
    """The port that clients connect to. Belongs to one loop."""

    def __init__(self, tls: TlsSettings, connect_timeout_seconds: float, most_connections: int = 0) -> None:
        """`tls` are the settings in force (`effective_tls`); the time-out is that of the front.

        `most_connections` 0: as many as open files allow.
        """
        self._connect_timeout_seconds = connect_timeout_seconds
        self._mode = tls.tls_server_mode
        # The gRPC server must have this bound, too.
        self.most_connections = most_connections or _by_open_files(self._mode)
        self.certificates = GrpcCertificates(tls)
        self._front: Front | None = None
        # The addresses of clients.
        self.peers = Peers()

    async def start(
        self, server: Any, host: str, port: int, supervisor: TaskSupervisor, *, reuse_port: bool = False
    ) -> int:
        """Start a gRPC server that listens, and return its port. Raises StartError.

        `reuse_port`: further processes may listen on the port. The options of `server` must say so, too.
        """
        credentials: Any = None
        if self._mode is not TlsMode.DISABLED:
            credentials = await asyncio.to_thread(self.certificates.load)
            self.certificates.watch(supervisor)
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if self._mode is TlsMode.PERMISSIVE:
                return await self._start_with_front(server, credentials, host, port, reuse_port=reuse_port)
            if self._mode is TlsMode.ENFORCING:
                bound = int(server.add_secure_port(address, credentials))
            else:
                bound = int(server.add_insecure_port(address))
        except (OSError, RuntimeError) as error:
            raise StartError(
                f"the proxy cannot listen on {address}: {error}; grpcServerPort chooses the port"
            ) from error
        await server.start()
        tls = _own_tls() if self._mode is TlsMode.ENFORCING else None
        entrance = Entrance(_LOOPBACKS.get(host, host), bound, tls)
        self._front = Front(entrance, entrance, self._connect_timeout_seconds, self.most_connections)
        self.peers.names = self._front.names
        return bound

    def adopt(self, transport: asyncio.Transport, first: bytes) -> None:
        """Serve a decrypted connection of another port, which speaks HTTP/2; `first` is what it received."""
        if self._front is None:
            transport.abort()
        else:
            self._front.adopt(transport, first)

    async def stop_listening(self, supervisor: TaskSupervisor) -> None:
        """Accept no further connections of clients, and watch the certificate no longer."""
        await supervisor.cancel(TASK)
        if self._front is not None:
            self._front.stop_listening()

    def close(self) -> None:
        """Close what the gRPC server itself does not close."""
        if self._front is not None:
            self._front.close()

    async def _start_with_front(
        self, server: Any, credentials: Any, host: str, port: int, *, reuse_port: bool
    ) -> int:
        plain_port = server.add_insecure_port(f"{_LOOPBACK}:0")
        tls_port = server.add_secure_port(f"{_LOOPBACK}:0", credentials)
        front = Front(
            Entrance(_LOOPBACK, plain_port),
            Entrance(_LOOPBACK, tls_port),
            self._connect_timeout_seconds,
            self.most_connections,
        )
        self.peers.names, self.peers.all_named = front.names, True
        await server.start()
        self._front = front
        return await front.listen(host, port, reuse_port=reuse_port)


def _by_open_files(mode: TlsMode) -> int:
    """Return the number of connections that leaves descriptors for other uses."""
    sockets = _SOCKETS_WITH_FRONT if mode is TlsMode.PERMISSIVE else 1
    return int(min(most_descriptor() * _SHARE / sockets, _MOST))


def _own_tls() -> ssl.SSLContext:
    """Return a context for connections to the port of this process, whose certificate needs no proof."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([HTTP2_NAME])
    return context
