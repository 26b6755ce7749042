"""Sessions: the connections to brokers of one client.

Each client of the proxy has its own connection to each broker that it uses. So brokers list the client as a
member of its groups, notify it of changes, and send it checks and questions, as without a proxy. All proxies
of a cluster, and the clients that connect to brokers themselves, share one list of members. Apache's proxy
keeps the members itself, and tells other proxies by messages (HeartbeatSyncer).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Final

from rmq_remoting.bodies.heartbeat import HeartbeatData
from rmq_remoting.client import RemotingClient
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.errors import RequestError
from rmq_remoting.tasks import cancel_all

from .commands import forwarded
from .connection_limit import ConnectionLimit

log = logging.getLogger("rmq.proxy")

_HEARTBEAT_SECONDS: Final = 2.0
# The Java client sends one heartbeat for each broker of its routes, all with the same content.
_SAME_HEARTBEAT_SECONDS: Final = 5.0

_SESSION: Final = "rmq.proxy.session"

# Returns a client that calls its argument with the address of each connection that has ended.
Connect = Callable[[Callable[[str], None]], RemotingClient]


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that a request goes to: its name, and the address of its master or of a replica."""

    name: str
    address: str


@dataclass(slots=True)
class _Link:
    """A connection to a broker, and the last heartbeat that the broker took on it."""

    connection: Connection
    heartbeat: RemotingCommand | None = None
    at: float = 0.0


class Session:
    """The connections to brokers of one client. Belongs to one loop."""

    def __init__(self, client: Connection, connect: Connect, limit: ConnectionLimit) -> None:
        self.client = client
        self._connections = connect(self._lost)
        self._limit = limit
        # The addresses whose connections count towards the limit: open ones, and those being opened.
        self._counted: set[str] = set()
        self._opening: set[str] = set()
        self._links: dict[str, _Link] = {}
        self._names: dict[str, str] = {}
        self._heartbeat: RemotingCommand | None = None
        # The groups and subscriptions of the last heartbeat.
        self.data: HeartbeatData | None = None

    @property
    def brokers(self) -> list[Broker]:
        """The brokers with an open connection, by name."""
        linked = [address for address, link in self._links.items() if not link.connection.is_closed]
        return sorted(
            (Broker(self._names[address], address) for address in linked), key=lambda broker: broker.name
        )

    def broker_name(self, connection: Connection) -> str:
        """Return the name of the broker at the other end of a connection; empty if it has none any more."""
        for address, link in self._links.items():
            if link.connection is connection:
                return self._names[address]
        return ""

    def keep(self, heartbeat: RemotingCommand, data: HeartbeatData) -> None:
        """Send this heartbeat first on every new connection from now on."""
        self._heartbeat, self.data = heartbeat, data

    def forget_heartbeat(self) -> None:
        """Send no heartbeat on new connections until the client sends another one: it has left a group."""
        self._heartbeat = self.data = None
        for link in self._links.values():
            link.heartbeat = None

    async def request(
        self, broker: Broker, request: RemotingCommand, timeout_seconds: float
    ) -> RemotingCommand:
        """Send a request, and return its response. Raises RequestError."""
        connection = await self.connection(broker)
        return await connection.send_request(request, timeout_seconds)

    async def oneway(self, broker: Broker, request: RemotingCommand) -> None:
        """Send a request without a response. Raises RequestError if it cannot be sent."""
        connection = await self.connection(broker)
        connection.send_oneway(request)

    async def connection(self, broker: Broker) -> Connection:
        """Return the connection to a broker, which has had the client's heartbeat.

        Raises RequestError; TooManyRequests if the proxy has too many connections.
        """
        link = self._links.get(broker.address)
        if link is not None and not link.connection.is_closed:
            return link.connection
        return (await self._link(broker)).connection

    async def _link(self, broker: Broker) -> _Link:
        address = broker.address
        if address not in self._counted:
            self._limit.enter(self.client.peer, broker.name)
            self._counted.add(address)
        self._opening.add(address)
        try:
            connection = await self._connections.connect(address)
        finally:
            self._opening.discard(address)
            self._lost(address)
        link = self._links.get(broker.address)
        if link is None or link.connection is not connection:
            connection.attributes[_SESSION] = self
            link = self._links[broker.address] = _Link(connection)
            self._names[broker.address] = broker.name
            if self._heartbeat is not None:
                try:
                    await self._announce(link, self._heartbeat)
                except RequestError as error:
                    log.info("heartbeat not sent broker=%s cause=%s; the next one is", broker.name, error)
        return link

    async def announce(self, broker: Broker, heartbeat: RemotingCommand) -> RemotingCommand | None:
        """Send a heartbeat; return the broker's answer, None if it has had the same one just now.

        Raises RequestError.
        """
        link = self._links.get(broker.address)
        if link is None or link.connection.is_closed:
            link = await self._link(broker)
        return await self._announce(link, heartbeat)

    async def _announce(self, link: _Link, heartbeat: RemotingCommand) -> RemotingCommand | None:
        known, now = link.heartbeat, asyncio.get_running_loop().time()
        if (
            known is not None
            and known.body == heartbeat.body
            and now - link.at < _SAME_HEARTBEAT_SECONDS
            and not link.connection.is_closed
        ):
            return None
        request = forwarded(RequestCode.HEART_BEAT, heartbeat)
        answer = await link.connection.send_request(request, _HEARTBEAT_SECONDS)
        if answer.code == ResponseCode.SUCCESS:
            link.heartbeat, link.at = heartbeat, now
        return answer

    async def stop(self) -> None:
        """Close the connections: brokers remove the client from its groups."""
        await self._connections.stop()
        self._limit.leave(len(self._counted))
        self._counted.clear()

    def _lost(self, address: str) -> None:
        """Stop counting an address unless it has a connection: one has ended, or was not opened."""
        if address in self._opening or self._connections.existing(address) is not None:
            return
        if address in self._counted:
            self._counted.discard(address)
            self._limit.leave()


class Sessions:
    """The sessions of all clients. Belongs to one loop."""

    def __init__(self, connect: Connect, limit: ConnectionLimit) -> None:
        """`connect` returns a client for the connections of one session."""
        self._connect = connect
        self.limit = limit
        self._sessions: dict[Connection, Session] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._sessions)

    def of(self, client: Connection) -> Session:
        """Return the session of a client, which begins with its first request to a broker."""
        session = self._sessions.get(client)
        if session is None:
            session = Session(client, self._connect, self.limit)
            if client.is_closed:  # its requests end without an answer
                self._start(session.stop())
            else:
                self._sessions[client] = session
        return session

    def closed(self, client: Connection) -> None:
        """End the session of a client that has gone."""
        session = self._sessions.pop(client, None)
        if session is not None:
            self._start(session.stop())

    async def stop(self) -> None:
        """End all sessions."""
        sessions, self._sessions = list(self._sessions.values()), {}
        await asyncio.gather(*(session.stop() for session in sessions))
        await cancel_all(self._tasks)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def session_of(connection: Connection) -> Session | None:
    """Return the session that a connection to a broker belongs to."""
    session = connection.attributes.get(_SESSION)
    return session if isinstance(session, Session) else None


def different(brokers: Iterable[Broker]) -> list[Broker]:
    """Return brokers in order, each address once."""
    return list({broker.address: broker for broker in brokers}.values())
