"""Metrics of the gRPC face in both forms, and the health checks of its port."""

from __future__ import annotations

import asyncio
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from rmq_proxy.protocol import service_pb2 as rpc
from rmq_remoting.daemon.health import ROLES, Unhealthy, check
from rmq_remoting.daemon.ready import Listening, local_address
from tests.support.brokers import running_broker
from tests.support.clusters import running_cluster
from tests.support.grpc_client import grpc_client, message, resource
from tests.support.ports import LOOPBACK, free_port
from tests.support.running_proxy import running_proxy

_PROM = {"metricsExporterType": "PROM", "metricsPromExporterPort": 0}
_MISSING = rpc.QueryRouteRequest(topic=resource("missing"))


async def _scrape(address: Listening | None) -> dict[str, Metric]:
    assert address is not None

    def read() -> str:
        with urllib.request.urlopen(f"http://{local_address(*address)}/metrics", timeout=5) as answer:
            text: str = answer.read().decode()
            return text

    families: dict[str, Metric] = {}
    for family in text_string_to_metric_families(await asyncio.to_thread(read)):
        assert family.name not in families, f"{family.name} is exposed twice"
        families[family.name] = family
    return families


def _value(families: dict[str, Metric], name: str, **labels: str) -> float:
    """Return the sum of the samples of a name that have the labels."""
    samples = [sample for family in families.values() for sample in family.samples if sample.name == name]
    return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())


async def test_a_proxy_counts_calls_by_their_status(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path, {"broker-a": {"T": 1}}) as cluster,
        running_proxy(cluster.address, proxyName="p", **_PROM) as proxy,
        grpc_client(proxy.address) as client,
    ):
        await client.consume("G", "T")
        await client.receive("G", "T")
        for _ in range(2):
            await client.send(message("T"))
        await client.call("QueryRoute", _MISSING)
        families = await _scrape(proxy.metrics.address)
        up = families["rocketmq_proxy_up"].samples[0]
        assert (up.value, up.labels["proxy_mode"]) == (1, "cluster")
        assert (up.labels["cluster"], up.labels["node_type"], up.labels["node_id"]) == (
            "DefaultCluster",
            "proxy",
            "p",
        )
        count = "rocketmq_rpc_latency_milliseconds_count"
        sends = {"request_code": "send_message", "protocol_type": "grpc", "is_long_polling": "false"}
        assert _value(families, count, response_code="ok", **sends) == 2
        routes = {"request_code": "query_route", "response_code": "topic_not_found"}
        assert _value(families, count, **routes) == 1
        held = {"request_code": "receive_message", "is_long_polling": "true"}
        assert _value(families, count, response_code="message_not_found", **held) == 1
        assert _value(families, "rmq_proxy_clients", client_type="simple_consumer") == 1
        assert _value(families, "rmq_proxy_calls_open", method="telemetry") == 1
        assert _value(families, "rmq_proxy_calls_open", method="receive_message") == 0
        assert _value(families, "rmq_proxy_cache_entries", cache="route of topic") >= 1


async def test_a_broker_has_those_of_its_grpc_port(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, {}) as cluster:
        port = free_port()
        keys = {"namesrvAddr": cluster.address, "brokerName": "broker-c", "grpcServerPort": port, **_PROM}
        async with running_broker(tmp_path / "b", **keys) as running:
            async with grpc_client(f"{LOOPBACK}:{port}") as client:
                await client.call("QueryRoute", _MISSING)
            families = await _scrape(running.broker.metrics.address)
            assert {sample.labels["port"] for sample in families["rmq_tls_reloads"].samples} == {
                "remoting",
                "grpc",
            }
    assert families["rocketmq_proxy_up"].samples[0].labels["proxy_mode"] == "local"
    labels = {"request_code": "query_route", "response_code": "topic_not_found", "protocol_type": "grpc"}
    assert _value(families, "rocketmq_rpc_latency_milliseconds_count", **labels) == 1


async def test_the_health_command_asks_the_grpc_port(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, {"broker-a": {"T": 1}}) as cluster:
        async with running_proxy(cluster.address) as proxy:
            await asyncio.to_thread(check, ROLES["proxy"], LOOPBACK, proxy.port, 5.0)
            port = proxy.port
        with pytest.raises(OSError, match="refused"):
            check(ROLES["proxy"], LOOPBACK, port, 5.0)
        namesrv = int(cluster.address.split(":")[1])
        with pytest.raises(Unhealthy):
            await asyncio.to_thread(check, ROLES["proxy"], LOOPBACK, namesrv, 5.0)
