"""Bodies of route responses: the same bytes as Apache's, joined or cached."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_namesrv.brokers import BrokerGroup
from rmq_namesrv.route_bodies import RouteBodies
from rmq_namesrv.routes import QueueNumbers
from rmq_remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from rmq_remoting.bodies.static_topic import TopicQueueMappingInfo
from tests.support.golden import json_file
from tests.unit.namesrv.parts import EIGHT_QUEUES, Tables

_NAMES = st.text(min_size=1, max_size=12)


def with_topic(*groups: BrokerGroup, **keys: object) -> Tables:
    tables = Tables(**keys)
    for group in groups:
        tables.brokers.put(group)
        tables.routes.put("T", tables.routes.with_queues(tables.routes.get("T"), group.name, EIGHT_QUEUES))
    return tables


MASTER_AND_SLAVE = BrokerGroup("DefaultCluster", "broker-a", {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"})
SLAVE_ALONE = BrokerGroup("DefaultCluster", "broker-a", {1: "10.0.0.2:10911"}, enable_acting_master=True)


@pytest.mark.parametrize(
    ("example", "standard"), [("route, default encode", False), ("route, standard JSON", True)]
)
def test_a_body_equals_apaches(example: str, standard: bool) -> None:
    examples = json_file("protocol/bodies.json")["TopicRouteData"]["examples"]
    (text,) = [row["json"] for row in examples if row["example"] == example]
    assert with_topic(MASTER_AND_SLAVE).bodies.get("T", standard=standard) == text.encode()


@given(
    brokers=st.dictionaries(_NAMES, st.dictionaries(st.integers(0, 5), _NAMES, max_size=3), max_size=4),
    cluster=_NAMES,
    order_config=st.none() | _NAMES,
    mapped=st.booleans(),
    standard=st.booleans(),
)
def test_joined_pieces_equal_the_encoded_typed_body(
    brokers: dict[str, dict[int, str]], cluster: str, order_config: str | None, mapped: bool, standard: bool
) -> None:
    groups = [BrokerGroup(cluster, name, dict(sorted(brokers[name].items()))) for name in sorted(brokers)]
    tables = with_topic(*groups)
    mapping = TopicQueueMappingInfo(topic="T", broker_name="b", current_id_map={0: 1}, total_queues=2)
    if mapped:
        tables.routes.put_mapping("T", "b", mapping)
    whole = TopicRouteData(
        broker_datas=[
            BrokerData(broker_addrs=dict(group.addresses), broker_name=group.name, cluster=cluster)
            for group in groups
        ],
        queue_datas=[
            QueueData(broker_name=group.name, perm=6, read_queue_nums=8, write_queue_nums=8)
            for group in groups
        ],
        order_topic_conf=order_config,
        topic_queue_mapping_by_broker={"b": mapping} if mapped else None,
    )
    expected = (whole.encode_standard() if standard else whole.encode()) if brokers else None
    assert tables.bodies.get("T", standard=standard, order_config=order_config) == expected


def test_a_body_is_encoded_once_until_a_change() -> None:
    tables = with_topic(MASTER_AND_SLAVE)
    first = tables.bodies.get("T", standard=True)
    assert tables.bodies.get("T", standard=True) is first
    tables.brokers.put(MASTER_AND_SLAVE.with_addresses({0: "10.0.0.9:10911"}))
    assert tables.addresses("T") == {"broker-a": {"0": "10.0.0.9:10911"}}
    route = tables.routes.with_queues(tables.routes.get("T"), "broker-a", QueueNumbers(4, 1, 1, 0))
    tables.routes.put("T", route)
    answer = tables.route("T")
    assert answer is not None
    assert answer["queueDatas"] == [
        {"brokerName": "broker-a", "perm": 4, "readQueueNums": 1, "topicSysFlag": 0, "writeQueueNums": 1}
    ]


def test_cached_bodies_are_bounded() -> None:
    tables = with_topic(MASTER_AND_SLAVE)
    bodies = RouteBodies(tables.routes, tables.brokers, tables.settings, max_cached_bytes=2000)
    for number in range(100):
        route = tables.routes.with_queues(None, "broker-a", QueueNumbers(6, number, 8, 0))
        tables.routes.put(f"T{number}", route)
        body = bodies.get(f"T{number}", standard=True)
        assert body is not None
        assert body == tables.bodies.get(f"T{number}", standard=True)
    (cache,) = bodies.caches
    assert 0 < len(cache) < 10
    assert cache.evictions == 100 - len(cache)


def test_a_broker_that_left_is_omitted_and_without_brokers_there_is_no_route() -> None:
    other = BrokerGroup("DefaultCluster", "broker-b", {0: "10.0.0.3:10911"})
    tables = with_topic(MASTER_AND_SLAVE, other)
    tables.brokers.remove("broker-a")
    assert list(tables.addresses("T")) == ["broker-b"]
    tables.brokers.remove("broker-b")
    assert tables.route("T") is None
    assert tables.route("nobody has it") is None


def test_a_slave_acts_as_master_only_if_all_settings_allow_it() -> None:
    tables = with_topic(SLAVE_ALONE, supportActingMaster=True)
    assert tables.addresses("T") == {"broker-a": {"1": "10.0.0.2:10911"}}, "its queues are writable"
    route = tables.routes.with_queues(None, "broker-a", EIGHT_QUEUES.with_perm(4))
    tables.routes.put("T", route)
    tables.routes.put("rmq_sys_SYNC_BROKER_MEMBER_broker-a", route)
    assert tables.addresses("T") == {"broker-a": {"0": "10.0.0.2:10911"}}
    assert tables.addresses("rmq_sys_SYNC_BROKER_MEMBER_broker-a") == {"broker-a": {"1": "10.0.0.2:10911"}}
    tables.settings.support_acting_master = False
    assert tables.addresses("T") == {"broker-a": {"1": "10.0.0.2:10911"}}


def test_a_zone_sees_its_own_brokers_and_those_without_a_master() -> None:
    def zoned(name: str, zone: str | None, addresses: dict[int, str]) -> BrokerGroup:
        return BrokerGroup("C", name, addresses, zone)

    tables = with_topic(
        zoned("near", "Z1", {0: "n:1"}),
        zoned("far", "z2", {0: "f:1"}),
        zoned("nowhere", None, {0: "o:1"}),
        zoned("masterless", "z2", {1: "m:1"}),
    )
    answer = tables.route("T", zone_name="z1")
    assert answer is not None
    assert [broker["brokerName"] for broker in answer["brokerDatas"]] == ["masterless", "near"]  # type: ignore[attr-defined]
    assert [queue["brokerName"] for queue in answer["queueDatas"]] == ["masterless", "near"]  # type: ignore[attr-defined]
