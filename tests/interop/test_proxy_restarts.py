"""kill -9 of proxy, broker and client: Apache's Python client goes on, and no message is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rmq_client.admin import Admin
from tests.crash.grpc_ledger import check_order
from tests.interop.grpc_fronts import PROXY_SETTINGS
from tests.interop.proxy_clients import PythonProducer, Refused, python_clients
from tests.support.own_servers import OwnBroker, OwnNamesrv, OwnProxy, own_cluster
from tests.support.waiting import until

WAIT_SECONDS = 60.0
_MESSAGE_GROUPS = ("a", "b", "c")


@pytest.fixture
async def servers() -> AsyncIterator[tuple[OwnNamesrv, OwnBroker]]:
    async with own_cluster() as cluster:
        yield cluster


def _are_all_in(bodies: list[str], sent: Mapping[str, int]) -> bool:
    """Whether the bodies have all numbers of all message groups."""
    return set(bodies) >= {f"{group}-{number}" for group, count in sent.items() for number in range(count)}


async def _sent(producer: PythonProducer, topic: str, body: str, **fields: object) -> None:
    """Send until the proxy accepts the message."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            try:
                await producer.send(topic, body, **fields)
                return
            except Refused:
                continue


async def test_clients_go_on_after_a_kill(
    servers: tuple[OwnNamesrv, OwnBroker], tmp_path: Path, name: str
) -> None:
    namesrv, _ = servers
    async with Admin(namesrv.address) as admin:
        await admin.create_topic(name, queues=2)
    settings = {key: str(value) for key, value in PROXY_SETTINGS.items()}
    async with OwnProxy(namesrv.address, settings=settings) as proxy:
        with python_clients(proxy.address, tmp_path) as clients:
            async with clients.producer(name) as producer, clients.push_consumer(name, name) as consumer:
                for number in range(5):
                    await producer.send(name, str(number))
                await until(lambda: len(consumer.accepted) >= 5, WAIT_SECONDS)
                proxy.kill()
                await proxy.start()
                for number in range(5, 10):
                    await _sent(producer, name, str(number))
                await until(lambda: len(set(consumer.accepted)) == 10, WAIT_SECONDS)
        assert not proxy.logged_errors(), "\n".join(proxy.logged_errors())


@pytest.mark.parametrize("victim", ["proxy", "broker", "client"])
async def test_message_groups_stay_in_order_after_a_kill(
    servers: tuple[OwnNamesrv, OwnBroker], tmp_path: Path, name: str, victim: str
) -> None:
    namesrv, broker = servers
    async with Admin(namesrv.address) as admin:
        await admin.create_topic(name, queues=2, attributes={"+message.type": "FIFO"})
        await admin.create_group(name, ordered=True)
    # Until then the proxy renews the invisible times of a client that was killed.
    settings = {key: str(value) for key, value in PROXY_SETTINGS.items()} | {"channelExpiredTimeout": "15000"}
    sent: dict[str, int] = dict.fromkeys(_MESSAGE_GROUPS, 0)

    async def send(producer: PythonProducer, count: int) -> None:
        """Send messages of all groups, each group in order; a repeated one may be stored twice."""
        for _ in range(count):
            for group in _MESSAGE_GROUPS:
                await _sent(producer, name, f"{group}-{sent[group]}", message_group=group)
                sent[group] += 1

    async with OwnProxy(namesrv.address, settings=settings) as proxy, AsyncExitStack() as stack:
        producers = stack.enter_context(python_clients(proxy.address, tmp_path / "producer"))
        producer = await stack.enter_async_context(producers.producer(name))
        accepted: list[str] = []
        with python_clients(proxy.address, tmp_path / "first") as clients:
            first = await clients.start_push_consumer(name, name)
            await send(producer, 3)
            await until(lambda: len(set(first.accepted)) >= 2, WAIT_SECONDS)
            if victim == "client":
                clients.kill()
            else:
                server: OwnProxy | OwnBroker = proxy if victim == "proxy" else broker
                server.kill()
                await server.start()
            await send(producer, 3)
            if victim != "client":
                await until(lambda: _are_all_in(first.accepted, sent), WAIT_SECONDS)
            accepted += first.accepted
        if victim == "client":
            with python_clients(proxy.address, tmp_path / "second") as clients:
                second = await clients.start_push_consumer(name, name)
                await until(lambda: _are_all_in(accepted + second.accepted, sent), WAIT_SECONDS)
                accepted += second.accepted
        check_order([("received", body) for body in accepted])
