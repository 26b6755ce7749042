"""The systemd units, checked by systemd's tools; their settings by the daemons."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rmq_broker.settings.broker import BrokerSettings
from rmq_proxy.daemon_settings import ProxyDaemonSettings
from tests.deploy.tools import DEPLOY, judged
from tests.support.requirements import tool_or_skip

UNITS = DEPLOY / "systemd"
_NAMES = ["namesrv", "broker", "proxy"]
_SYSTEMD = "Debian package systemd"
# systemd's exposure level, 0 (confined) to 100 (unconfined). The rest is the network, which servers need.
_MOST_EXPOSURE = 20


def _values(name: str) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for line in (UNITS / f"rmq-{name}.service").read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            values.setdefault(key, []).append(value)
    return values


@pytest.mark.parametrize("name", _NAMES)
def test_systemd_accepts_the_units(name: str, tmp_path: Path) -> None:
    analyze = tool_or_skip("systemd-analyze", _SYSTEMD)
    unit = UNITS / f"rmq-{name}.service"
    programs = Path(sys.executable).parent
    # The programs with their local paths.
    (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/rmq/bin", str(programs)))
    said = judged([analyze, "--man=no", "verify", tmp_path / unit.name])
    assert said == "", "systemd has remarks"


@pytest.mark.parametrize("name", _NAMES)
def test_the_units_are_confined(name: str) -> None:
    analyze = tool_or_skip("systemd-analyze", _SYSTEMD)
    unit = UNITS / f"rmq-{name}.service"
    judged([analyze, "security", "--offline=yes", f"--threshold={_MOST_EXPOSURE}", "--no-pager", unit])


def test_the_user_can_be_created(tmp_path: Path) -> None:
    sysusers = tool_or_skip("systemd-sysusers", _SYSTEMD)
    said = judged([sysusers, "--dry-run", f"--root={tmp_path}", "--inline", *_sysusers_lines()])
    assert "user 'rmq'" in said.lower()


def _sysusers_lines() -> list[str]:
    lines = (UNITS / "rmq.sysusers").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("name", _NAMES)
def test_the_daemons_accept_their_settings(name: str) -> None:
    program = Path(sys.executable).parent / f"rmq-{name}"
    printed = judged([program, "-c", UNITS / f"{name}.conf", "--print-config"])
    assert _values(name)["ExecStart"] == [f"/opt/rmq/bin/rmq-{name} -c /etc/rmq/{name}.conf"]
    if name == "broker":
        folder = f"/var/lib/{_values(name)['StateDirectory'][0]}"
        assert f"\nstorePathRootDir={folder}/store\n" in printed


@pytest.mark.parametrize("name", _NAMES)
def test_units_have_time_to_stop_and_restart_only_after_failures(name: str) -> None:
    values = _values(name)
    (stops_within,) = values["TimeoutStopSec"]
    assert int(stops_within) >= BrokerSettings().shutdown_wait_seconds + 10
    assert values["Restart"] == ["on-failure"]
    assert values["RestartPreventExitStatus"] == ["2"]


@pytest.mark.parametrize("name", _NAMES)
def test_the_broker_can_read_the_boot_id(name: str) -> None:
    # /proc/sys/kernel/random/boot_id decides how much of the log a start reads again.
    assert "ProcSubset" not in _values(name)


def test_the_proxys_ports_are_the_defaults() -> None:
    conf = (UNITS / "proxy.conf").read_text().splitlines()
    settings = ProxyDaemonSettings()
    assert f"grpcServerPort={settings.grpc_server_port}" in conf
    assert f"remotingListenPort={settings.remoting_listen_port}" in conf


def test_all_daemons_can_serve_metrics_on_one_machine() -> None:
    for number, name in enumerate(("namesrv", "proxy"), 1):
        conf = (UNITS / f"{name}.conf").read_text()
        assert f"metricsPromExporterPort={BrokerSettings().metrics_port + number}\n" in conf
