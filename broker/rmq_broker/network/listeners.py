"""The broker's listeners: the main port for all requests, the fast port for all but pulls and pops, and the
port that replicas connect to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rmq_remoting.admission import Admission
from rmq_remoting.connection import ConnectionSettings
from rmq_remoting.daemon.tls_contexts import ServerContexts
from rmq_remoting.draining import all_answered
from rmq_remoting.server import RemotingServer

from .address import BoundPorts, port_problem

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection
    from rmq_remoting.daemon.tasks import TaskSupervisor
    from rmq_remoting.dispatch import Dispatcher

    from ..replication.serving import ReplicaServer
    from ..settings.broker import BrokerSettings

log = logging.getLogger("rmq.broker")

_DRAIN_SECONDS: Final = 3.0


class Listeners:
    """The servers, on ports that are bound already."""

    def __init__(
        self,
        settings: BrokerSettings,
        ports: BoundPorts,
        main: Dispatcher,
        fast: Dispatcher,
        replicas: ReplicaServer,
        on_close: Callable[[Connection], None],
    ) -> None:
        """`on_close` is called at the end of every connection. Reads the files of TLS; raises StartError."""
        # How long a stop waits for the requests under way.
        self.drain_seconds = _DRAIN_SECONDS
        self._settings = settings
        self._ports = ports
        self._replicas = replicas
        self._on_close = on_close
        self._admission = Admission(settings.connection_limits)
        self.contexts = ServerContexts(settings)
        self.contexts.load()
        self.main = self._server(main)
        self.fast = self._server(fast)

    async def start(self) -> None:
        """Accept connections. Raises StartError."""
        try:
            await self.main.start_on(self._ports.main)
            await self.fast.start_on(self._ports.fast)
            await self._replicas.start_on(self._ports.replication)
        except OSError as error:
            raise port_problem(self._settings, error) from error

    def start_tasks(self, supervisor: TaskSupervisor) -> None:
        """Watch the files of TLS."""
        self.contexts.watch(supervisor, "tls-files")

    def stop_accepting(self) -> None:
        """Accept no more connections; those that are open go on."""
        self.main.stop_accepting()
        self.fast.stop_accepting()

    def oldest_wait_seconds(self, codes: frozenset[int]) -> float:
        """Return for how long the oldest request with one of these codes has waited for the loop; 0: none."""
        return max(self.main.oldest_wait_seconds(codes), self.fast.oldest_wait_seconds(codes))

    async def drain(self) -> None:
        """Wait until the requests under way are answered, for some seconds at most."""
        if not await all_answered(self.main.dispatcher, self.drain_seconds):
            log.warning("stopping with unanswered requests after_seconds=%.0f", self.drain_seconds)

    async def stop(self) -> None:
        """Close all connections, those of replicas last, and end the threads of the tiers."""
        await self.main.stop()
        await self.fast.stop()
        await self._replicas.stop()
        self._ports.close()
        # Both ports share their tiers.
        self.main.dispatcher.stop()

    def _server(self, dispatcher: Dispatcher) -> RemotingServer:
        settings = self._settings
        return RemotingServer(
            dispatcher,
            settings=ConnectionSettings(
                write_high_bytes=settings.write_high_bytes, write_low_bytes=settings.write_low_bytes
            ),
            idle_seconds=settings.server_channel_max_idle_seconds,
            backlog=settings.server_socket_backlog,
            admission=self._admission,
            tls=self.contexts.tls,
            on_close=self._on_close,
        )
