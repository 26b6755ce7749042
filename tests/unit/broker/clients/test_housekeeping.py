"""Expiry of clients without heartbeats or connection."""

from __future__ import annotations

from rmq_broker.clients.client import ConnectedClient
from rmq_broker.clients.consumers import ConsumerTable, Heartbeat
from rmq_broker.clients.housekeeping import ClientHousekeeping
from rmq_broker.clients.producers import ProducerTable
from rmq_remoting.bodies.heartbeat import ConsumerData
from rmq_remoting.codes import LanguageCode
from tests.unit.broker.parts import Clock, Peer, broker_settings


class _Broker:
    def __init__(self) -> None:
        self.clock = Clock()
        self.consumers, self.producers = ConsumerTable(), ProducerTable()
        self.housekeeping = ClientHousekeeping(self.consumers, self.producers, broker_settings(), self.clock)

    def heartbeat(self, peer: Peer) -> None:
        client = ConnectedClient(peer.connection, "1", LanguageCode.JAVA, 479, self.clock())
        self.consumers.register(Heartbeat(ConsumerData(group_name="CG")), client)
        self.producers.register("PG", client)

    @property
    def groups(self) -> tuple[int, int]:
        return len(self.consumers.groups()), len(self.producers.groups())


async def test_silent_clients_are_forgotten_after_two_minutes() -> None:
    broker, peer = _Broker(), Peer()
    broker.heartbeat(peer)
    broker.clock.pass_seconds(120)
    broker.housekeeping.scan()
    assert broker.groups == (1, 1)
    broker.clock.pass_seconds(1)
    broker.housekeeping.scan()
    assert broker.groups == (0, 0)
    assert broker.housekeeping.expired == 2
    assert peer.connection.is_closed


async def test_heartbeats_keep_a_client() -> None:
    broker, peer = _Broker(), Peer()
    for _ in range(10):
        broker.heartbeat(peer)
        broker.clock.pass_seconds(30)
        broker.housekeeping.scan()
    assert broker.groups == (1, 1)
    assert not peer.connection.is_closed


async def test_closed_connection_is_noticed_at_once() -> None:
    broker, peer = _Broker(), Peer()
    broker.heartbeat(peer)
    broker.housekeeping.connection_closed(peer.connection)
    broker.housekeeping.connection_closed(Peer().connection)
    assert broker.groups == (0, 0)
