"""Broker groups and clusters."""

from __future__ import annotations

import pytest

from rmq_namesrv.brokers import BrokerGroup, BrokerTable
from tests.support.golden import json_file


def group(name: str = "broker-a", cluster: str = "C1", **addresses: str) -> BrokerGroup:
    by_id = {int(number.lstrip("_")): address for number, address in addresses.items()}
    return BrokerGroup(cluster, name, by_id)


def test_both_encodings_equal_apaches() -> None:
    example = json_file("protocol/bodies.json")["BrokerData"]["examples"][0]["json"]
    broker = BrokerGroup("DefaultCluster", "broker-a", {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"})
    plain, standard = broker.encoded
    assert plain.decode() == example
    assert standard.decode() == example.replace("{0:", '{"0":').replace(",1:", ',"1":')


@pytest.mark.parametrize(
    ("addresses", "acting"),
    [
        ({0: "m:1", 1: "s:1"}, {0: "m:1", 1: "s:1"}),
        ({1: "s:1", 2: "t:1"}, {0: "s:1", 2: "t:1"}),
        ({}, {}),
    ],
)
def test_the_smallest_id_acts_as_the_missing_master(
    addresses: dict[int, str], acting: dict[int, str]
) -> None:
    assert BrokerGroup("C1", "broker-a", addresses).acting.addresses == acting


def test_a_table_lists_groups_and_clusters() -> None:
    table = BrokerTable()
    table.put(group("broker-b", _0="b:1"))
    table.put(group("broker-a", _0="a:1", _1="a:2"))
    table.put(group("broker-x", "C2", _0="x:1"))
    assert table.clusters() == {"C1": ["broker-a", "broker-b"], "C2": ["broker-x"]}
    assert table.names_of("C1") == {"broker-a", "broker-b"}
    assert table.names_of("nowhere") == frozenset()
    assert (len(table), table.address_count) == (3, 4)
    table.remove("broker-x")
    assert "C2" not in table.clusters()


def test_the_version_increases_only_with_changes() -> None:
    table = BrokerTable()
    table.put(group(_0="a:1"))
    version = table.version
    table.put(group(_0="a:1"))
    table.remove("broker-b")
    assert table.version == version
    table.put(group(_0="a:2"))
    assert table.version > version
