"""The broker's address: taking ports, resolving the host."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from rmq_broker.network.address import BrokerAddress, bind_ports, resolve_address
from rmq_remoting.daemon.lifecycle import StartError
from tests.support.broker_settings import broker_settings
from tests.support.ports import free_port

_LOOPBACK = "127.0.0.1"


@pytest.fixture
def port_in_use() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind((_LOOPBACK, 0))
        taken.listen()
        yield taken.getsockname()[1]


def _accepts_a_binding(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((_LOOPBACK, port))
        except OSError:
            return False
        return True


def test_with_any_free_port_both_ports_are_free_ones() -> None:
    with closing(bind_ports(broker_settings(bindAddress=_LOOPBACK, listenPort=0))) as ports:
        numbers = {ports.main_port, ports.fast.getsockname()[1]}
        assert len(numbers) == 2 and 0 not in numbers
        assert not any(_accepts_a_binding(number) for number in numbers)
    assert all(_accepts_a_binding(number) for number in numbers)


def test_a_bound_port_refuses_connections_until_the_start() -> None:
    with (
        closing(bind_ports(broker_settings(bindAddress=_LOOPBACK, listenPort=0))) as ports,
        pytest.raises(ConnectionRefusedError),
    ):
        socket.create_connection((_LOOPBACK, ports.main_port), timeout=5)


def test_a_fast_port_in_use_gives_the_main_port_back(port_in_use: int) -> None:
    main_port = free_port()
    settings = broker_settings(bindAddress=_LOOPBACK, listenPort=main_port, fastListenPort=port_in_use)
    with pytest.raises(StartError, match=f"cannot listen on {_LOOPBACK}:{main_port} .*{port_in_use}"):
        bind_ports(settings)
    assert _accepts_a_binding(main_port)


@pytest.mark.parametrize(("host", "store_ip"), [("127.0.0.1", "127.0.0.1"), ("[::1]", "::1")])
async def test_the_host_is_resolved_for_message_ids(host: str, store_ip: str) -> None:
    address = await resolve_address(broker_settings(brokerIP1=host), 10911)
    assert (str(address), address.store_ip) == (f"{host}:10911", store_ip)


async def test_a_host_that_cannot_be_resolved_is_named() -> None:
    with pytest.raises(StartError, match=r"brokerIP1=no\.such\.host\.invalid"):
        await resolve_address(broker_settings(brokerIP1="no.such.host.invalid"), 10911)


def test_records_hold_ip_and_port() -> None:
    assert (
        BrokerAddress("broker.example", 10911, "10.0.0.1").store_host == b"\x0a\x00\x00\x01\x00\x00\x2a\x9f"
    )
