"""This project's servers together with Apache's: registrations in both directions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.interop.checks import bodies_of, expected_bodies
from tests.interop.clusters import Apache
from tests.interop.foreign import JavaShell
from tests.support.outcome import Outcome
from tests.support.own_servers import OwnBroker, OwnNamesrv
from tests.support.probe import cluster_info

pytestmark = pytest.mark.java


class Client:
    """The Java client with one name server and one topic."""

    def __init__(self, shell: JavaShell, namesrv_address: str, topic: str) -> None:
        self._shell = shell
        self._at: dict[str, Any] = {"namesrv": namesrv_address, "topic": topic}

    async def create_topic(self, broker_address: str) -> None:
        """Create the topic with four queues on one broker."""
        create = {**self._at, "queues": 4, "broker_addr": broker_address}
        created = await self._shell.run("admin", "createAndUpdateTopicConfig", **create)
        assert created.check().result["routeVisible"]

    async def run(self, command: str, **options: Any) -> Outcome:
        return (await self._shell.run(command, **self._at, **options)).check()

    async def route(self) -> Mapping[str, Any]:
        return (await self._shell.run("admin", "examineTopicRouteInfo", **self._at)).check().result


async def test_this_broker_with_apaches_name_server(own_shell: JavaShell, apache: Apache, name: str) -> None:
    namesrv, _ = apache
    async with (
        OwnNamesrv() as own_namesrv,
        OwnBroker(f"{namesrv.address};{own_namesrv.address}", broker_name="ours", cluster="Ours") as broker,
    ):
        client = Client(own_shell, namesrv.address, name)
        await client.create_topic(broker.address)
        for address in (namesrv.address, own_namesrv.address):
            route = await Client(own_shell, address, name).route()
            assert route["brokers"] == [
                {"cluster": "Ours", "broker": "ours", "addresses": {"0": broker.address}}
            ]
            assert [(queue["writeQueues"], queue["perm"]) for queue in route["queues"]] == [(4, 6)]
        await client.run("send", count=5, tag="A")
        received = await client.run("consume", group=name, tag="A || B", count=5)
        assert bodies_of(received) == expected_bodies(5)
        await broker.stop()
        for address in (namesrv.address, own_namesrv.address):
            assert broker.address not in await cluster_info(address)


@pytest.mark.parametrize(
    "settings",
    [
        {"compressedRegister": "true"},
        {"enableSplitRegistration": "true", "splitRegistrationSize": "4"},
        {"enableSingleTopicRegister": "true"},
        {"enableSlaveActingMaster": "true", "brokerHeartbeatInterval": "100"},
    ],
    ids=lambda settings: next(iter(settings)),
)
async def test_kinds_of_registration_with_apaches_name_server(
    own_shell: JavaShell, apache: Apache, name: str, settings: dict[str, str]
) -> None:
    namesrv, _ = apache
    cluster = "C" + name
    async with OwnBroker(namesrv.address, broker_name=name, cluster=cluster, settings=settings) as broker:
        await Client(own_shell, namesrv.address, name + "x").create_topic(broker.address)
        at = {"namesrv": namesrv.address}
        registered = await own_shell.admin("fetchTopicsByCluster", cluster=cluster, **at)
        topics = await own_shell.admin("getAllTopicConfig", broker_addr=broker.address, **at)
        assert registered.check().result["topics"] == sorted(topics.check().result["topics"])
        await broker.stop()
