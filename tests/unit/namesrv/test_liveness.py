"""Liveness of brokers, with a virtual clock."""

from __future__ import annotations

from rmq_namesrv.liveness import LiveBrokers
from tests.support.peers import Peer
from tests.unit.namesrv.parts import Clock, identity


def test_a_broker_is_silent_only_after_its_timeout() -> None:
    clock = Clock()
    live = LiveBrokers(clock)
    patient, hasty = identity("patient"), identity("hasty", timeout_seconds=10.0)
    live.put(patient, None)
    live.put(hasty, None)
    clock.now += 10
    assert live.silent() == []
    clock.now += 1
    assert [broker.identity for broker in live.silent()] == [hasty]
    assert live.record_heartbeat(hasty.key)
    assert live.silent() == []
    clock.now += 109
    live.record_heartbeat(hasty.key)
    assert live.silent() == []
    clock.now += 0.5
    assert [broker.identity for broker in live.silent()] == [patient]


def test_a_heartbeat_of_an_unknown_broker_is_ignored() -> None:
    live = LiveBrokers(Clock())
    assert not live.record_heartbeat(("DefaultCluster", "nobody:1"))
    assert live.remove(("DefaultCluster", "nobody:1")) is None


async def test_brokers_belong_to_the_connection_of_their_last_registration() -> None:
    live = LiveBrokers(Clock())
    old, new = Peer().connection, Peer().connection
    first, second = identity("broker-a"), identity("broker-b")
    live.put(first, old)
    live.put(second, old)
    kept = live.get(first.key)
    assert live.put(first, new) is kept
    assert [broker.identity for broker in live.of_connection(old)] == [second]
    assert [broker.identity for broker in live.of_connection(new)] == [first]
    live.remove(second.key)
    assert live.of_connection(old) == []
    assert len(live) == 1
