"""A killed proxy: clients connect to the next one at its address, and no message is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_client.admin import Admin
from tests.interop.grpc_fronts import PROXY_SETTINGS
from tests.interop.proxy_clients import PythonProducer, Refused, python_clients
from tests.support.own_servers import OwnBroker, OwnNamesrv, OwnProxy, own_cluster
from tests.support.waiting import until

WAIT_SECONDS = 60.0


@pytest.fixture
async def servers() -> AsyncIterator[tuple[OwnNamesrv, OwnBroker]]:
    async with own_cluster() as cluster:
        yield cluster


async def _sent(producer: PythonProducer, topic: str, body: str) -> None:
    """Send until the proxy accepts the message."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            try:
                await producer.send(topic, body)
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
