"""Connections without sockets, and the brokers that a session sees."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from rmq_client.errors import TopicNotFound
from rmq_proxy.brokers import Brokers
from rmq_proxy.remoting.connection_limit import ConnectionLimit
from rmq_proxy.remoting.sessions import Broker, Session
from rmq_proxy.routes import TopicRoute
from rmq_remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from rmq_remoting.client import RemotingClient
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection, ConnectionSettings, ConnectionStatistics
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.errors import ConnectError
from rmq_remoting.framing import FrameDecoder, encode_frame
from tests.support.transports import FakeTransport

A = Broker("broker-a", "a:10911")
B = Broker("broker-b", "b:10911")


class Peer:
    """A connection of this side; the test is at the other end of it."""

    def __init__(
        self,
        on_close: Callable[[Connection], None] | None = None,
        dispatcher: Dispatcher | None = None,
    ) -> None:
        """`dispatcher` gets the requests of the test."""
        self.connection = Connection(
            dispatcher or Dispatcher(), ConnectionSettings(), ConnectionStatistics(), on_close=on_close
        )
        self.transport = FakeTransport(self.connection.as_protocol)
        self._decoder = FrameDecoder()
        self._seen = 0

    async def received(self) -> list[RemotingCommand]:
        """Return the commands that were sent since the last call."""
        await asyncio.sleep(0)
        self.connection.flush()
        new = self.transport.writes[self._seen :]
        self._seen = len(self.transport.writes)
        return list(self._decoder.feed(b"".join(new)))

    def ask(self, request: RemotingCommand) -> None:
        """Make a request of this peer."""
        self.connection.data_received(encode_frame(request))

    def answer(self, request: RemotingCommand, code: int = ResponseCode.SUCCESS, remark: str = "") -> None:
        """Answer a request that was received."""
        self.connection.data_received(encode_frame(request.response(code, remark)))


class FakeClient:
    """Opens connections without sockets, except to unreachable addresses."""

    def __init__(self, on_close: Callable[[str], None]) -> None:
        self.peers: dict[str, Peer] = {}
        self.unreachable: set[str] = set()
        self.dispatcher = Dispatcher()
        self._on_close = on_close

    async def connect(self, address: str) -> Connection:
        found = self.existing(address)
        if found is not None:
            return found
        await asyncio.sleep(0)
        if address in self.unreachable:
            raise ConnectError(f"cannot connect to {address}")

        def ended(connection: Connection) -> None:
            self._on_close(address)

        if self.existing(address) is None:  # concurrent callers share an attempt
            self.peers[address] = Peer(ended, self.dispatcher)
        return self.peers[address].connection

    def existing(self, address: str) -> Connection | None:
        peer = self.peers.get(address)
        return None if peer is None or peer.connection.is_closed else peer.connection

    async def stop(self) -> None:
        for peer in self.peers.values():
            peer.connection.close()
        await asyncio.sleep(0)


class FakeConnect:
    """Opens the connections of sessions; `clients` has those of each session."""

    def __init__(self) -> None:
        self.clients: list[FakeClient] = []

    def __call__(self, on_close: Callable[[str], None]) -> RemotingClient:
        self.clients.append(FakeClient(on_close))
        return cast(RemotingClient, self.clients[-1])


class SessionParts:
    """A session with its client and its connections to brokers."""

    def __init__(self, most: int = 100) -> None:
        self.client = Peer()
        self.limit = ConnectionLimit(most)
        connect = FakeConnect()
        self.session = Session(self.client.connection, connect, self.limit)
        (self.brokers,) = connect.clients

    def peer(self, broker: Broker) -> Peer:
        """Return the broker's end of a connection."""
        return self.brokers.peers[broker.address]


class FakeBrokers:
    """Routes by topic: the brokers with their addresses by id."""

    def __init__(self, routes: dict[str, dict[str, dict[int, str]]]) -> None:
        self._routes = routes
        self.outdated: list[str] = []

    async def route(self, topic: str) -> TopicRoute:
        if topic not in self._routes:
            raise TopicNotFound(f"topic {topic} has no route")
        data = TopicRouteData(
            broker_datas=[
                BrokerData(cluster="DefaultCluster", broker_name=name, broker_addrs=addresses)
                for name, addresses in self._routes[topic].items()
            ],
            queue_datas=[
                QueueData(broker_name=name, read_queue_nums=1, write_queue_nums=1, perm=6)
                for name in self._routes[topic]
            ],
        )
        return TopicRoute.of(topic, data)

    async def serving_address(self, broker_name: str) -> str | None:
        for route in self._routes.values():
            if broker_name in route:
                return route[broker_name][min(route[broker_name])]
        return None

    def lost(self, address: str) -> None:
        self.outdated.append(address)


def brokers_of(routes: dict[str, dict[str, dict[int, str]]]) -> Brokers:
    """The brokers of a cluster, by topic."""
    return cast(Brokers, FakeBrokers(routes))


async def settled() -> None:
    """Let all run that is ready: in virtual time a sleep ends once nothing else is."""
    await asyncio.sleep(0.01)
