"""The port of gRPC that `--grpc` and `--standalone` choose."""

from __future__ import annotations

import logging
import socket
import sys
from importlib.util import find_spec
from unittest import mock

import pytest

from rmq_broker import grpc_port
from rmq_broker.grpc_port import choose_grpc_port
from rmq_broker.settings.broker import BrokerSettings

_LOOPBACK = "127.0.0.1"

pytestmark = pytest.mark.skipif(find_spec("grpc") is None, reason="needs the extra proxy")


def _settings(**given: object) -> BrokerSettings:
    return BrokerSettings.model_validate({"bindAddress": _LOOPBACK, **given})


@pytest.fixture
def free_port(monkeypatch: pytest.MonkeyPatch) -> int:
    """The usual port of gRPC in this test."""
    with socket.create_server((_LOOPBACK, 0)) as probe:
        port = int(probe.getsockname()[1])
    monkeypatch.setattr(grpc_port, "_GRPC_PORT", port)
    return port


def test_the_usual_port_is_chosen_if_it_is_free(free_port: int) -> None:
    settings = _settings()
    choose_grpc_port(settings)
    assert settings.grpc_server_port == free_port


def test_another_port_is_chosen_if_the_usual_one_is_taken(
    free_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    settings = _settings()
    with socket.create_server((_LOOPBACK, free_port)):
        choose_grpc_port(settings)
    assert settings.grpc_server_port not in (0, free_port)
    assert f"gRPC port taken port={free_port}; any free port is used" in caplog.text


@pytest.mark.parametrize("port", [0, 8099])
def test_a_port_of_the_operator_counts(port: int) -> None:
    settings = _settings(grpcServerPort=port)
    choose_grpc_port(settings)
    assert settings.grpc_server_port == port


def test_grpc_stays_off_without_its_packages(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    settings = _settings()
    with mock.patch.dict(sys.modules, {"grpc_health": None}):
        choose_grpc_port(settings)
    assert settings.grpc_server_port == 0
    assert "gRPC is off, the package grpc_health is not installed" in caplog.text


def test_grpc_stays_off_where_other_settings_forbid_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    settings = _settings(signatureReplayWindowSeconds=60)
    choose_grpc_port(settings)
    assert settings.grpc_server_port == 0
    assert "gRPC is off cause=signatureReplayWindowSeconds cannot protect" in caplog.text
