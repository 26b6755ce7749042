"""Expiry of clients without heartbeats or connection."""

from __future__ import annotations

import pytest

from rmq_broker.clients.client import ConnectedClient
from rmq_broker.clients.consumers import Heartbeat
from rmq_broker.clients.housekeeping import ClientHousekeeping
from rmq_remoting.bodies.heartbeat import ConsumerData
from rmq_remoting.codes import LanguageCode
from tests.support.broker_tables import BrokerTables
from tests.support.peers import Peer


class _Broker(BrokerTables):
    def __init__(self) -> None:
        super().__init__()
        self.housekeeping = ClientHousekeeping(
            self.consumers, self.producers, self.settings, self.clock.steady_ms
        )

    def heartbeat(self, peer: Peer) -> None:
        client = ConnectedClient(peer.connection, "1", LanguageCode.JAVA, 479, self.clock.steady_ms())
        self.consumers.register(Heartbeat(ConsumerData(group_name="CG")), client)
        self.producers.register_all(["PG"], client)

    @property
    def group_counts(self) -> tuple[int, int]:
        return len(self.consumers.groups()), len(self.producers.groups())


async def test_silent_clients_are_forgotten_after_two_minutes() -> None:
    broker, peer = _Broker(), Peer()
    broker.heartbeat(peer)
    broker.clock.pass_seconds(120)
    broker.housekeeping.scan()
    assert broker.group_counts == (1, 1)
    broker.clock.pass_seconds(1)
    broker.housekeeping.scan()
    assert broker.group_counts == (0, 0)
    assert broker.housekeeping.expired == 2
    assert peer.connection.is_closed


async def test_heartbeats_keep_a_client() -> None:
    broker, peer = _Broker(), Peer()
    for _ in range(10):
        broker.heartbeat(peer)
        broker.clock.pass_seconds(30)
        broker.housekeeping.scan()
    assert broker.group_counts == (1, 1)
    assert not peer.connection.is_closed


async def test_closed_connection_is_noticed_at_once() -> None:
    broker, peer = _Broker(), Peer()
    broker.heartbeat(peer)
    broker.housekeeping.connection_closed(peer.connection)
    broker.housekeeping.connection_closed(Peer().connection)
    assert broker.group_counts == (0, 0)


@pytest.mark.parametrize("hours", [5, -5])
async def test_a_step_of_the_wall_clock_does_not_expire_clients(hours: int) -> None:
    broker, peer = _Broker(), Peer()
    broker.heartbeat(peer)
    broker.clock.set_by(hours * 3600)
    broker.clock.pass_seconds(120)
    broker.housekeeping.scan()
    assert broker.group_counts == (1, 1)
    broker.clock.pass_seconds(1)
    broker.housekeeping.scan()
    assert broker.group_counts == (0, 0)
