"""The proxy of a cluster: the gRPC face, with connections to the cluster's brokers behind it."""

from __future__ import annotations

import logging
from typing import Final

from rmq_client.errors import UsageError
from rmq_client.network.name_servers import NameServers
from rmq_client.settings import ClientSettings, name_server_list
from rmq_remoting.client import RemotingClient
from rmq_remoting.daemon.lifecycle import StartError
from rmq_remoting.daemon.tasks import TaskSupervisor
from rmq_remoting.daemon.tls_contexts import client_tls
from rmq_remoting.daemon.tls_metrics import TlsCollector
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.signing import RequestSigner

from .daemon_settings import ProxyDaemonSettings
from .face import GrpcFace
from .metrics import ProxyMetrics
from .network.certificates import GrpcCertificates

log = logging.getLogger("rmq.proxy")

_EVERY_INTERFACE: Final = frozenset({"", "0.0.0.0", "::"})


class Proxy:
    """A proxy in this process. It keeps no state: another one can take over its clients at any time."""

    def __init__(self, settings: ProxyDaemonSettings, supervisor: TaskSupervisor) -> None:
        """`supervisor` owns the background tasks. Raises StartError."""
        self._settings = settings
        self._supervisor = supervisor
        try:
            addresses = name_server_list(settings.namesrv_addr or None)
        except UsageError as error:
            raise StartError(f"{error} (namesrvAddr, or the option -n)") from error
        dispatcher = Dispatcher()
        keys = settings.own_keys
        signer = None if keys is None else RequestSigner(keys.access_key, keys.secret_key)
        self._client = RemotingClient(dispatcher, signer=signer, tls=client_tls(settings))
        timeout_seconds = settings.request_timeout_ms / 1000
        self._name_servers = NameServers(
            addresses, self._client, ClientSettings(request_timeout_seconds=timeout_seconds)
        )

        def connect(requests: Dispatcher) -> RemotingClient:
            return RemotingClient(requests, signer=signer, tls=client_tls(settings))

        self._face = GrpcFace(
            settings,
            settings,
            self._client,
            self._name_servers,
            dispatcher,
            connect=connect if settings.announce_consumers else None,
        )
        collectors = (self._face.collector(), TlsCollector({"grpc": self.certificates}))
        self.metrics = ProxyMetrics(settings, supervisor, collectors)

    async def start(self) -> str:
        """Start serving, and return the text of the ready line. Raises StartError."""
        await self._face.start(self._settings.bind_address, self._supervisor)
        await self.metrics.start()
        return f"proxy {self.address} namesrv {self._name_servers}"

    async def stop(self) -> None:
        """Shut down gracefully."""
        await self._face.stop(self._settings.grpc_shutdown_time_seconds, self._supervisor)
        await self.metrics.stop()
        await self._client.stop()

    @property
    def port(self) -> int:
        """The port that the proxy listens on."""
        return self._face.port

    @property
    def certificates(self) -> GrpcCertificates:
        """The certificate of the port."""
        return self._face.certificates

    @property
    def address(self) -> str:
        """The address for clients on this machine, as host:port."""
        host = self._settings.bind_address
        host = "127.0.0.1" if host in _EVERY_INTERFACE else host
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
