"""Our servers among Apache's: registrations both ways, and store directories that change hands."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.interop.checks import bodies_of, expected_bodies
from tests.interop.foreign import JavaShell
from tests.support.apache import ApacheBroker, ApacheNamesrv
from tests.support.outcome import Outcome
from tests.support.own_servers import OwnBroker, OwnNamesrv
from tests.support.probe import cluster_info
from tests.support.toolchain import JavaProgram

Apache = tuple[ApacheNamesrv, ApacheBroker]

# Small files, so that a few hundred messages fill more than one.
STORE_SETTINGS = {"mappedFileSizeCommitLog": "1048576", "mappedFileSizeConsumeQueue": "2000"}
MESSAGES = 600
MESSAGE_BYTES = 1500

pytestmark = pytest.mark.java


class Client:
    """The Java client with one name server and topic."""

    def __init__(self, shell: JavaShell, namesrv_address: str, topic: str) -> None:
        self._shell = shell
        self._at: dict[str, Any] = {"namesrv": namesrv_address, "topic": topic}

    async def create_topic(self, broker_address: str) -> None:
        """With four queues, on one broker."""
        create = {**self._at, "queues": 4, "broker_addr": broker_address}
        created = await self._shell.run("admin", "createAndUpdateTopicConfig", **create)
        assert created.check().result["routeVisible"]

    async def run(self, command: str, **options: Any) -> Outcome:
        return (await self._shell.run(command, **self._at, **options)).check()

    async def reaches(self) -> list[int]:
        """The next offset of each queue."""
        stats = (await self._shell.run("admin", "examineTopicStats", **self._at)).check().result
        return [queue["maxOffset"] for queue in stats["queues"]]

    async def route(self) -> Mapping[str, Any]:
        return (await self._shell.run("admin", "examineTopicRouteInfo", **self._at)).check().result


async def test_our_broker_with_apaches_name_server(own_shell: JavaShell, apache: Apache, name: str) -> None:
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
async def test_ways_of_registering_with_apaches_name_server(
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


async def test_a_store_changes_hands(
    apache_program: JavaProgram, own_shell: JavaShell, name: str, tmp_path: Path
) -> None:
    """From our broker to Apache's and back: messages, offsets, topics and groups stay."""
    sending: dict[str, Any] = {"count": MESSAGES, "size": MESSAGE_BYTES, "compress_over": 10_000}
    async with OwnNamesrv() as namesrv:
        client = Client(own_shell, namesrv.address, name)
        own_broker = OwnBroker(namesrv.address, home=tmp_path, settings=STORE_SETTINGS)
        async with own_broker:
            await client.create_topic(own_broker.address)
            await client.run("send", mode="selector", tag="ours", keys="k{}", **sending)
            await client.run("send", mode="batch", count=40, tag="batch")
            await client.run("send", count=3, size=20_000, compress="lz4", tag="lz4")
            await client.run("pull", group=name, api="old", queue=0, count=32, commit=True)
            ours_reached = await client.reaches()
            await own_broker.stop()

        async with ApacheBroker(
            apache_program,
            namesrv.address,
            home=tmp_path,
            settings={**STORE_SETTINGS, "compressedRegister": "true", "enableSingleTopicRegister": "true"},
        ) as apache_broker:
            assert (await client.route())["brokers"][0]["addresses"] == {"0": apache_broker.address}
            assert await client.reaches() == ours_reached
            await check_holds(client, "ours", MESSAGES, MESSAGE_BYTES)
            await check_holds(client, "batch", 40)
            await check_holds(client, "lz4", 3, 20_000)
            await client.run("send", mode="selector", tag="apaches", **sending)
            went_on = await client.run("pull", group=name, api="old", queue=0, count=32, commit=True)
            assert went_on.messages[0]["queueOffset"] == 32
            apaches_reached = await client.reaches()
            await apache_broker.stop(timeout_s=60)

        async with OwnBroker(namesrv.address, home=tmp_path, settings=STORE_SETTINGS) as own_broker:
            assert (await client.route())["brokers"][0]["addresses"] == {"0": own_broker.address}
            assert await client.reaches() == apaches_reached
            for tag in ("ours", "apaches"):
                await check_holds(client, tag, MESSAGES, MESSAGE_BYTES)
            await check_holds(client, "batch", 40)
            went_on = await client.run("pull", group=name, api="old", queue=0, count=32)
            assert went_on.messages[0]["queueOffset"] == 64
            await client.run("send", count=4, tag="ours-again")
            await check_holds(client, "ours-again", 4)
            await own_broker.stop()
            assert own_broker.logged_errors() == []


async def check_holds(client: Client, tag: str, count: int, size: int = 32) -> None:
    """That all messages of this tag are there."""
    pulled = await client.run("pull", group="reader", tag=tag, count=count)
    assert bodies_of(pulled) == expected_bodies(count, size)
