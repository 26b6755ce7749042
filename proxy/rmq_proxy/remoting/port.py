"""The remoting port: its server, its processor table, and its graceful shutdown.

Source: Apache RocketMQ 5.3.3, RemotingProtocolServer.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from rmq_client.errors import ClientError
from rmq_remoting.admission import Admission, ConnectionLimits
from rmq_remoting.answers import Answer
from rmq_remoting.client import RemotingClient
from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.daemon.exposition import Family, counter, gauge
from rmq_remoting.daemon.latency_metrics import FurtherLatencies
from rmq_remoting.daemon.lifecycle import StartError
from rmq_remoting.daemon.remoting_metrics import RemotingCollector
from rmq_remoting.daemon.tasks import TaskSupervisor
from rmq_remoting.daemon.tls_contexts import ServerContexts
from rmq_remoting.daemon.tls_settings import ClientAuthentication
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.draining import all_answered
from rmq_remoting.framing import MAX_FRAME_BYTES, MAX_REQUEST_BODY_BYTES, MAX_REQUEST_HEADER_BYTES
from rmq_remoting.protocol_detection import HTTP2_NAME, ServerTls, TlsMode
from rmq_remoting.server import RemotingServer, bind_socket
from rmq_remoting.tiers import InlineTier

from ..access.requests import RequestAccess
from ..brokers import Brokers
from ..daemon_settings import ProxyDaemonSettings
from ..metadata import Metadata
from ..tls_settings import effective_tls
from .callbacks import register_callbacks
from .commands import refusal_for
from .connection_limit import ConnectionLimit
from .groups import Groups
from .lookup import Lookup
from .relay import Relay, Work
from .routes import Routes
from .sends import Sends
from .sessions import Sessions

log = logging.getLogger("rmq.proxy")

_TLS_FILES: Final = "remoting: TLS files"
# The header of a send may grow on its way by the signature of the proxy.
_MAX_MESSAGE_BYTES: Final = MAX_FRAME_BYTES - 2 * MAX_REQUEST_HEADER_BYTES


class RemotingPort:
    """Serves clients of the remoting protocol from the brokers of a cluster. Belongs to one loop."""

    def __init__(
        self,
        settings: ProxyDaemonSettings,
        brokers: Brokers,
        metadata: Metadata,
        access: RequestAccess | None,
        connect: Callable[[Dispatcher, Callable[[str], None]], RemotingClient],
        on_http2: Callable[[asyncio.Transport, bytes], None],
    ) -> None:
        """`connect` opens connections to brokers, whose requests go to the dispatcher.

        It calls its second argument with the address of a connection that has ended. `on_http2` takes the
        connections of gRPC clients, decrypted, with the bytes received so far. Raises StartError.
        """
        self._settings = settings
        self._access = access
        tls = effective_tls(settings, settings)
        self.contexts = ServerContexts(tls)
        self.contexts.load()
        callbacks = Dispatcher()
        register_callbacks(callbacks)
        limit = ConnectionLimit(settings.remoting_most_broker_connections)
        self._sessions = Sessions(partial(connect, callbacks), limit)
        lookup = Lookup(brokers, settings.rocketmq_cluster_name)
        self._relay = Relay(self._sessions, lookup, brokers, settings.request_timeout_ms / 1000)
        self._sends = Sends(self._relay, metadata, checks_types=settings.enable_topic_message_type_check)
        self._groups = Groups(self._sessions, lookup, self._relay)
        self._routes = Routes(brokers, settings.remoting_access_addr)
        self.dispatcher = Dispatcher()
        self._fill_table()
        # The gRPC port would demand a certificate of the proxy itself, which has none.
        is_closed_to_itself = (
            tls.tls_server_mode is TlsMode.ENFORCING
            and tls.client_authentication is ClientAuthentication.REQUIRE
        )
        # With `reusePort` the system might pass such a connection to another process, which would see the
        # address of this host.
        serves_http2 = (
            settings.enable_remoting_local_proxy_grpc and not is_closed_to_itself and not settings.reuse_port
        )
        self._server = RemotingServer(
            self.dispatcher,
            admission=Admission(
                ConnectionLimits(
                    settings.remoting_most_connections, settings.remoting_most_connections_per_host
                )
            ),
            tls=ServerTls(tls.tls_server_mode, self._http2_context) if serves_http2 else self.contexts.tls,
            on_close=self._sessions.closed,
            on_http2=on_http2 if serves_http2 else None,
        )

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return self._server.port

    async def start(self, host: str, supervisor: TaskSupervisor) -> None:
        """Listen. Raises StartError."""
        wanted = self._settings.remoting_listen_port
        try:
            bound = bind_socket(host, wanted, reuse_port=self._settings.reuse_port)
            self._routes.port = await self._server.start_on(bound)
        except OSError as error:
            raise StartError(
                f"the proxy cannot listen on {host}:{wanted}: {error.strerror or error}; remotingListenPort "
                "chooses the port, and enableRemotingServer=false goes without it"
            ) from error
        self.contexts.watch(supervisor, _TLS_FILES)
        log.info("remoting listens address=%s port=%d", host, self.port)

    async def stop(self, grace_seconds: float) -> None:
        """Shut down gracefully: end held requests, let others end for `grace_seconds`, close connections."""
        self._server.stop_accepting()
        self._relay.release()
        if not await all_answered(self.dispatcher, grace_seconds):
            log.warning("requests not drained within the time-out limit_s=%.1f", grace_seconds)
        await self._relay.stop()
        await self._groups.stop()
        await self._server.stop()
        await self._sessions.stop()
        self.dispatcher.stop()

    def collectors(self, latencies: FurtherLatencies) -> list[Any]:
        """Return the collectors of the port; `latencies` are those of gRPC calls."""
        return [
            RemotingCollector(self.dispatcher, {"remoting": self._server}, latencies),
            SessionCollector(self._sessions),
        ]

    async def _http2_context(self) -> ssl.SSLContext:
        """Return the context of the next handshake, in which HTTP/2 can be agreed on."""
        context = await self.contexts.context()
        context.set_alpn_protocols([HTTP2_NAME])
        return context

    # --- the processor table ---

    def _fill_table(self) -> None:
        settings = self._settings
        send = _tier("send", settings.remoting_send_capacity, settings.remoting_send_wait_ms)
        pull = _tier("pull", settings.remoting_pull_capacity, settings.remoting_pull_wait_ms)
        heartbeat = _tier(
            "heartbeat", settings.remoting_heartbeat_capacity, settings.remoting_heartbeat_wait_ms
        )
        offset = _tier(
            "update offset", settings.remoting_update_offset_capacity, settings.remoting_update_offset_wait_ms
        )
        route = _tier(
            "topic route", settings.remoting_topic_route_capacity, settings.remoting_topic_route_wait_ms
        )
        default = _tier("default", settings.remoting_default_capacity, settings.remoting_default_wait_ms)
        row, by_name, groups = self._row, self._relay.by_name, self._groups

        row([Code.GET_ROUTEINFO_BY_TOPIC], self._routes.route, route)

        messages = [Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE]
        replies = [Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2]
        row(messages, self._sends.send, send, max_body_bytes=_MAX_MESSAGE_BYTES)
        row(replies, by_name, send, max_body_bytes=_MAX_MESSAGE_BYTES)
        row([Code.RECALL_MESSAGE], self._sends.recall, send)
        row([Code.CONSUMER_SEND_MSG_BACK, Code.END_TRANSACTION], by_name, send)

        for code in (Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE, Code.POP_MESSAGE, Code.NOTIFICATION):
            self._held_row(code, pull)
        row([Code.PEEK_MESSAGE], by_name, pull)

        row([Code.HEART_BEAT], groups.heartbeat, heartbeat)

        row([Code.UPDATE_CONSUMER_OFFSET, Code.ACK_MESSAGE], by_name, offset)
        row([Code.CHANGE_MESSAGE_INVISIBLETIME], by_name, offset)
        row([Code.BATCH_ACK_MESSAGE], self._relay.batch_ack, offset)
        row([Code.GET_CONSUMER_CONNECTION_LIST], groups.members, offset)

        row([Code.UNREGISTER_CLIENT], groups.unregister, default)
        row([Code.CHECK_CLIENT_CONFIG], groups.check_client, default)
        row([Code.GET_CONSUMER_LIST_BY_GROUP], groups.members, default)
        row([Code.QUERY_ASSIGNMENT], groups.assignment, default)
        row([Code.GET_MAX_OFFSET, Code.GET_MIN_OFFSET, Code.SEARCH_OFFSET_BY_TIMESTAMP], by_name, default)
        row([Code.GET_EARLIEST_MSG_STORETIME, Code.QUERY_CONSUMER_OFFSET], by_name, default)
        row([Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ], self._relay.lock, default)

    def _row(
        self, codes: list[Code], work: Work, tier: InlineTier, max_body_bytes: int = MAX_REQUEST_BODY_BYTES
    ) -> None:
        for code in codes:
            self.dispatcher.register(
                [code], partial(self._deferred, code, work), tier, max_body_bytes=max_body_bytes
            )

    def _held_row(self, code: Code, tier: InlineTier) -> None:
        def admitted(client: Connection, code: int, request: RemotingCommand) -> Coroutine[Any, Any, Answer]:
            return self._admitted(code, self._relay.by_name, client, request)

        def process(client: Connection, request: RemotingCommand) -> asyncio.Future[Answer]:
            return self._relay.hold(client, int(code), request, tier, admitted)

        self.dispatcher.register([code], process, tier, max_body_bytes=MAX_REQUEST_BODY_BYTES)

    def _deferred(
        self, code: Code, work: Work, client: Connection, request: RemotingCommand
    ) -> asyncio.Future[Answer]:
        return asyncio.ensure_future(self._admitted(int(code), work, client, request))

    async def _admitted(self, code: int, work: Work, client: Connection, request: RemotingCommand) -> Answer:
        """Run a request after its check. Raises CommandError, BodyError, ProtocolError."""
        if self._access is not None:
            try:
                await self._access.check(client, code, request)
            except ClientError as error:
                raise refusal_for(error) from error
        return await work(client, code, request)


def _tier(name: str, capacity: int, max_wait_ms: int) -> InlineTier:
    return InlineTier(name, capacity=capacity, max_wait_ms=max_wait_ms)


class SessionCollector:
    """Clients of the remoting port, and their connections to brokers."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def collect(self) -> list[Family]:
        """Return the metrics."""
        limit = self._sessions.limit
        return [
            gauge(
                "rmq_proxy_sessions",
                "Remoting clients that use brokers through the proxy.",
                len(self._sessions),
            ),
            gauge(
                "rmq_proxy_broker_connections",
                "Connections to brokers on behalf of remoting clients.",
                limit.open,
            ),
            gauge(
                "rmq_proxy_broker_connections_limit",
                "Most such connections (remotingBrokerConnectionsMaxNum).",
                limit.most,
            ),
            counter(
                "rmq_proxy_broker_connections_refused_total",
                "Requests answered SYSTEM_BUSY because the limit of these connections was reached.",
                limit.refused,
            ),
        ]
