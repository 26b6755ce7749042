"""The compose files: the Compose Specification's schema, and their content."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rmq_broker.settings.broker import BrokerSettings
from rmq_namesrv.config import NamesrvSettings
from rmq_proxy.daemon_settings import ProxyDaemonSettings
from tests.deploy.tools import DEPLOY, judged, yaml_of
from tests.support.containerfile import parse
from tests.support.requirements import tool_or_skip

BASE = DEPLOY / "compose.yaml"
FULL = DEPLOY / "compose.full.yaml"
CLUSTER = DEPLOY / "compose.cluster.yaml"
FAILOVER = DEPLOY / "compose.failover.yaml"
_VARIABLE = re.compile(r"\$\{([A-Z_]+)(?::([-?])([^}]*))?\}")
_SECONDS = re.compile(r"(\d+)s")


def _services() -> dict[str, dict[str, Any]]:
    """All services of both files, with variables replaced by their defaults."""
    return {
        name: _substituted(service)
        for file in (BASE, FULL)
        for name, service in yaml_of(file)["services"].items()
    }


def _substituted(value: Any) -> Any:
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: found[3] if found[2] == "-" else "given", value)
    if isinstance(value, Mapping):
        return {key: _substituted(each) for key, each in value.items()}
    return [_substituted(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("file", [BASE, FULL, CLUSTER, FAILOVER], ids=lambda file: file.name)
def test_the_files_match_the_schema(file: Path) -> None:
    checker = tool_or_skip("check-jsonschema", "Python package check-jsonschema")
    judged([checker, "--builtin-schema", "vendor.compose-spec", file])


@pytest.mark.parametrize(
    "files",
    [[BASE], [BASE, FULL], [CLUSTER], [FAILOVER]],
    ids=["base", "full", "cluster", "failover"],
)
def test_compose_accepts_the_files(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    docker = tool_or_skip("docker", "Docker with its compose plugin")
    monkeypatch.setenv("GRAFANA_ADMIN_PASSWORD", "secret")
    try:
        judged([docker, "compose", "version"])
    except AssertionError:
        pytest.skip("this docker has no compose plugin")
    judged([docker, "compose", *(word for file in files for word in ("-f", file)), "config", "--quiet"])


def test_the_daemons_accept_their_commands() -> None:
    services = _services()
    bin_folder = tool_or_skip("rmq-broker", "this project itself").parent
    for name in ("namesrv", "broker", "proxy"):
        program, *arguments = services[name]["command"]
        judged([bin_folder / program, *arguments, "--print-config"])
        check = ["CMD", "rmq-health", name]
        if name == "proxy":
            check = ["CMD-SHELL", "rmq-health proxy && rmq-health proxy-remoting"]
        assert services[name]["healthcheck"]["test"] == check


def test_a_new_container_keeps_the_brokers_identity() -> None:
    broker = _services()["broker"]
    settings = dict(word.split("=", 1) for word in broker["command"] if "=" in word)
    assert settings["brokerName"] != ""
    assert settings["brokerIP1"] == "broker", "its name in the containers' network"
    assert broker["environment"]["NAMESRV_ADDR"] == f"namesrv:{NamesrvSettings().listen_port}"
    assert broker["depends_on"]["namesrv"]["condition"] == "service_healthy"


def test_the_proxy_serves_its_ports() -> None:
    settings, proxy = ProxyDaemonSettings(), _services()["proxy"]
    ports = settings.grpc_server_port, settings.remoting_listen_port
    assert proxy["ports"] == [f"{port}:{port}" for port in ports]
    # Clients have to reach the host that routes name, and the port cannot differ from the proxy's own.
    assert "remotingAccessAddr=proxy" in proxy["command"]
    assert yaml_of(BASE)["services"]["proxy"]["ports"][1] == f"{ports[1]}:{ports[1]}"


def test_services_publish_different_ports() -> None:
    """A port of all interfaces and one of 127.0.0.1 collide, too."""
    published = [port.split(":")[-2] for service in _services().values() for port in service.get("ports", [])]
    assert len(set(published)) == len(published)


def test_the_brokers_ports_are_equal_outside_and_inside() -> None:
    port, namesrv_port = BrokerSettings().listen_port, NamesrvSettings().listen_port
    services = _services()
    assert services["broker"]["ports"] == [f"{each}:{each}" for each in (port, port - 2)]
    assert services["namesrv"]["ports"] == [f"{namesrv_port}:{namesrv_port}"]


@pytest.mark.parametrize("name", ["namesrv", "broker", "proxy"])
def test_daemons_are_confined_and_have_time_to_stop(name: str) -> None:
    service = _services()[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    grace = _SECONDS.fullmatch(service["stop_grace_period"])
    assert grace is not None
    assert int(grace[1]) >= BrokerSettings().shutdown_wait_seconds + 10
    if name == "proxy":
        assert "volumes" not in service, "a proxy has no state"
        return
    (volume,) = service["volumes"]
    assert volume == f"{name}:{parse(DEPLOY / 'Containerfile')[-1].last('VOLUME').text}"


def test_mounted_files_and_build_files_exist() -> None:
    declared = {name for file in (BASE, FULL) for name in yaml_of(file)["volumes"]}
    used: set[str] = set()
    for service in _services().values():
        if "build" in service:
            build = service["build"]
            assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()
        for volume in service.get("volumes", []):
            source, target, *options = volume.split(":")
            assert target.startswith("/")
            if source.startswith("./"):
                assert (DEPLOY / source).is_dir()
                assert options == ["ro"]
            else:
                used.add(source)
    assert used == declared


def test_pages_without_a_password_are_local_only() -> None:
    services = _services()
    for name in set(services) - {"namesrv", "broker", "proxy"}:
        assert all(port.startswith("127.0.0.1:") for port in services[name].get("ports", []))


def test_foreign_images_have_a_version() -> None:
    for name, service in _services().items():
        if "build" not in service:
            assert re.fullmatch(r"[a-z]+/[a-z]+:v?\d+\.\d+\.\d+", service["image"]), name


def test_the_cluster_has_two_groups_of_a_master_and_a_replica() -> None:
    services = {name: _substituted(service) for name, service in yaml_of(CLUSTER)["services"].items()}
    bin_folder = tool_or_skip("rmq-broker", "this project itself").parent
    groups: dict[str, set[tuple[str, str]]] = {}
    ports: list[str] = []
    for name, service in services.items():
        program, *arguments = service["command"]
        judged([bin_folder / program, *arguments, "--print-config"])
        ports += service["ports"]
        if program != "rmq-broker":
            continue
        settings = dict(word.split("=", 1) for word in arguments if "=" in word)
        listens = settings["listenPort"]
        assert service["ports"] == [f"{listens}:{listens}", f"{int(listens) - 2}:{int(listens) - 2}"]
        assert service["healthcheck"]["test"][-1] == f"127.0.0.1:{listens}"
        assert settings["brokerIP1"] == settings["brokerIP2"] == name
        assert service["environment"]["NAMESRV_ADDR"] == "namesrv-1:9876;namesrv-2:9876"
        role = settings["brokerRole"], settings.get("brokerId", "0")
        groups.setdefault(settings["brokerName"], set()).add(role)
    both = {("SYNC_MASTER", "0"), ("SLAVE", "1")}
    assert groups == {"broker-a": both, "broker-b": both}
    assert len({port.partition(":")[0] for port in ports}) == len(ports)
    assert set(yaml_of(CLUSTER)["volumes"]) == set(services)


def test_two_groups_of_two_brokers_have_a_controller_of_apaches() -> None:
    content = yaml_of(FAILOVER)
    services = {name: _substituted(service) for name, service in content["services"].items()}
    controller = services.pop("controller")
    assert controller["image"] == "apache/rocketmq:5.3.3"
    lines = dict(line.split("=") for line in content["configs"]["controller"]["content"].split())
    address = lines["controllerDLegerPeers"].removeprefix(f"{lines['controllerDLegerSelfId']}-")
    mounts = {volume.split(":")[1] for volume in controller["volumes"]}
    assert lines["controllerStorePath"] in mounts
    bin_folder = tool_or_skip("rmq-broker", "this project itself").parent
    groups: list[str] = []
    ports: list[str] = []
    for name, service in services.items():
        program, *arguments = service["command"]
        ports += service["ports"]
        if program != "rmq-broker":
            continue
        settings = dict(word.split("=", 1) for word in arguments if "=" in word)
        listens = settings["listenPort"]
        assert service["ports"] == [f"{listens}:{listens}", f"{int(listens) - 2}:{int(listens) - 2}"]
        assert service["healthcheck"]["test"][-1] == f"127.0.0.1:{listens}"
        assert settings["brokerIP1"] == settings["brokerIP2"] == name
        assert (settings["enableControllerMode"], settings["controllerAddr"]) == ("true", address)
        groups.append(settings["brokerName"])
        if len(groups) == 1:
            judged([bin_folder / program, *arguments, "--print-config"])
    assert sorted(groups) == ["broker-a", "broker-a", "broker-b", "broker-b"]
    assert len({port.partition(":")[0] for port in ports}) == len(ports)
    assert set(content["volumes"]) == {*services, "controller"}
