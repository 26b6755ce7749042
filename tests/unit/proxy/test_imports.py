"""What a broker with a gRPC port loads before it serves: the start must stay below a second."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Measured: 148 modules. Each 100 modules take some 50 ms.
_MOST_MODULES = 160


def _modules_after(program: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(done.stdout.split())


@pytest.fixture(scope="module")
def of_broker() -> set[str]:
    """The modules of a broker without gRPC."""
    return _modules_after("import rmq_broker.main, rmq_broker.build, rmq_remoting.daemon.process")


@pytest.fixture(scope="module")
def of_grpc(of_broker: set[str]) -> set[str]:
    """The modules that gRPC adds."""
    return _modules_after("import rmq_broker.main, rmq_broker.build, rmq_broker.local_proxy") - of_broker


def test_a_broker_without_grpc_loads_nothing_of_it(of_broker: set[str]) -> None:
    assert {name.partition(".")[0] for name in of_broker}.isdisjoint({"google", "grpc", "rmq_proxy"})


def test_grpc_adds_few_modules(of_grpc: set[str]) -> None:
    assert len(of_grpc) <= _MOST_MODULES


def test_the_broker_loads_no_part_of_the_daemon_and_no_reflection(of_grpc: set[str]) -> None:
    assert "rmq_proxy.face" in of_grpc
    unneeded = (
        "grpc_reflection.v1alpha",
        "rmq_proxy.daemon_settings",
        "rmq_proxy.proxy",
        "rmq_proxy.remoting",
    )
    assert [name for name in of_grpc if name.startswith(unneeded)] == []
