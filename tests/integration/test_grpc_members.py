"""Consumers of a gRPC port in the brokers' lists, and requests of administrators that reach them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_client.admin import Admin
from rmq_client.errors import BrokerError
from rmq_proxy.protocol import definition_pb2 as pb
from rmq_proxy.protocol import service_pb2 as rpc
from rmq_remoting.bodies.heartbeat import ConsumeType
from tests.support.clusters import ClusterBroker, RunningCluster, running_cluster
from tests.support.grpc_client import GrpcClient, grpc_client, message, resource
from tests.support.metric_values import metric
from tests.support.ports import LOOPBACK, free_port
from tests.support.running_proxy import running_proxy
from tests.support.waiting import until


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    """A broker that serves gRPC."""
    settings = tmp_path / "rmq-proxy.json"
    settings.write_text('{"minInvisibleTimeMillsForRecv": 0}')
    keys = {"grpcServerPort": free_port(), "proxyConfigPath": settings}
    async with running_cluster(tmp_path, {"broker-a": {"T": 1}}, **keys) as running:
        yield running


@pytest.fixture
def broker(cluster: RunningCluster) -> ClusterBroker:
    return cluster.brokers["broker-a"]


@pytest.fixture
async def consumer(broker: ClusterBroker) -> AsyncIterator[GrpcClient]:
    """A push consumer that the broker knows."""
    address = f"{LOOPBACK}:{broker.configuration.settings.grpc_server_port}"
    async with grpc_client(address) as connected:
        await connected.consume("G", "T", push=True)
        await until(lambda: _members(broker) == ["client-1"])
        yield connected


def _members(broker: ClusterBroker, group: str = "G") -> list[str]:
    found = broker.services.clients.consumers.find_group(group)
    return [] if found is None else found.client_ids()


async def _answered(
    consumer: GrpcClient, kind: str, status: pb.Status, **answer: str
) -> tuple[rpc.TelemetryCommand, asyncio.Task[None]]:
    """Wait for a command, and answer it."""
    async with asyncio.timeout(20):
        command = await consumer.commands.get()
    assert command.WhichOneof("command") == kind, command
    return command, asyncio.ensure_future(consumer.tell(status, getattr(command, kind).nonce, **answer))


async def test_members_are_listed_with_type_and_subscription(
    broker: ClusterBroker, consumer: GrpcClient
) -> None:
    group = broker.services.clients.consumers.find_group("G")
    assert group is not None
    assert group.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert list(group.subscriptions) == ["T"]
    address = f"{LOOPBACK}:{broker.configuration.settings.grpc_server_port}"
    async with grpc_client(address, "client-2") as other:
        await other.consume("G", "T")
        await until(lambda: _members(broker) == ["client-1", "client-2"])
        leave = rpc.NotifyClientTerminationRequest(group=resource("G"))
        await other.call("NotifyClientTermination", leave)
        await until(lambda: _members(broker) == ["client-1"])


@pytest.mark.parametrize(
    ("code", "result"),
    [
        (pb.OK, "CR_SUCCESS"),
        (pb.FAILED_TO_CONSUME_MESSAGE, "CR_LATER"),
        (pb.MESSAGE_CORRUPTED, "CR_RETURN_NULL"),
    ],
)
async def test_a_message_is_verified(
    cluster: RunningCluster, consumer: GrpcClient, code: pb.Code, result: str
) -> None:
    sent = await consumer.send(message("T", b"again"))
    async with Admin(cluster.address) as admin:
        stored = await admin.view_message("T", sent.entries[0].message_id)
        assert stored is not None
        delivering = asyncio.ensure_future(admin.deliver_message("G", "client-1", stored))
        command, telling = await _answered(consumer, "verify_message_command", pb.Status(code=code))
        assert command.verify_message_command.message.body == b"again"
        await telling
        assert (await delivering).result == result


async def test_stacks_are_printed(cluster: RunningCluster, consumer: GrpcClient) -> None:
    async with Admin(cluster.address) as admin:
        state = await admin.consumer_state("G", "client-1")
        assert (state.subscriptions, state.stacks) == ({"T": "*"}, None)
        asking = asyncio.ensure_future(admin.consumer_state("G", "client-1", stacks=True))
        _, telling = await _answered(
            consumer, "print_thread_stack_trace_command", pb.Status(code=pb.OK), stacks="main: run()"
        )
        await telling
        assert (await asking).stacks == "main: run()"


async def test_a_client_that_cannot_print_stacks_is_an_error(
    cluster: RunningCluster, consumer: GrpcClient
) -> None:
    async with Admin(cluster.address) as admin:
        asking = asyncio.ensure_future(admin.consumer_state("G", "client-1", stacks=True))
        _, telling = await _answered(
            consumer,
            "print_thread_stack_trace_command",
            pb.Status(code=pb.UNSUPPORTED, message="no threads"),
            stacks="",
        )
        await telling
        with pytest.raises(BrokerError, match="no stacks: UNSUPPORTED: no threads"):
            await asking


async def test_a_proxy_of_a_cluster_announces_consumers_if_it_is_told_to(cluster: RunningCluster) -> None:
    broker = cluster.brokers["broker-a"]
    for announces in (False, True):
        async with (
            running_proxy(cluster.address, announceConsumers=announces) as proxy,
            grpc_client(proxy.address) as client,
        ):
            await client.consume("G", "T")
            if announces:
                await until(lambda: _members(broker) == ["client-1"])
            else:
                await client.receive("G", "T")
                assert _members(broker) == []
        await until(lambda: _members(broker) == [])


async def test_brokers_list_the_consumers_of_all_proxies(cluster: RunningCluster) -> None:
    broker = cluster.brokers["broker-a"]
    async with (
        running_proxy(cluster.address, announceConsumers=True) as first,
        grpc_client(first.address, "client-1") as one,
    ):
        await one.consume("G", "T")
        async with (
            running_proxy(cluster.address, announceConsumers=True) as second,
            grpc_client(second.address, "client-2") as two,
        ):
            await two.consume("G", "T")
            await until(lambda: _members(broker) == ["client-1", "client-2"])
        await until(lambda: _members(broker) == ["client-1"])


async def test_consumers_beyond_the_limit_of_connections_are_served_but_not_listed(
    cluster: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    broker = cluster.brokers["broker-a"]
    limit = {"announceConsumers": True, "consumerConnectionsMaxNum": 2}
    async with running_proxy(cluster.address, **limit) as proxy, contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(grpc_client(proxy.address, f"client-{number}"))
            for number in range(4)
        ]
        for client in clients:
            await client.consume("G", "T")
        await until(lambda: len(_members(broker)) == 2)
        await until(lambda: metric(proxy.metrics, "rmq_proxy_consumers_unlisted") == 2)
        assert metric(proxy.metrics, "rmq_proxy_member_connections") == 2
        assert len([each for each in caplog.records if "not listed" in each.getMessage()]) == 1
        unlisted = next(each for each in clients if each.client_id not in _members(broker))
        assert (await unlisted.receive("G", "T"))[0].code == pb.MESSAGE_NOT_FOUND
        # The place of a consumer that leaves goes to another one.
        listed = next(each for each in clients if each.client_id in _members(broker))
        await listed.call("NotifyClientTermination", rpc.NotifyClientTerminationRequest(group=resource("G")))
        await unlisted.consume("G", "T")
        await until(lambda: unlisted.client_id in _members(broker))
        assert len(_members(broker)) == 2
