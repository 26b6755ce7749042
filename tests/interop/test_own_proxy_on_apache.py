"""Our proxy in front of Apache's name server and broker, with Apache's Python client for 5.x."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from rmq_client.admin import Admin
from tests.interop.clusters import Apache
from tests.interop.grpc_fronts import BROKER_SETTINGS, own_proxy
from tests.interop.proxy_clients import PythonClients, SimpleConsumer, python_clients
from tests.support.apache import apache_cluster
from tests.support.outcome import Event
from tests.support.toolchain import JavaProgram
from tests.support.waiting import until

pytestmark = pytest.mark.java

WAIT_SECONDS = 40.0


@pytest.fixture(scope="module")
def servers(apache_program: JavaProgram) -> Iterator[Apache]:
    with asyncio.Runner() as runner:
        cluster = apache_cluster(apache_program, {**BROKER_SETTINGS, "waitTimeMillsInSendQueue": "10000"})
        yield runner.run(cluster.__aenter__())
        runner.run(cluster.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def clients(servers: Apache, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PythonClients]:
    with (
        own_proxy(servers) as address,
        python_clients(address, tmp_path_factory.mktemp("python")) as clients,
    ):
        yield clients


async def _topic(servers: Apache, name: str, message_type: str) -> str:
    async with Admin(servers[0].address) as admin:
        await admin.create_topic(name, queues=2, attributes={"+message.type": message_type})
    return name


async def _receive(consumer: SimpleConsumer, count: int, *, invisible_s: int = 30) -> list[Event]:
    received: list[Event] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while len(received) < count:
        assert time.monotonic() < deadline, f"{len(received)} of {count} messages: {received}"
        received += await consumer.receive(count - len(received), invisible_s=invisible_s)
    return received


async def test_unacknowledged_messages_are_redelivered(
    clients: PythonClients, servers: Apache, name: str
) -> None:
    topic = await _topic(servers, name, "NORMAL")
    async with clients.producer(topic) as producer, clients.simple_consumer(name, topic) as consumer:
        for body in ("kept", "changed", "acknowledged"):
            await producer.send(topic, body, tag="A", properties={"colour": "red"})
        by_body = {event["body"]: event for event in await _receive(consumer, 3, invisible_s=20)}
        assert {event["tag"] for event in by_body.values()} == {"A"}
        await consumer.ack(by_body["acknowledged"])
        await consumer.change_invisible(by_body["changed"], 1)
        (again,) = await _receive(consumer, 1)
        assert (again["body"], again["attempt"]) == ("changed", 2)
        await consumer.ack(again)
        await consumer.ack(by_body["kept"])


async def test_delayed_messages_arrive_when_due_and_recalled_ones_never(
    clients: PythonClients, servers: Apache, name: str
) -> None:
    topic = await _topic(servers, name, "DELAY")
    async with clients.producer(topic) as producer, clients.simple_consumer(name, topic) as consumer:
        due = int(time.time()) + 3
        recalled = await producer.send(topic, "recalled", delivery_timestamp=due)
        await producer.send(topic, "kept", delivery_timestamp=due)
        assert await producer.recall(topic, recalled["recall_handle"]) == recalled["message_id"]
        (kept,) = await _receive(consumer, 1)
        assert (kept["body"], kept["received_at_ms"] >= due * 1000) == ("kept", True)
        await consumer.ack(kept)


async def test_transactions_are_committed_and_checked(
    clients: PythonClients, servers: Apache, name: str
) -> None:
    topic = await _topic(servers, name, "TRANSACTION")
    async with (
        clients.producer(topic, check="commit") as producer,
        clients.simple_consumer(name, topic) as consumer,
    ):
        await producer.send_in_transaction(topic, "committed", "commit")
        await producer.send_in_transaction(topic, "open", None)
        await until(lambda: clients.checked(topic), WAIT_SECONDS)
        bodies: set[str] = set()
        deadline = time.monotonic() + WAIT_SECONDS
        # The broker checks every 500 ms, and notes outcomes every 3 s: it may commit a transaction twice.
        while bodies != {"committed", "open"}:
            assert time.monotonic() < deadline, bodies
            for message in await consumer.receive():
                bodies.add(message["body"])
                await consumer.ack(message)
