"""The proxy of a cluster: the gRPC face and the remoting port, with connections to brokers behind them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from rmq_client.errors import UsageError
from rmq_client.network.name_servers import NameServers
from rmq_client.settings import ClientSettings, name_server_list
from rmq_remoting.client import RemotingClient
from rmq_remoting.daemon.exposition import Collector
from rmq_remoting.daemon.lifecycle import StartError
from rmq_remoting.daemon.ready import Ready, local_address
from rmq_remoting.daemon.tasks import TaskSupervisor
from rmq_remoting.daemon.tls_contexts import client_tls
from rmq_remoting.daemon.tls_metrics import TlsCollector
from rmq_remoting.daemon.tls_reloads import TlsReloads
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.signing import RequestSigner

from .access.requests import RequestAccess
from .daemon_settings import ProxyDaemonSettings
from .face import GrpcFace
from .metrics import ProxyMetrics
from .network.certificates import GrpcCertificates
from .remoting.port import RemotingPort

log = logging.getLogger("rmq.proxy")

# Held requests of the remoting port are answered before: the rest of them are short.
_DRAIN_SECONDS: Final = 5.0


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
        tls = client_tls(settings)
        self._client = RemotingClient(dispatcher, signer=signer, tls=tls)
        timeout_seconds = settings.request_timeout_ms / 1000
        self._name_servers = NameServers(
            addresses, self._client, ClientSettings(request_timeout_seconds=timeout_seconds)
        )

        def connect(requests: Dispatcher, on_close: Callable[[str], None] | None = None) -> RemotingClient:
            return RemotingClient(requests, signer=signer, tls=tls, on_close=on_close)

        self._face = GrpcFace(
            settings,
            settings,
            self._client,
            self._name_servers,
            dispatcher,
            connect=connect if settings.announce_consumers else None,
        )
        self._remoting: RemotingPort | None = None
        certificates: dict[str, TlsReloads[Any]] = {"grpc": self.certificates}
        collectors: list[Collector] = [
            self._face.collector(has_latencies=not settings.enable_remoting_server)
        ]
        if settings.enable_remoting_server:
            directory, cluster = self._face.directory, settings.rocketmq_cluster_name
            access = None if directory is None else RequestAccess(directory, cluster, settings)
            self._remoting = RemotingPort(
                settings, self._face.brokers, self._face.metadata, access, connect, self._face.adopt
            )
            collectors += self._remoting.collectors(self._face.latencies.series)
            certificates["remoting"] = self._remoting.contexts
        collectors.append(TlsCollector(certificates))
        self.metrics = ProxyMetrics(settings, supervisor, collectors)

    async def start(self) -> Ready:
        """Start serving, and return the facts to announce. Raises StartError."""
        host = self._settings.bind_address
        await self._face.start(host, self._supervisor, reuse_port=self._settings.reuse_port)
        if self._remoting is not None:
            await self._remoting.start(host, self._supervisor)
        await self.metrics.start()
        return Ready(
            name="proxy",
            address=self.address,
            remoting=self.remoting_address,
            namesrv=str(self._name_servers),
            metrics=self.metrics.address,
        )

    async def stop(self) -> None:
        """Shut down gracefully."""
        grace_seconds = self._settings.grpc_shutdown_time_seconds
        if self._remoting is not None:
            await self._remoting.stop(min(grace_seconds, _DRAIN_SECONDS))
        await self._face.stop(grace_seconds, self._supervisor)
        await self.metrics.stop()
        await self._client.stop()

    @property
    def port(self) -> int:
        """The port that gRPC clients connect to."""
        return self._face.port

    @property
    def certificates(self) -> GrpcCertificates:
        """The certificate of the port."""
        return self._face.certificates

    @property
    def address(self) -> str:
        """The address for gRPC clients on this machine, as host:port."""
        return self._local_address(self.port)

    @property
    def remoting_address(self) -> str:
        """The address for remoting clients on this machine, as host:port; empty without the port."""
        return "" if self._remoting is None else self._local_address(self._remoting.port)

    def _local_address(self, port: int) -> str:
        return local_address(self._settings.bind_address, port)
