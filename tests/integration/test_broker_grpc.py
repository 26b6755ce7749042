"""The gRPC face in the broker's process (LOCAL mode)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_broker.settings.broker import BrokerSettings
from rmq_client.admin import Admin
from rmq_proxy.protocol import definition_pb2 as pb
from rmq_proxy.protocol import service_pb2 as rpc
from rmq_remoting.daemon.configuration import Override, SettingsError, load
from rmq_remoting.daemon.lifecycle import StartError
from tests.support.brokers import RunningBroker, broker_configuration, running_broker
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.grpc_client import GrpcClient, grpc_client, message, resource
from tests.support.namesrv import running_namesrv
from tests.support.ports import LOOPBACK, free_port
from tests.support.waiting import until

TIMES = '{"minInvisibleTimeMillsForRecv": 0, "grpcClientConsumerMinLongPollingTimeoutMillis": 0}'


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    """Two brokers; the first of them serves gRPC."""
    settings = tmp_path / "rmq-proxy.json"
    settings.write_text(TIMES)
    keys = {"transactionTimeOut": 100, "transactionCheckInterval": 100, "recallMessageEnable": "true"}
    async with running_cluster(tmp_path, {"broker-b": {"T": 2}}) as running:
        own = {"grpcServerPort": free_port(), "proxyConfigPath": settings, **keys}
        await running.add(tmp_path, "broker-a", {"T": 2}, **own)
        yield running


@pytest.fixture
async def client(cluster: RunningCluster) -> AsyncIterator[GrpcClient]:
    async with grpc_client(_address(cluster)) as connected:
        yield connected


def _address(cluster: RunningCluster) -> str:
    return f"{LOOPBACK}:{cluster.brokers['broker-a'].configuration.settings.grpc_server_port}"


async def test_the_ready_line_has_the_port(cluster: RunningCluster) -> None:
    assert cluster.brokers["broker-a"].ready_text.endswith(f" grpc {_address(cluster)}")


async def test_each_broker_of_a_route_has_the_port_on_its_own_host(
    cluster: RunningCluster, client: GrpcClient
) -> None:
    answer = await client.call("QueryRoute", rpc.QueryRouteRequest(topic=resource("T")))
    host, port = _address(cluster).split(":")
    expected = pb.Endpoints(scheme=pb.IPv4, addresses=[pb.Address(host=host, port=int(port))])
    assert {queue.broker.name for queue in answer.message_queues} == {"broker-a", "broker-b"}
    assert all(queue.broker.endpoints == expected for queue in answer.message_queues)


@pytest.mark.parametrize(
    ("bind", "own", "scheme", "host"),
    [("::1", "[::1]", pb.IPv6, "::1"), (LOOPBACK, "localhost", pb.DOMAIN_NAME, "localhost")],
)
async def test_the_address_in_routes_may_be_of_ipv6_or_a_domain_name(
    tmp_path: Path, bind: str, own: str, scheme: pb.AddressScheme, host: str
) -> None:
    port = free_port()
    keys = {"grpcServerPort": port, "bindAddress": bind, "brokerIP1": own}
    async with (
        running_namesrv(tmp_path) as namesrv,
        running_broker(tmp_path / "b", namesrvAddr=namesrv.address, **keys),
        Admin(namesrv.address) as admin,
        grpc_client(f"[{bind}]:{port}" if ":" in bind else f"{bind}:{port}") as client,
    ):
        await admin.create_topic("R", queues=1)
        answer = await client.call("QueryRoute", rpc.QueryRouteRequest(topic=resource("R")))
        (queue,) = answer.message_queues
        expected = pb.Endpoints(scheme=scheme, addresses=[pb.Address(host=host, port=port)])
        assert queue.broker.endpoints == expected
        assert (await client.send(message("R"))).status.code == pb.OK


async def test_messages_stay_on_the_own_broker(cluster: RunningCluster, client: GrpcClient) -> None:
    await client.consume("G", "T")
    await client.receive("G", "T")
    for number in range(4):
        sent = await client.send(message("T", b"%d" % number, message_id=f"0{number}"))
        assert sent.status.code == pb.OK
    assert len(cluster.brokers["broker-a"].messages("T")) == 4
    assert cluster.brokers["broker-b"].messages("T") == []
    received = await client.receive_all("G", "T", 4)
    answer = await client.acknowledge("G", "T", *received)
    assert [entry.status.code for entry in answer.entries] == [pb.OK] * 4


async def test_open_transactions_are_checked_with_a_producer(
    cluster: RunningCluster, client: GrpcClient
) -> None:
    async with Admin(cluster.address) as admin:
        await admin.create_topic("X", queues=1, attributes={"+message.type": "TRANSACTION"})
    await client.produce("X")
    sent = await client.send(message("X", b"half", message_type=pb.TRANSACTION))
    async with asyncio.timeout(20):
        command = (await client.commands.get()).recover_orphaned_transaction_command
    assert command.message.body == b"half"
    # The id has the message's position, which changes when the broker keeps the message for another check.
    assert command.transaction_id.split(":")[0] == sent.entries[0].transaction_id.split(":")[0]
    end = rpc.EndTransactionRequest(
        topic=resource("X"),
        message_id=command.message.system_properties.message_id,
        transaction_id=command.transaction_id,
        resolution=pb.COMMIT,
        source=pb.SOURCE_SERVER_CHECK,
    )
    assert (await client.call("EndTransaction", end)).status.code == pb.OK
    await until(lambda: cluster.brokers["broker-a"].messages("X"))


async def test_a_delayed_message_is_recalled(cluster: RunningCluster, client: GrpcClient) -> None:
    async with Admin(cluster.address) as admin:
        await admin.create_topic("D", queues=1, attributes={"+message.type": "DELAY"})
    delayed = message("D")
    delayed.system_properties.delivery_timestamp.FromSeconds(int(time.time()) + 60)
    sent = await client.send(delayed)
    recall = rpc.RecallMessageRequest(topic=resource("D"), recall_handle=sent.entries[0].recall_handle)
    answer = await client.call("RecallMessage", recall)
    assert (answer.status.code, answer.message_id) == (pb.OK, "01ID")
    recall.recall_handle = "no handle"
    assert (await client.call("RecallMessage", recall)).status.code == pb.INTERNAL_SERVER_ERROR


async def test_the_broker_stops_although_receives_are_held(cluster: RunningCluster) -> None:
    broker = cluster.brokers["broker-a"]
    async with grpc_client(_address(cluster)) as client:
        await client.consume("G", "T")
        held = asyncio.ensure_future(client.receive("G", "T", wait_s=60, deadline=90))
        await until(lambda: broker.services.pops.held_pops.count > 0)
        del cluster.brokers["broker-a"]
        async with asyncio.timeout(20):
            await broker.stop()
        status, messages = await held
        assert (status.code, messages) == (pb.MESSAGE_NOT_FOUND, [])


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"tls.server.mode": "enforcing", "useTLS": "false"}, "remove useTLS"),
    ],
)
def test_grpc_is_no_way_around_access_control_and_tls(keys: dict[str, str], problem: str) -> None:
    overrides = [Override(key, value) for key, value in {"grpcServerPort": "8081", **keys}.items()]
    with pytest.raises(SettingsError, match=problem):
        load(BrokerSettings, overrides=overrides)


async def test_grpc_needs_a_name_server(tmp_path: Path) -> None:
    broker = RunningBroker(broker_configuration(tmp_path, grpcServerPort=free_port()))
    with pytest.raises(StartError, match="grpcServerPort needs a name server"):
        await broker.start()


async def test_a_taken_port_is_named(cluster: RunningCluster, tmp_path: Path) -> None:
    port = int(_address(cluster).split(":")[1])
    keys = {"namesrvAddr": cluster.address, "brokerName": "broker-c", "grpcServerPort": port}
    broker = RunningBroker(broker_configuration(tmp_path / "c", **keys))
    with pytest.raises(StartError, match="grpcServerPort chooses the port"):
        await broker.start()
    await broker.stop()


async def test_a_receipt_outlives_a_restart_of_its_broker(tmp_path: Path) -> None:
    async with running_namesrv(tmp_path) as namesrv:
        port = free_port()
        keys = {"namesrvAddr": namesrv.address, "grpcServerPort": port}
        async with (
            running_broker(tmp_path, **keys),
            grpc_client(f"{LOOPBACK}:{port}") as client,
            Admin(namesrv.address) as admin,
        ):
            await admin.create_topic("R", queues=1)
            await client.consume("G", "R")
            await client.receive("G", "R")
            assert (await client.send(message("R"))).status.code == pb.OK
            received = await client.receive_all("G", "R", 1)
        async with running_broker(tmp_path, **keys) as broker, grpc_client(f"{LOOPBACK}:{port}") as client:
            in_flight = broker.services.pops.in_flight
            assert len(in_flight) == 1
            answer = await client.acknowledge("G", "R", *received)
            assert [entry.status.code for entry in answer.entries] == [pb.OK]
            await until(lambda: len(in_flight) == 0)
