"""All metrics that rules and panels use are exported by a running name server, broker or stream."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from pyspark_rocketmq.lag import LagListener
from tests.deploy.tools import DEPLOY, yaml_of
from tests.support.broker_requests import ask_among_notifications, heartbeat, pull, send, sent
from tests.support.certificates import make_certificate
from tests.support.fake_controller import fake_controller
from tests.support.grpc_client import grpc_client, message
from tests.support.own_servers import OwnBroker, OwnNamesrv, OwnProxy, OwnShards
from tests.support.ports import LOOPBACK, free_port
from tests.support.promql import labels_grouped_by, metrics_asked_for
from tests.support.raw_client import raw_client
from tests.support.spark_events import progress, source

DASHBOARD = DEPLOY / "grafana" / "dashboards" / "rmq.json"
RULES = DEPLOY / "prometheus" / "rules.yml"
# Labels that Prometheus adds to each sample.
_ADDED = frozenset({"job", "instance"})
_Labels = Mapping[str, frozenset[str]]


async def _scraped(port: int) -> Iterator[tuple[str, frozenset[str]]]:
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: daemon\r\n\r\n")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 200 OK")
    families = list(text_string_to_metric_families(body.decode()))
    return ((sample.name, frozenset(sample.labels)) for family in families for sample in family.samples)


def _of_a_stream() -> Iterator[tuple[str, frozenset[str]]]:
    """The metrics that a driver publishes after a stream has read messages."""
    listener, registry = LagListener(), CollectorRegistry()
    listener.publish(registry)
    listener.onQueryProgress(progress(0, source({0: 1}, {0: 2})))
    families = list(registry.collect())
    return ((sample.name, frozenset(sample.labels)) for family in families for sample in family.samples)


@pytest.fixture
async def labels(tmp_path: Path) -> _Labels:
    """The labels of each metric of a stream, and of daemons that served clients."""
    found: defaultdict[str, frozenset[str]] = defaultdict(lambda: _ADDED)
    ports = [free_port() for _ in range(6)]
    replica = {"brokerRole": "SLAVE", "brokerId": "1"}
    metrics = [{"metricsExporterType": "PROM", "metricsPromExporterPort": str(port)} for port in ports]
    certificate = make_certificate(tmp_path, "proxy")
    tls = certificate.settings
    async with (
        fake_controller() as controller,
        OwnBroker(
            "",
            home=tmp_path / "elected",
            settings={
                **metrics[4],
                "brokerName": "broker-b",
                "enableControllerMode": "true",
                "controllerAddr": controller.address,
            },
        ),
        OwnNamesrv(home=tmp_path / "namesrv", settings=metrics[0]) as namesrv,
        OwnBroker(namesrv.address, home=tmp_path / "broker", settings=metrics[1]) as broker,
        OwnBroker(namesrv.address, home=tmp_path / "replica", settings={**metrics[2], **replica}),
        OwnShards(namesrv.address, 1, home=tmp_path / "shards", settings=metrics[3]),
        OwnProxy(namesrv.address, home=tmp_path / "proxy", settings={**metrics[5], **tls}) as proxy,
        grpc_client(proxy.address) as grpc_member,
        raw_client(broker.port) as member,
        raw_client(broker.port) as client,
    ):
        await ask_among_notifications(member, heartbeat("c1", "CG", {"T": "*"}, producer_groups=["PG"]))
        await ask_among_notifications(client, heartbeat("c2", "CG", {"T": "a"}))
        sent((await ask_among_notifications(client, send("T", b"x" * 100)))[0])
        await ask_among_notifications(client, pull("T", "CG", commit=0))
        await grpc_member.produce("T")
        await grpc_member.send(message("T"))
        async with asyncio.timeout(30):
            # Until the replica has found its master.
            while "rmq_replica_lag_seconds" not in found:
                for port in ports:
                    for name, names in await _scraped(port):
                        found[name] |= names
    for name, names in _of_a_stream():
        found[name] |= names
    return found


def _expressions_of_rules() -> Iterator[tuple[str, str]]:
    for group in yaml_of(RULES)["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


def _dashboard() -> dict[str, Any]:
    dashboard = json.loads(DASHBOARD.read_text())
    assert isinstance(dashboard, dict)
    return dashboard


def _expressions_of_panels() -> Iterator[tuple[str, str]]:
    dashboard = _dashboard()
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["definition"]


def _check(where: str, expression: str, labels: _Labels) -> int:
    asked = list(metrics_asked_for(expression))
    for name, matched in asked:
        assert name in labels, f"{where}: no metric {name}"
        assert matched <= labels[name], f"{where}: {name} has no label {set(matched - labels[name])}"
    if asked:
        known = frozenset().union(*(labels[name] for name, _ in asked))
        assert labels_grouped_by(expression) <= known, where
    return len(asked)


async def test_panels_use_existing_metrics(labels: _Labels) -> None:
    asked = [_check(f"panel {title!r}", text, labels) for title, text in _expressions_of_panels()]
    assert all(asked)
    assert len(asked) > 20


async def test_alerts_use_existing_metrics(labels: _Labels) -> None:
    # `up` of RmqDown is a metric of Prometheus itself.
    asked = {name: _check(f"alert {name}", text, labels) for name, text in _expressions_of_rules()}
    assert [name for name, count in asked.items() if count == 0] == ["RmqDown"]


@pytest.mark.parametrize(
    "expression",
    [
        'rate(rmq_no_such_total{cluster=~"a"}[5m])',
        'rmq_held_pulls{zone="z"}',
        "sum by (zone) (rmq_held_pulls)",
    ],
)
def test_missing_metrics_are_found(expression: str) -> None:
    with pytest.raises(AssertionError):
        _check("test", expression, {"rmq_held_pulls": frozenset({"cluster"})})


def test_the_dashboard_is_consistent() -> None:
    dashboard = _dashboard()
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, f"{panel['title']} overlaps another panel"
        assert place["x"] + place["w"] <= 24
        taken |= cells
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${source}"
            assert panel["description"]
            assert panel["fieldConfig"]["defaults"]["unit"]
    assert {"source", "cluster", "broker", "topic"} == variables


def test_grafana_finds_source_and_dashboard() -> None:
    provisioning = DEPLOY / "grafana" / "provisioning"
    (source,) = yaml_of(provisioning / "datasources" / "prometheus.yaml")["datasources"]
    (current,) = [each["current"] for each in _dashboard()["templating"]["list"] if each["name"] == "source"]
    assert source["uid"] == current["value"]
    (provider,) = yaml_of(provisioning / "dashboards" / "rmq.yaml")["providers"]
    grafana = yaml_of(DEPLOY / "compose.full.yaml")["services"]["grafana"]
    folder = provider["options"]["path"]
    assert f"./grafana/dashboards:{folder}:ro" in grafana["volumes"]
    assert grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == f"{folder}/{DASHBOARD.name}"
