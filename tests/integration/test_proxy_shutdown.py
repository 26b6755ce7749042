"""A graceful shutdown of the proxy: held calls and streams end at once, receipts stay valid."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest

from rmq_proxy.protocol import definition_pb2 as pb
from rmq_proxy.protocol import service_pb2 as rpc
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.grpc_client import grpc_client, message
from tests.support.running_proxy import running_proxy
from tests.support.waiting import until

# Far less than the time for which calls are held and may end.
_AT_ONCE_SECONDS = 20.0
_PATIENT = {"grpcShutdownTimeSeconds": 60, "grpcClientConsumerMaxLongPollingTimeoutMillis": 60_000}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with running_cluster(tmp_path, {"broker-a": {"T": 1}}) as running:
        yield running


async def test_held_calls_and_streams_end_at_once(cluster: RunningCluster) -> None:
    services = cluster.brokers["broker-a"].services
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(running_proxy(cluster.address, **_PATIENT))
        client = await stack.enter_async_context(grpc_client(proxy.address))
        await client.consume("G", "T")
        receiving = asyncio.ensure_future(client.receive("G", "T", wait_s=60, deadline=90))
        await until(lambda: services.pops.held_pops.count > 0)
        pull = rpc.PullMessageRequest(batch_size=1, filter_expression={"type": pb.TAG, "expression": "*"})
        pull.group.name, pull.message_queue.topic.name = "G", "T"
        pull.message_queue.broker.name = "broker-a"
        pull.long_polling_timeout.FromSeconds(60)
        pulling = asyncio.ensure_future(client.pull(pull))
        await until(lambda: services.pulls.held_pulls.count > 0)
        async with asyncio.timeout(_AT_ONCE_SECONDS):
            await proxy.stop()
            status, messages = await receiving
            assert (status.code, messages) == (pb.MESSAGE_NOT_FOUND, [])
            status, messages, next_offset = await pulling
            assert (status.code, messages, next_offset) == (pb.MESSAGE_NOT_FOUND, [], 0)
            assert await client.status_of_stream() is grpc.StatusCode.OK


async def test_a_push_consumer_acknowledges_through_the_next_proxy(cluster: RunningCluster) -> None:
    async with running_proxy(cluster.address) as proxy, grpc_client(proxy.address) as client:
        await client.consume("G", "T", push=True)
        await client.receive("G", "T", renew=True)
        await client.send(message("T"))
        received = await client.receive_all("G", "T", 1, renew=True)
    in_flight = cluster.brokers["broker-a"].services.pops.in_flight
    assert len(in_flight) == 1
    async with running_proxy(cluster.address) as proxy, grpc_client(proxy.address) as client:
        assert (await client.acknowledge("G", "T", *received)).status.code == pb.OK
    # The broker has no check point of the message any more.
    await until(lambda: len(in_flight) == 0)
