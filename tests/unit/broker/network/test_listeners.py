"""The listeners of a broker: start on bound ports, drain, stop."""

from __future__ import annotations

import asyncio
import logging
import socket

import pytest

from rmq_broker.network.address import BoundPorts, bind_ports
from rmq_broker.network.listeners import Listeners
from rmq_broker.replication.serving import ReplicaServer
from rmq_broker.settings.broker import BrokerSettings
from rmq_broker.store.api import MessageStore
from rmq_remoting.answers import Answer
from rmq_remoting.daemon.lifecycle import StartError
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.tiers import InlineTier
from tests.support.broker_requests import request
from tests.support.broker_settings import broker_settings
from tests.support.raw_client import raw_client
from tests.support.waiting import until

_CODE = 10


def _settings() -> BrokerSettings:
    return broker_settings(bindAddress="127.0.0.1", listenPort=0)


def _listeners(settings: BrokerSettings, main: Dispatcher) -> Listeners:
    return _listeners_on(bind_ports(settings), settings, main)


def _listeners_on(ports: BoundPorts, settings: BrokerSettings, main: Dispatcher) -> Listeners:
    replicas = ReplicaServer(settings, MessageStore(settings, settings, settings))
    return Listeners(settings, ports, main, Dispatcher(), replicas, lambda connection: None)


async def test_a_port_that_another_process_listens_on_by_now_is_named() -> None:
    """Two sockets may be bound to a port with SO_REUSEADDR as long as neither listens."""
    settings = _settings()
    ports = bind_ports(settings)
    listeners = _listeners_on(ports, settings, Dispatcher())
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", ports.main_port))
        other.listen()
        with pytest.raises(StartError, match=r"cannot listen on .*Is another broker running"):
            await listeners.start()
    await listeners.stop()


@pytest.mark.parametrize("is_answered", [True, False])
async def test_draining_waits_for_requests_under_way(
    is_answered: bool, caplog: pytest.LogCaptureFixture
) -> None:
    promised: list[asyncio.Future[Answer]] = []

    def hold(connection: object, command: object) -> asyncio.Future[Answer]:
        promised.append(asyncio.get_running_loop().create_future())
        return promised[0]

    dispatcher = Dispatcher()
    dispatcher.register([_CODE], hold, InlineTier("held", capacity=1, max_wait_ms=60_000))
    listeners = _listeners(_settings(), dispatcher)
    listeners.drain_seconds = 20.0 if is_answered else 0.05
    await listeners.start()
    async with raw_client(listeners.main.port) as client:
        command = request(_CODE)
        client.send(command)
        await until(lambda: bool(promised))
        draining = asyncio.ensure_future(listeners.drain())
        await asyncio.sleep(0)
        assert not draining.done()
        if is_answered:
            promised[0].set_result(command.response(0))
            assert (await client.receive()).code == 0
        with caplog.at_level(logging.WARNING):
            await draining
    assert ("unanswered requests" in caplog.text) == (not is_answered)
    await listeners.stop()
