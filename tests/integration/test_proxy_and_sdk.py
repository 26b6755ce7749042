"""Messages cross between gRPC and the remoting protocol, and a group may have members of both kinds."""

from __future__ import annotations

import asyncio
import gzip
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_client import (
    Compression,
    Message,
    MessageExt,
    Producer,
    SimpleConsumer,
    TransactionState,
)
from rmq_client.admin import Admin
from rmq_proxy.protocol import definition_pb2 as pb
from rmq_proxy.protocol import service_pb2 as rpc
from rmq_proxy.protocol.definition_pb2 import Code
from rmq_remoting.bodies.assignment import MessageRequestMode
from rmq_remoting.message_properties import PROPERTY_SHARDING_KEY
from tests.interop.consumers import consumer_of
from tests.support.broker_requests import succeeded
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.grpc_client import GrpcClient, grpc_client, message, resource
from tests.support.pop_requests import set_mode
from tests.support.raw_client import raw_client
from tests.support.running_proxy import running_proxy
from tests.support.waiting import until

WAIT_SECONDS = 20.0
TYPES = {"N": "NORMAL", "F": "FIFO", "X": "TRANSACTION"}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with running_cluster(tmp_path, {"broker-a": {}}) as running:
        async with Admin(running.address) as admin:
            for topic, kind in TYPES.items():
                await admin.create_topic(topic, queues=2, attributes={"+message.type": kind})
        yield running


@pytest.fixture
async def client(cluster: RunningCluster) -> AsyncIterator[GrpcClient]:
    async with running_proxy(cluster.address) as proxy, grpc_client(proxy.address) as connected:
        yield connected


async def _joined(client: GrpcClient, group: str, topic: str) -> None:
    """Become a consumer; a new group begins at the end of each queue."""
    await client.consume(group, topic)
    await client.receive(group, topic)


async def test_the_sdk_consumes_messages_of_a_grpc_producer(
    cluster: RunningCluster, client: GrpcClient
) -> None:
    plain = message("N", b"plain", message_id="01A", tag="paid", keys=["k1", "k2"])
    plain.user_properties["colour"] = "red"
    packed = message("N", gzip.compress(b"packed"), message_id="01B", body_encoding=pb.GZIP)
    for made in (plain, packed):
        assert (await client.send(made)).status.code == Code.OK
    received: dict[str, MessageExt] = {}

    async def listen(messages: list[MessageExt]) -> None:
        received.update({each.msg_id: each for each in messages})

    async with consumer_of(cluster.address, "N", listen):
        await until(lambda: len(received) == 2, WAIT_SECONDS)
    assert {name: each.body for name, each in received.items()} == {"01A": b"plain", "01B": b"packed"}
    assert received["01A"].tags == "paid"
    assert received["01A"].keys == ["k1", "k2"]
    assert received["01A"].user_properties == {"colour": "red"}


async def test_a_grpc_consumer_receives_messages_of_the_sdk(
    cluster: RunningCluster, client: GrpcClient
) -> None:
    await _joined(client, "G", "N")
    body = b"compressed by the producer " * 1000
    async with Producer(cluster.address, group="p", compression=Compression(threshold_bytes=100)) as producer:
        sent = await producer.send(
            Message("N", body, tags="paid", keys=["k1", "k2"], properties={"colour": "red"})
        )
    (received,) = await client.receive_all("G", "N", 1)
    system = received.system_properties
    assert received.body == body
    assert system.message_id == sent.msg_id
    assert (system.tag, list(system.keys), dict(received.user_properties)) == (
        "paid",
        ["k1", "k2"],
        {"colour": "red"},
    )
    assert (await client.acknowledge("G", "N", received)).status.code == Code.OK


async def test_a_message_group_is_the_sharding_key(cluster: RunningCluster, client: GrpcClient) -> None:
    await client.send(message("F", b"by gRPC", message_group="customer-7"))
    async with SimpleConsumer(cluster.address, group="S", topics="F", consume_from="first") as consumer:
        (received,) = await consumer.receive(timeout_seconds=WAIT_SECONDS)
        assert received.properties[PROPERTY_SHARDING_KEY] == "customer-7"
        await consumer.ack(received)
    await _joined(client, "G", "F")
    async with Producer(cluster.address, group="p") as producer:
        properties = {PROPERTY_SHARDING_KEY: "customer-7"}
        made = Message("F", b"by the SDK")
        made.properties.update(properties)
        await producer.send(made)
    (back,) = await client.receive_all("G", "F", 1)
    assert (back.body, back.system_properties.message_group) == (b"by the SDK", "customer-7")
    assert back.system_properties.message_type == pb.FIFO


