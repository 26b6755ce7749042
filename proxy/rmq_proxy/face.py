"""The gRPC face: a server with the messaging service, health checking and reflection.

A proxy in front of a cluster has one, and so has a broker in LOCAL mode. Both differ only in the backend that
carries their requests to brokers.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any, Final

from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from rmq_client.network.broker_api import BrokerApi
from rmq_client.network.name_servers import NameServers
from rmq_client.settings import ClientSettings as SdkSettings
from rmq_remoting.daemon.access.tables import AccessTables
from rmq_remoting.daemon.lifecycle import StartError
from rmq_remoting.daemon.tasks import OnDeath, TaskSupervisor
from rmq_remoting.daemon.tls_settings import TlsSettings
from rmq_remoting.dispatch import Dispatcher

from .access.control import AccessControl
from .access.directory import ClusterDirectory, Directory, OwnDirectory
from .brokers import Backend, Brokers, OwnBroker
from .client_settings import ClientSettings
from .clients import ClientRegistry
from .event_failures import EventFailures
from .flow_limits import FlowLimits
from .held_calls import HeldCalls
from .late_reflection import LateReflection
from .latencies import RpcLatencies
from .members import Connect, Members, Questions
from .metadata import Metadata
from .metrics import ProxyCollector
from .network.certificates import GrpcCertificates
from .network.grpc_server import new_server
from .network.ports import GrpcPorts
from .pops import Pops
from .pulling import Pulling
from .receiving import Receiving
from .renewals import Renewals
from .routing import Routing
from .sending import Sending
from .service import NAME, Admission, service_handler
from .sessions import Sessions
from .settings import ProxySettings
from .tls_settings import effective_tls
from .transactions import TransactionProducers

log = logging.getLogger("rmq.proxy")

_EVENTS: Final = "gRPC: failure of its library"
_RENEWALS: Final = "gRPC: renewals"
_MEMBERS: Final = "gRPC: heartbeats of consumers"
# Brokers drop a member after two minutes.
_MEMBER_SECONDS: Final = 20.0
_ANNOUNCEMENTS: Final = "gRPC: announcements of producers"
# Clients ping connections that are idle. The default of gRPC's server closes those that ping more often.
_LEAST_PING_INTERVAL_MS: Final = 5000
# Connections of hosts that have vanished end with these pings of the server.
_PING_INTERVAL_MS: Final = 60_000
_PING_TIMEOUT_MS: Final = 20_000
# The metadata of a call, as Apache's proxy limits it. Between two different limits gRPC's library refuses
# calls at random.
_MAX_METADATA_BYTES: Final = 8192
# Calls that have arrived and not begun. Beyond this number gRPC's library ends calls at random, with the
# status CANCELLED and no reason. Its default is 1,000. Clients exceed it if they all receive at once. The
# flow limits of the settings answer with a reason, and are lower.
_MOST_PENDING_CALLS: Final = 50_000


class GrpcFace:
    """The gRPC server and all that it serves. Belongs to the loop of its start."""

    def __init__(
        self,
        settings: ProxySettings,
        tls: TlsSettings,
        backend: Backend,
        name_servers: NameServers,
        dispatcher: Dispatcher,
        own: OwnBroker | None = None,
        tables: AccessTables | None = None,
        connect: Connect | None = None,
    ) -> None:
        """`tls` are the daemon's settings, and `dispatcher` gets the requests of brokers.

        `own` is the broker of this process in LOCAL mode, and `tables` has its users. `connect` opens the
        connections of consumers; without it brokers do not list them.
        """
        self._settings = settings
        try:
            timeout_seconds = settings.local_proxy_connect_timeout_ms / 1000
            self._ports = GrpcPorts(effective_tls(tls, settings), timeout_seconds, settings.most_connections)
        except ValueError as error:
            raise StartError(f"the gRPC port cannot be served: {error}") from error
        self.brokers = Brokers(backend, name_servers, settings, own)
        self._access: AccessControl | None = None
        # Users and rules; None while everyone is served.
        self.directory: Directory | None = None
        if settings.authentication_enabled:
            cluster = settings.rocketmq_cluster_name
            self.directory = (
                ClusterDirectory(self.brokers, cluster, settings) if tables is None else OwnDirectory(tables)
            )
            self._access = AccessControl(self.directory, settings)
        # Types of topics, and configurations of groups.
        self.metadata = Metadata(self.brokers, settings)
        self._held = HeldCalls()
        self._clients = ClientRegistry(settings.channel_expired_timeout_ms / 1000)
        self._pops = Pops(self.brokers)
        self._renewals = Renewals(self._pops, self.metadata, self._clients, settings)
        self._transactions = TransactionProducers(
            self.brokers, self.metadata, self._clients, f"{settings.proxy_name}@{os.getpid()}#proxy"
        )
        self._transactions.register(dispatcher)
        self._routing = Routing(self.brokers, self.metadata, settings)
        client_settings = ClientSettings(settings, self.metadata)
        self._receiving = Receiving(
            self.brokers, self._pops, self._clients, client_settings, self._renewals, settings, self._held
        )
        timeout_seconds = settings.request_timeout_ms / 1000
        offsets = BrokerApi(backend, SdkSettings(request_timeout_seconds=timeout_seconds))
        self.latencies = RpcLatencies()
        questions = Questions()
        self._members = Members(
            self.brokers, self._clients, questions, connect, settings.most_member_connections
        )
        self._flows = FlowLimits(settings)
        self._sessions = Sessions(
            self._clients,
            client_settings,
            self._transactions,
            self._members,
            questions,
            self._flows.of("Telemetry"),
        )
        self._handler = service_handler(
            self._routing,
            self._sessions,
            Sending(self.brokers, self.metadata, settings),
            self._receiving,
            Pulling(self.brokers, offsets, settings, self._held),
            self.latencies,
            Admission(self._ports.peers, self._access, self._flows),
        )
        self._health: Any = None
        self._server: Any = None
        self._failures = EventFailures()

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return self._routing.port

    @property
    def certificates(self) -> GrpcCertificates:
        """The certificate of the port."""
        return self._ports.certificates

    def adopt(self, transport: asyncio.Transport, first: bytes) -> None:
        """Serve a decrypted connection of another port, which speaks HTTP/2; `first` is what it received."""
        self._ports.adopt(transport, first)

    def collector(self, *, has_latencies: bool = True) -> ProxyCollector:
        """Return the collector of the face's metrics; `has_latencies`: those of calls, too."""
        return ProxyCollector(
            "cluster" if self.brokers.own is None else "local",
            self._clients,
            self.latencies,
            self._receiving,
            self._renewals,
            self._flows,
            self._members,
            self._failures,
            (*self.brokers.caches, *self.metadata.caches),
            has_latencies=has_latencies,
        )

    async def start(self, host: str, supervisor: TaskSupervisor, *, reuse_port: bool = False) -> None:
        """Listen; `reuse_port`: further processes may listen on the port, too. Raises StartError."""
        settings = self._settings
        server = new_server(
            (
                ("grpc.so_reuseport", int(reuse_port)),
                ("grpc.max_receive_message_length", settings.grpc_max_inbound_message_size),
                ("grpc.max_send_message_length", -1),
                ("grpc.server.max_pending_requests", _MOST_PENDING_CALLS),
                ("grpc.server.max_pending_requests_hard_limit", 2 * _MOST_PENDING_CALLS),
                ("grpc.max_allowed_incoming_connections", self._ports.most_connections),
                ("grpc.max_metadata_size", _MAX_METADATA_BYTES),
                ("grpc.absolute_max_metadata_size", _MAX_METADATA_BYTES),
                ("grpc.keepalive_time_ms", _PING_INTERVAL_MS),
                ("grpc.keepalive_timeout_ms", _PING_TIMEOUT_MS),
                ("grpc.max_connection_idle_ms", settings.grpc_client_idle_time_ms),
                ("grpc.http2.min_recv_ping_interval_without_data_ms", _LEAST_PING_INTERVAL_MS),
                ("grpc.keepalive_permit_without_calls", 1),
            ),
            self._failures,
        )
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        server.add_generic_rpc_handlers((self._handler, LateReflection((NAME,))))
        self._server = server
        self._routing.port = await self._ports.start(
            server, host, settings.grpc_server_port, supervisor, reuse_port=reuse_port
        )
        for name in ("", NAME):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        supervisor.start(_EVENTS, lambda: self._close_if_broken(supervisor), on_death=OnDeath.STOP_DAEMON)
        supervisor.every(_RENEWALS, settings.renew_schedule_period_ms / 1000, self._renewals.renew_due)
        supervisor.every(
            _ANNOUNCEMENTS,
            settings.transaction_heartbeat_period_seconds,
            self._transactions.announce_soon,
        )
        if self._members.is_on:
            supervisor.every(_MEMBERS, _MEMBER_SECONDS, self._members.announce_all)
        log.info("gRPC listens address=%s port=%d", host, self.port)

    async def stop(self, grace_seconds: float, supervisor: TaskSupervisor) -> None:
        """Shut down gracefully: accept no calls, release held ones, let others end for `grace_seconds`."""
        await supervisor.cancel(_EVENTS)
        await supervisor.cancel(_RENEWALS)
        await supervisor.cancel(_ANNOUNCEMENTS)
        if self._members.is_on:
            await supervisor.cancel(_MEMBERS)
        if self._server is not None:
            await self._ports.stop_listening(supervisor)
            await self._health.enter_graceful_shutdown()
            stopping = asyncio.ensure_future(self._server.stop(grace_seconds))
            self._sessions.end()
            self._held.release()
            await stopping
            self._ports.close()
        await self._renewals.stop()
        if self._access is not None:
            await self._access.stop()
        await asyncio.gather(
            self._receiving.stop(),
            self._members.stop(),
            self._transactions.stop(),
            self.metadata.stop(),
            self.brokers.stop(),
        )

    async def _close_if_broken(self, supervisor: TaskSupervisor) -> None:
        """Close the port once gRPC's library delivers no events, so that clients are refused and not held.

        A broker serves its other ports on. Raises RuntimeError in a proxy, whose process then stops.
        """
        cause = await self._failures.broken()
        await self._ports.stop_listening(supervisor)
        self._ports.close()
        if self.brokers.own is None:
            raise RuntimeError(f"gRPC's library delivers no events: {cause}")
        log.critical(
            "gRPC port closed port=%d cause=%s; gRPC's library delivers no events, restart the broker to "
            "serve gRPC again",
            self.port,
            cause,
        )
