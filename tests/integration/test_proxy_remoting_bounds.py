"""Bounds of the proxy's remoting port: connections to brokers, and requests under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_proxy.proxy import Proxy
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from tests.support.broker_requests import ask_among_notifications, heartbeat, pull, request, send, succeeded
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.metric_values import metric
from tests.support.proxied_requests import to_broker
from tests.support.raw_client import raw_client
from tests.support.running_proxy import remoting_port, running_proxy
from tests.support.waiting import until

_BROKERS = ("broker-a", "broker-b")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with running_cluster(tmp_path, {name: {"T": 1} for name in _BROKERS}) as running:
        yield running


def _max_offset(broker: str = "broker-a") -> RemotingCommand:
    return to_broker(request(RequestCode.GET_MAX_OFFSET, topic="T", queueId=0), broker)


def _broker_connections(proxy: Proxy) -> float:
    return metric(proxy.metrics, "rmq_proxy_broker_connections")


async def test_a_connection_to_a_broker_beyond_the_limit_is_refused(
    cluster: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        running_proxy(cluster.address, remotingBrokerConnectionsMaxNum=2) as proxy,
        raw_client(remoting_port(proxy)) as second,
    ):
        async with raw_client(remoting_port(proxy)) as first:
            for broker in _BROKERS:
                succeeded(await first.ask(_max_offset(broker)))
            for _ in range(2):
                refused = await second.ask(_max_offset())
                assert refused.code == ResponseCode.SYSTEM_BUSY
                assert "remotingBrokerConnectionsMaxNum=2" in (refused.remark or "")
            succeeded(await first.ask(_max_offset()))  # connections in use go on
            assert _broker_connections(proxy) == 2
            assert metric(proxy.metrics, "rmq_proxy_broker_connections_refused_total") == 2
            lines = [each for each in caplog.records if "connection to a broker refused" in each.getMessage()]
            assert len(lines) == 1
        await until(lambda: _broker_connections(proxy) == 0)
        succeeded(await second.ask(_max_offset()))


async def test_a_heartbeat_that_cannot_reach_each_broker_is_refused(cluster: RunningCluster) -> None:
    async with (
        running_proxy(cluster.address, remotingBrokerConnectionsMaxNum=1) as proxy,
        raw_client(remoting_port(proxy)) as client,
    ):
        answer, _ = await ask_among_notifications(client, heartbeat("client", "G", {"T": "*"}))
    assert answer.code == ResponseCode.SYSTEM_BUSY


async def test_connections_that_brokers_close_make_room(cluster: RunningCluster) -> None:
    limit = {"remotingBrokerConnectionsMaxNum": 1}
    async with (
        running_proxy(cluster.address, **limit) as proxy,
        raw_client(remoting_port(proxy)) as first,
        raw_client(remoting_port(proxy)) as second,
    ):
        succeeded(await first.ask(_max_offset()))
        for connection in list(cluster.brokers["broker-a"].connections):
            connection.close()
        await until(lambda: _broker_connections(proxy) == 0)
        succeeded(await second.ask(_max_offset("broker-b")))


async def test_an_unreachable_broker_takes_no_room(cluster: RunningCluster) -> None:
    limit = {"remotingBrokerConnectionsMaxNum": 1}
    async with (
        running_proxy(cluster.address, **limit) as proxy,
        raw_client(remoting_port(proxy)) as client,
    ):
        succeeded(await client.ask(_max_offset("broker-b")))  # the proxy keeps the route
        await cluster.brokers["broker-b"].stop()
        await until(lambda: _broker_connections(proxy) == 0)
        failed = await client.ask(_max_offset("broker-b"))
        assert failed.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "cannot connect" in (failed.remark or "")
        assert _broker_connections(proxy) == 0
        succeeded(await client.ask(_max_offset("broker-a")))


async def test_requests_beyond_a_capacity_are_answered_system_busy(cluster: RunningCluster) -> None:
    held = to_broker(pull("T", "G", suspend_ms=60_000))
    async with (
        running_proxy(cluster.address, remotingPullThreadPoolQueueCapacity=1) as proxy,
        raw_client(remoting_port(proxy)) as first,
        raw_client(remoting_port(proxy)) as second,
    ):
        waiting = asyncio.ensure_future(first.ask(held))
        await until(lambda: cluster.broker.held_pulls.count == 1)
        refused = await second.ask(to_broker(pull("T", "H")))
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert "tier pull" in (refused.remark or "")
        succeeded(await second.ask(_max_offset()))  # other kinds have capacities of their own
        succeeded(await second.ask(to_broker(send("T"))))
        assert (await waiting).code == ResponseCode.SUCCESS
        succeeded(await second.ask(to_broker(pull("T", "H"))))
