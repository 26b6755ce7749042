"""The build of a broker: its address first, nothing left behind where it fails."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from rmq_broker.build import build_broker
from rmq_remoting.daemon.lifecycle import StartError
from rmq_remoting.daemon.tasks import TaskSupervisor
from tests.support.brokers import broker_configuration
from tests.support.ports import LOOPBACK, free_broker_port


def _supervisor() -> TaskSupervisor:
    return TaskSupervisor(lambda name, error: None)


def _can_be_bound(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


async def test_every_part_knows_the_address_from_the_build_on(tmp_path: Path) -> None:
    supervisor = _supervisor()
    broker = await build_broker(broker_configuration(tmp_path), supervisor)
    port = broker.port
    assert port > 0
    assert broker.registrar.announcements.identity.address == str(broker.address) == f"{LOOPBACK}:{port}"
    assert not _can_be_bound(port)
    assert not supervisor.names and not (tmp_path / "store").exists(), "nothing runs or is opened yet"
    await broker.stop()
    assert _can_be_bound(port)


async def test_a_failed_build_gives_the_ports_back(tmp_path: Path) -> None:
    port = free_broker_port()
    configuration = broker_configuration(tmp_path, listenPort=port, brokerIP1="no.such.host.invalid")
    with pytest.raises(StartError, match=r"no\.such\.host\.invalid"):
        await build_broker(configuration, _supervisor())
    assert _can_be_bound(port)
