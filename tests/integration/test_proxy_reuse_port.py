"""Several proxies on the same ports of a host (`reusePort`)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from rmq_proxy.protocol import definition_pb2 as pb
from rmq_proxy.protocol import service_pb2 as rpc
from rmq_proxy.proxy import Proxy
from rmq_remoting.daemon.lifecycle import StartError
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.grpc_client import GrpcClient, message, resource
from tests.support.metric_values import observations
from tests.support.running_proxy import remoting_port, running_proxy

# The system chooses a proxy for each connection. All of them go to one of two once in 2 ** 23 runs.
_CONNECTIONS: Final = 24
# Channels of one process would share a connection.
_OWN_CONNECTION: Final = (("grpc.use_local_subchannel_pool", 1),)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with running_cluster(tmp_path, {"broker-a": {"T": 2}}) as running:
        yield running


def _calls(proxy: Proxy) -> int:
    return observations(proxy.metrics, "rocketmq_rpc_latency_milliseconds")


def _ports_of(proxy: Proxy) -> dict[str, Any]:
    return {"grpcServerPort": proxy.port, "remotingListenPort": remoting_port(proxy), "reusePort": True}


@pytest.mark.parametrize("mode", ["disabled", "permissive"])
async def test_two_proxies_share_the_connections(cluster: RunningCluster, mode: str) -> None:
    keys = {"tls.server.mode": mode, "reusePort": True}
    async with (
        running_proxy(cluster.address, **keys) as one,
        running_proxy(cluster.address, **(keys | _ports_of(one))) as other,
    ):
        assert (one.port, remoting_port(one)) == (other.port, remoting_port(other))
        for number in range(_CONNECTIONS):
            async with grpc.aio.insecure_channel(one.address, options=_OWN_CONNECTION) as channel:
                client = GrpcClient(channel, f"client-{number}", "5.0.7")
                answer = await client.call("QueryRoute", rpc.QueryRouteRequest(topic=resource("T")))
                assert answer.status.code == pb.OK
                assert (await client.send(message("T"))).status.code == pb.OK
        assert _calls(one) > 0
        assert _calls(other) > 0
        assert _calls(one) + _calls(other) == 2 * _CONNECTIONS


async def test_a_port_is_not_shared_unless_both_want_it(cluster: RunningCluster) -> None:
    async with running_proxy(cluster.address) as one:
        with pytest.raises(StartError, match="cannot listen on"):
            async with running_proxy(cluster.address, **_ports_of(one)):
                pass
        with pytest.raises(StartError, match="remotingListenPort chooses the port"):
            async with running_proxy(cluster.address, **{**_ports_of(one), "grpcServerPort": 0}):
                pass


async def test_a_shared_remoting_port_takes_no_grpc(cluster: RunningCluster) -> None:
    for reuse_port, is_served in ((False, True), (True, False)):
        async with (
            running_proxy(cluster.address, reusePort=reuse_port) as proxy,
            grpc.aio.insecure_channel(proxy.remoting_address) as channel,
        ):
            call = GrpcClient(channel, "client-1", "5.0.7").call(
                "QueryRoute", rpc.QueryRouteRequest(topic=resource("T")), deadline=5.0
            )
            if is_served:
                assert (await call).status.code == pb.OK
            else:
                with pytest.raises(grpc.aio.AioRpcError):
                    await call
