"""The leaders of logical queues, as name servers tell them."""

from __future__ import annotations

from rmq_client.network.logical_queues import is_logical, leaders_of
from rmq_client.network.plain_answers import AddressesOfBroker, QueuesOnBroker, RouteData
from rmq_client.network.routing import topic_route
from rmq_remoting.bodies.static_topic import TopicQueueMappingInfo
from rmq_remoting.message_queue import MessageQueue

_GLOBAL = "__syslo__global__"


def _mapping(
    broker: str, ids: dict[int, int], total: int = 3, epoch: int = 1, **more: str
) -> TopicQueueMappingInfo:
    return TopicQueueMappingInfo(
        broker_name=broker, topic="T", current_id_map=ids, total_queues=total, epoch=epoch, **more
    )


def test_each_logical_queue_has_the_leader_of_its_newest_mapping() -> None:
    mappings = [_mapping("b", {1: 0, 0: 4}, epoch=2), _mapping("a", {0: 0, 2: 1})]
    assert leaders_of(mappings) == {(_GLOBAL, 0): "b", (_GLOBAL, 1): "b", (_GLOBAL, 2): "a"}
    assert list(leaders_of(mappings)) == [(_GLOBAL, 0), (_GLOBAL, 1), (_GLOBAL, 2)]


def test_a_queue_without_leader_keeps_its_place() -> None:
    leaders = leaders_of([_mapping("a", {2: 0}), _mapping("b", {}, total=4)])
    assert leaders[_GLOBAL, 0] == leaders[_GLOBAL, 3] == "__syslo__none__"
    assert len(leaders) == 4


def test_other_scopes_have_names_of_their_own() -> None:
    assert list(leaders_of([_mapping("a", {0: 0}, total=1, scope="eu")])) == [("__syslo__eu", 0)]
    assert is_logical("__syslo__eu") and not is_logical("broker-a")


def test_routes_ask_the_leader_of_a_logical_queue() -> None:
    data = RouteData(
        [AddressesOfBroker("a", {0: "a:1", 1: "a:2"}), AddressesOfBroker("b", {0: "b:1"})],
        [QueuesOnBroker("a", 6, 2, 2), QueuesOnBroker("b", 6, 1, 1)],
        is_static=True,
        leaders={(_GLOBAL, 0): "b", (_GLOBAL, 1): "a", (_GLOBAL, 2): "gone"},
    )
    route = topic_route("T", data)
    first, second, third = (MessageQueue("T", _GLOBAL, number) for number in range(3))
    assert route.read_queues == route.write_queues == (first, second, third)
    assert route.on_broker(first) == MessageQueue("T", "b", 0)
    assert [route.address_of(each) for each in (first, second, third)] == ["b:1", "a:1", None]
    assert route.address_of(second, 1) == "a:2"
    own = MessageQueue("T", "a", 7)
    assert route.on_broker(own) is own and route.known_address_of(own) == "a:1"
