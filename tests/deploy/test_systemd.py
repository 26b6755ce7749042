"""The systemd units, judged by systemd's own tools; their settings by the daemons."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rmq_broker.settings.broker import BrokerSettings
from tests.deploy.tools import DEPLOY, judged
from tests.support.requirements import tool_or_skip

UNITS = DEPLOY / "systemd"
_NAMES = ["namesrv", "broker"]
_SYSTEMD = "Debian package systemd"
# systemd's scale: 0 is locked in, 100 is everything; what is left is the network, which a server needs.
_MOST_EXPOSURE = 20


def _values(name: str) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for line in (UNITS / f"rmq-{name}.service").read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            values.setdefault(key, []).append(value)
    return values


@pytest.mark.parametrize("name", _NAMES)
def test_systemd_verifies_it(name: str, tmp_path: Path) -> None:
    analyze = tool_or_skip("systemd-analyze", _SYSTEMD)
    unit = UNITS / f"rmq-{name}.service"
    programs = Path(sys.executable).parent
    # The programs where they are here.
    (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/rmq/bin", str(programs)))
    said = judged([analyze, "--man=no", "verify", tmp_path / unit.name])
    assert said == "", "systemd has remarks"


@pytest.mark.parametrize("name", _NAMES)
def test_it_is_locked_in(name: str) -> None:
    analyze = tool_or_skip("systemd-analyze", _SYSTEMD)
    unit = UNITS / f"rmq-{name}.service"
    judged([analyze, "security", "--offline=yes", f"--threshold={_MOST_EXPOSURE}", "--no-pager", unit])


def test_the_user_can_be_made(tmp_path: Path) -> None:
    sysusers = tool_or_skip("systemd-sysusers", _SYSTEMD)
    said = judged([sysusers, "--dry-run", f"--root={tmp_path}", "--inline", *_sysusers_lines()])
    assert "user 'rmq'" in said.lower()


def _sysusers_lines() -> list[str]:
    lines = (UNITS / "rmq.sysusers").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("name", _NAMES)
def test_the_settings_are_what_the_daemon_takes(name: str) -> None:
    program = Path(sys.executable).parent / f"rmq-{name}"
    printed = judged([program, "-c", UNITS / f"{name}.conf", "--print-config"])
    assert _values(name)["ExecStart"] == [f"/opt/rmq/bin/rmq-{name} -c /etc/rmq/{name}.conf"]
    if name == "broker":
        folder = f"/var/lib/{_values(name)['StateDirectory'][0]}"
        assert f"\nstorePathRootDir={folder}/store\n" in printed


@pytest.mark.parametrize("name", _NAMES)
def test_it_may_stop_in_order_and_does_not_start_in_vain(name: str) -> None:
    values = _values(name)
    (stops_within,) = values["TimeoutStopSec"]
    assert int(stops_within) >= BrokerSettings().shutdown_wait_seconds + 10
    assert values["Restart"] == ["on-failure"]
    assert values["RestartPreventExitStatus"] == ["2"]


@pytest.mark.parametrize("name", _NAMES)
def test_it_can_tell_one_boot_of_the_machine_from_another(name: str) -> None:
    # /proc/sys/kernel/random/boot_id decides what a start has to read again.
    assert "ProcSubset" not in _values(name)


def test_both_can_serve_metrics_on_one_machine() -> None:
    conf = (UNITS / "namesrv.conf").read_text()
    assert f"metricsPromExporterPort={BrokerSettings().metrics_port + 1}\n" in conf
