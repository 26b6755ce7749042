"""Routes and statistics of brokers as plain values."""

from __future__ import annotations

import pytest

from rmq_client.network import plain_answers
from rmq_client.network.plain_answers import (
    AddressesOfBroker,
    PlainHeader,
    QueueReach,
    QueuesOnBroker,
    RouteData,
    decode_route,
    decode_topic_stats,
)
from rmq_remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from rmq_remoting.bodies.static_topic import TopicQueueMappingInfo
from rmq_remoting.bodies.topic import TopicOffset, TopicStatsTable
from rmq_remoting.errors import BodyError, JsonError
from rmq_remoting.headers.namesrv import GetRouteInfoRequestHeader
from rmq_remoting.message_queue import MessageQueue

_BODY = TopicRouteData(
    broker_datas=[BrokerData(broker_name="a", broker_addrs={0: "a:1", 2: "a:2"}, cluster="c")],
    queue_datas=[QueueData(broker_name="a", perm=6, read_queue_nums=4, write_queue_nums=3)],
    order_topic_conf="a:4",
)
_ROUTE = RouteData([AddressesOfBroker("a", {0: "a:1", 2: "a:2"})], [QueuesOnBroker("a", 6, 4, 3)], "a:4")
_REACHES = {MessageQueue("T", "a", 1): QueueReach(5, 2**40, 0)}
_STATS = TopicStatsTable(
    offset_table={
        queue: TopicOffset(last_update_timestamp=5, max_offset=2**40, min_offset=0) for queue in _REACHES
    }
)


@pytest.fixture
def _usual_form_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_route_of_any_form", "_topic_stats_of_any_form"):
        monkeypatch.delattr(plain_answers, name)


@pytest.mark.usefixtures("_usual_form_only")
def test_bodies_of_name_servers_and_brokers_have_the_usual_form() -> None:
    assert decode_route(_BODY.encode()) == decode_route(_BODY.encode_standard()) == _ROUTE
    assert decode_topic_stats(_STATS.encode()) == _REACHES


@pytest.mark.parametrize(
    "body",
    [
        b'{"brokerDatas":[{"brokerAddrs":{"0":"a:1","2":"a:2"},"broker_name":"a"}],"orderTopicConf":"a:4",'
        b'"queueDatas":[{"brokerName":"a","perm":"6","readQueueNums":4,"writeQueueNums":3}]}',
        b'{"BrokerDatas":[{"brokerAddrs":{0:"a:1",2:"a:2"},"brokerName":"a"}],"orderTopicConf":"a:4",'
        b'"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":4,"writeQueueNums":3}]}',
    ],
)
def test_other_spellings_of_a_route_are_decoded_as_well(body: bytes) -> None:
    assert decode_route(body) == _ROUTE


def test_statistics_with_other_keys_are_decoded_as_well() -> None:
    assert decode_topic_stats(_STATS.encode_standard()) == _REACHES


def test_empty_bodies_mean_no_queues() -> None:
    assert decode_route(b"{}") == RouteData([], [])
    assert decode_topic_stats(b"{}") == {}


def test_static_topics_are_recognized() -> None:
    mapping = TopicQueueMappingInfo(bname="a", topic="T", total_queues=1)
    body = _BODY.model_copy(update={"topic_queue_mapping_by_broker": {"a": mapping}})
    assert decode_route(body.encode()).is_static
    assert not decode_route(_BODY.encode()).is_static


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"nothing", JsonError),
        (b"[]", BodyError),
        (b'{"brokerDatas":[],"queueDatas":[{"brokerName":"a","perm":4294967296}]}', BodyError),
        (b'{"brokerDatas":[{"brokerAddrs":{"x":"a:1"},"brokerName":"a"}],"queueDatas":[]}', BodyError),
    ],
)
def test_errors_are_those_of_the_typed_body(body: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        decode_route(body)


def test_plain_headers_are_encoded_as_typed_ones() -> None:
    typed = GetRouteInfoRequestHeader(topic="T", accept_standard_json_only=True)
    assert PlainHeader(acceptStandardJsonOnly="true", topic="T").encode() == typed.encode()
