"""The gRPC face in the broker's process: LOCAL mode of Apache's proxy.

The only module of the broker that imports the proxy. The face reaches the broker over one connection to the
broker's own port, so that its requests have the same order, bounds and statistics as those of other clients.
The connection has no socket, which saves four system calls a request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rmq_client.errors import UsageError
from rmq_client.network.name_servers import NameServers
from rmq_client.settings import ClientSettings, name_server_list
from rmq_proxy.brokers import OwnBroker
from rmq_proxy.face import GrpcFace
from rmq_proxy.local_settings import load_local_settings
from rmq_remoting.client import RemotingClient
from rmq_remoting.daemon.lifecycle import StartError
from rmq_remoting.daemon.ready import Listening, local_address
from rmq_remoting.daemon.tls_contexts import client_tls
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.protocol_detection import TlsMode
from rmq_remoting.signing import RequestSigner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmq_remoting.daemon.access.tables import AccessTables
    from rmq_remoting.daemon.exposition import Collector
    from rmq_remoting.daemon.histogram import Histogram
    from rmq_remoting.daemon.latency_metrics import LatencyLabels
    from rmq_remoting.daemon.tasks import TaskSupervisor
    from rmq_remoting.daemon.tls_reloads import TlsReloads
    from rmq_remoting.memory_transport import Link

    from .network.address import BrokerAddress
    from .settings.broker import BrokerSettings

# Held pops are released before: the rest of the calls are short.
_GRACE_SECONDS: Final = 5.0


class LocalProxy:
    """The gRPC face of one broker."""

    def __init__(
        self, settings: BrokerSettings, address: BrokerAddress, tables: AccessTables, link: Link
    ) -> None:
        """Prepare the face; `start` listens. Raises StartError, SettingsError.

        `tables` has the broker's users and their rules. `link` connects to the broker's main port.
        """
        try:
            name_servers = name_server_list(settings.name_server_addresses)
        except UsageError as error:
            raise StartError(
                f"grpcServerPort needs a name server, which has the routes of topics: {error}"
            ) from error
        own_settings = load_local_settings(
            settings.proxy_config_path,
            {
                "grpcServerPort": str(settings.grpc_server_port),
                "rocketMQClusterName": settings.broker_cluster_name,
                "authenticationEnabled": str(settings.authentication_enabled).lower(),
                "authorizationEnabled": str(settings.authorization_enabled).lower(),
            },
        )
        self._bind_address = settings.bind_address
        dispatcher = Dispatcher()
        keys = settings.own_keys
        signer = None if keys is None else RequestSigner(keys.access_key, keys.secret_key)
        tls = client_tls(settings)
        to_broker = tls if settings.tls_server_mode is TlsMode.ENFORCING else None
        own = local_address(settings.bind_address, address.port)
        self._to_broker = RemotingClient(dispatcher, signer=signer, links={own: link})
        self._to_name_servers = RemotingClient(signer=signer, tls=tls)
        self._face = GrpcFace(
            own_settings,
            settings,
            self._to_broker,
            NameServers(name_servers, self._to_name_servers, ClientSettings()),
            dispatcher,
            OwnBroker(settings.broker_name, own),
            tables,
            lambda requests: RemotingClient(requests, signer=signer, tls=to_broker),
        )

    def collector(self) -> Collector:
        """Return the collector of the face's metrics, without `latencies`."""
        return self._face.collector(has_latencies=False)

    def latencies(self) -> Mapping[LatencyLabels, Histogram]:
        """Return the latencies of gRPC calls, for the collector of the broker's ports."""
        return self._face.latencies.series()

    @property
    def certificates(self) -> TlsReloads[Any]:
        """The certificate of the gRPC port."""
        return self._face.certificates

    async def start(self, supervisor: TaskSupervisor) -> Listening:
        """Listen, and return where. Raises StartError."""
        await self._face.start(self._bind_address, supervisor)
        return self._bind_address, self._face.port

    async def stop(self, supervisor: TaskSupervisor) -> None:
        """Shut down gracefully, while the broker still serves."""
        await self._face.stop(_GRACE_SECONDS, supervisor)
        await self._to_broker.stop()
        await self._to_name_servers.stop()
