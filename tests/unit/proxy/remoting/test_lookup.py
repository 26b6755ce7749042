"""Brokers of requests and of heartbeats."""

from __future__ import annotations

import pytest

from rmq_proxy.remoting.lookup import Lookup
from rmq_proxy.remoting.sessions import Broker
from rmq_remoting.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError
from tests.unit.proxy.remoting.parts import A, B, brokers_of

_C = Broker("broker-c", "c-replica:10911")
_ROUTES: dict[str, dict[str, dict[int, str]]] = {
    "DefaultCluster": {"broker-a": {0: A.address}, "broker-b": {0: B.address, 1: "b-replica:10911"}},
    "T": {"broker-b": {0: B.address}},
    "U": {"broker-c": {2: "c-other:10911", 1: _C.address}},
    "gone": {"broker-d": {}},
}


@pytest.fixture
def lookup() -> Lookup:
    return Lookup(brokers_of(_ROUTES), "DefaultCluster")


def _heartbeat(producers: tuple[str, ...] = (), topics: tuple[str, ...] = ()) -> HeartbeatData:
    subscriptions = [SubscriptionData(topic=topic, sub_string="*") for topic in topics]
    consumer = ConsumerData(group_name="G", subscription_data_set=subscriptions)
    return HeartbeatData(
        client_id="client",
        producer_data_set=[ProducerData(group_name=name) for name in producers],
        consumer_data_set=[consumer] if topics else [],
    )


async def test_a_replica_serves_without_a_master(lookup: Lookup) -> None:
    assert await lookup.named("broker-b") == B
    assert await lookup.named("broker-c") == _C


async def test_an_unknown_name_is_refused(lookup: Lookup) -> None:
    with pytest.raises(CommandError, match="cannot find broker nobody") as refused:
        await lookup.named("nobody")
    assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("heartbeat", "expected"),
    [
        (_heartbeat(), []),
        (_heartbeat(("p",)), [A, B]),
        (_heartbeat(("CLIENT_INNER_PRODUCER",)), []),
        (_heartbeat((), ("T",)), [B]),
        (_heartbeat((), ("T", "U", "%RETRY%G", "absent", "gone")), [B, _C]),
        (_heartbeat(("p", "CLIENT_INNER_PRODUCER"), ("T", "U")), [A, B, _C]),
    ],
)
async def test_a_heartbeat_goes_to_the_brokers_that_need_it(
    lookup: Lookup, heartbeat: HeartbeatData, expected: list[Broker]
) -> None:
    assert await lookup.of_heartbeat(heartbeat) == expected