async def test_transactions_cross(cluster: RunningCluster, client: GrpcClient) -> None:
    await _joined(client, "G", "X")
    async with Producer(
        cluster.address, group="p", check_transaction=lambda half: TransactionState.UNKNOWN
    ) as producer:
        await producer.send_in_transaction(Message("X", b"by the SDK"), lambda half: TransactionState.COMMIT)
    (received,) = await client.receive_all("G", "X", 1)
    assert received.body == b"by the SDK"
    sent = await client.send(message("X", b"by gRPC", message_type=pb.TRANSACTION))
    async with SimpleConsumer(cluster.address, group="S", topics="X") as consumer:
        await consumer.receive(timeout_seconds=0.1)
        end = rpc.EndTransactionRequest(
            topic=resource("X"),
            message_id="01ID",
            transaction_id=sent.entries[0].transaction_id,
            resolution=pb.COMMIT,
        )
        assert (await client.call("EndTransaction", end)).status.code == Code.OK
        (crossed,) = await consumer.receive(timeout_seconds=WAIT_SECONDS)
        assert crossed.body == b"by gRPC"


async def test_simple_consumers_of_both_kinds_share_a_group(
    cluster: RunningCluster, client: GrpcClient
) -> None:
    await _joined(client, "G", "N")
    received: Counter[bytes] = Counter()
    by_kind: Counter[str] = Counter()
    async with (
        Producer(cluster.address, group="p") as producer,
        SimpleConsumer(cluster.address, group="G", topics="N") as consumer,
    ):

        async def by_grpc() -> None:
            _, messages = await client.receive("G", "N", count=4, wait_s=0.2)
            for each in messages:
                received[each.body] += 1
                by_kind["grpc"] += 1
            if messages:
                assert (await client.acknowledge("G", "N", *messages)).status.code == Code.OK

        async def by_sdk() -> None:
            for each in await consumer.receive(4, timeout_seconds=0.2):
                received[each.body] += 1
                by_kind["sdk"] += 1
                await consumer.ack(each)

        sent: set[bytes] = set()
        async with asyncio.timeout(WAIT_SECONDS):
            while len(by_kind) < 2 or received.keys() != sent:
                if len(by_kind) < 2:
                    bodies = [b"%d" % number for number in range(len(sent), len(sent) + 16)]
                    await asyncio.gather(*(producer.send(Message("N", body)) for body in bodies))
                    sent.update(bodies)
                await asyncio.gather(by_grpc(), by_sdk())
    assert set(received.values()) == {1}, "each message is delivered once"


async def test_a_push_consumer_of_the_sdk_shares_a_group_with_one_of_grpc(
    cluster: RunningCluster, client: GrpcClient
) -> None:
    """The group's mode on the broker is POP, so that the classic client pops, too."""
    async with raw_client(cluster.broker.port) as raw:
        succeeded(await raw.ask(set_mode("N", "G", MessageRequestMode.POP)))
    await client.consume("G", "N", push=True)
    await client.receive("G", "N", renew=True)
    by_sdk: Counter[bytes] = Counter()
    by_grpc: Counter[bytes] = Counter()

    async def listen(messages: list[MessageExt]) -> None:
        by_sdk.update(each.body for each in messages)

    async def receive() -> None:
        while True:
            _, messages = await client.receive("G", "N", count=4, wait_s=2, renew=True)
            by_grpc.update(each.body for each in messages)
            if messages:
                assert (await client.acknowledge("G", "N", *messages)).status.code == Code.OK

    async with (
        Producer(cluster.address, group="p") as producer,
        consumer_of(cluster.address, "N", listen, group="G", client_rebalance=False),
        asyncio.TaskGroup() as group,
    ):
        receivers = [group.create_task(receive()) for _ in range(4)]
        sent: set[bytes] = set()
        async with asyncio.timeout(WAIT_SECONDS):
            while not (by_sdk and by_grpc):
                bodies = [b"%d" % number for number in range(len(sent), len(sent) + 16)]
                await asyncio.gather(*(producer.send(Message("N", body)) for body in bodies))
                sent.update(bodies)
                await until(lambda: (by_sdk + by_grpc).keys() == sent, WAIT_SECONDS)
        for receiver in receivers:
            receiver.cancel()
    assert set((by_sdk + by_grpc).values()) == {1}, "each message is delivered once"
