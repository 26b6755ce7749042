"""The master's port of replication, and the replicas that are connected to it.

Source: Apache RocketMQ 5.3.3, DefaultHAService.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from .sending import ReplicaConnection

if TYPE_CHECKING:
    from ..settings.broker import BrokerSettings
    from ..store.api import MessageStore

log = logging.getLogger("rmq.broker.replication")

# Makes a connection out of the arguments of ReplicaConnection.
ConnectionFactory = Callable[..., ReplicaConnection]

_CHECK_SECONDS: Final = 1.0
_READ_THREADS: Final = 2
# An ASYNC_MASTER sends this long after a message; measured: without it a replica costs a fifth more CPU.
_GATHER_SECONDS: Final = 0.002
# How long a stop waits for replicas, and how often it looks.
_CATCH_UP_SECONDS: Final = 2.0
_CATCH_UP_STEP_SECONDS: Final = 0.01


class ReplicaServer:
    """Accepts replicas on a port that is bound already."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        make_connection: ConnectionFactory = ReplicaConnection,
    ) -> None:
        """`make_connection`: the kind of connections; another one with a controller."""
        self._settings = settings
        self._store = store
        self._make_connection = make_connection
        self._server: asyncio.Server | None = None
        self._executor = ThreadPoolExecutor(_READ_THREADS, thread_name_prefix="replication-read")
        self._listens_for_arrivals = False
        self._gathers = False
        self.connections: list[ReplicaConnection] = []

    async def start_on(self, port: socket.socket) -> None:
        """Accept connections. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._store.replicas.add_growth_listener(self._log_grew)
        self._server = await loop.create_server(self._connection, sock=port)

    async def run(self) -> None:
        """Look after the connections until cancelled."""
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            for connection in self.connections.copy():
                connection.check()

    async def stop(self) -> None:
        """Close the port, let replicas catch up for a moment, and close all connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._let_catch_up()
        for connection in self.connections.copy():
            connection.close("this broker stops")
        await asyncio.sleep(0)
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _let_catch_up(self) -> None:
        """Wait until all replicas that are in sync have the whole log, for some seconds at most."""
        store, loop = self._store, asyncio.get_running_loop()
        until = loop.time() + _CATCH_UP_SECONDS
        while any(each.acknowledged < store.transferable_end for each in store.replicas.in_sync()):
            if loop.time() >= until:
                log.warning("stopping before all replicas have the whole log")
                return
            await asyncio.sleep(_CATCH_UP_STEP_SECONDS)

    # --- connections ---

    def _connection(self) -> ReplicaConnection:
        return self._make_connection(self._store, self._settings, self._executor, self._admit, self._closed)

    def _admit(self, connection: ReplicaConnection, host: str) -> str | None:
        settings = self._settings
        if settings.is_replica:
            return "this broker is a replica itself, and has none of its own"
        if len(self.connections) >= settings.max_ha_connections:
            return f"maxHaConnections={settings.max_ha_connections} are open"
        networks = settings.allowed_replicas
        if networks:
            address = ipaddress.ip_address(host.partition("%")[0])
            address = getattr(address, "ipv4_mapped", None) or address
            if not any(address in network for network in networks):
                return "its address is not in haAllowedReplicas"
        elif settings.authentication_enabled:
            return "authenticationEnabled=true: name its address in haAllowedReplicas"
        self.connections.append(connection)
        self._listen()
        return None

    def _closed(self, connection: ReplicaConnection) -> None:
        self.connections.remove(connection)
        self._listen()

    # --- growth of the log ---

    def _listen(self) -> None:
        """Hear of each message while there are replicas; a SYNC_MASTER's store tells of growth by itself."""
        wanted = bool(self.connections) and not self._store.replicas.is_synchronous
        if wanted and not self._listens_for_arrivals:
            self._store.add_arrival_listener(self._arrived)
        elif self._listens_for_arrivals and not wanted:
            self._store.remove_arrival_listener(self._arrived)
        self._listens_for_arrivals = wanted

    def _arrived(self, queue: object) -> None:
        """Send what arrives within a moment at once: nobody waits for it, and each piece costs a system call.

        Called for each message.
        """
        if not self._gathers:
            self._gathers = True
            asyncio.get_running_loop().call_later(_GATHER_SECONDS, self._gathered)

    def _gathered(self) -> None:
        self._gathers = False
        self._log_grew()

    def _log_grew(self) -> None:
        for connection in self.connections:
            connection.send_soon()
