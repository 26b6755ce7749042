"""The port of the gRPC server, by `tls.server.mode`: plain text, TLS, or both."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from rmq_remoting.daemon.lifecycle import StartError
from rmq_remoting.daemon.tasks import TaskSupervisor
from rmq_remoting.daemon.tls_settings import TlsSettings
from rmq_remoting.protocol_detection import TlsMode

from ..calls import Peers
from .certificates import TASK, GrpcCertificates
from .front import Front

log = logging.getLogger("rmq.proxy")

_ANY_LOOPBACK_PORT: Final = "127.0.0.1:0"


class GrpcPorts:
    """The port that clients connect to. Belongs to one loop."""

    def __init__(self, tls: TlsSettings) -> None:
        """`tls` are the settings in force (`effective_tls`)."""
        self._mode = tls.tls_server_mode
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
                bound = server.add_secure_port(address, credentials)
            else:
                bound = server.add_insecure_port(address)
        except (OSError, RuntimeError) as error:
            raise StartError(
                f"the proxy cannot listen on {address}: {error}; grpcServerPort chooses the port"
            ) from error
        await server.start()
        return int(bound)

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
        plain_port = server.add_insecure_port(_ANY_LOOPBACK_PORT)
        tls_port = server.add_secure_port(_ANY_LOOPBACK_PORT, credentials)
        front = Front(plain_port, tls_port)
        self.peers.names = front.names
        await server.start()
        self._front = front
        return await front.listen(host, port, reuse_port=reuse_port)
