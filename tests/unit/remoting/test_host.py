"""What this machine is called and reached by."""

from __future__ import annotations

import ipaddress
import socket

import pytest

from rmq_remoting import host


def test_the_local_address_is_one_of_this_machine() -> None:
    address = ipaddress.ip_address(host.local_address().strip("[]"))
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family) as probe:
        probe.bind((str(address), 0))  # fails for an address that is not ours


def test_there_is_a_host_name() -> None:
    assert host.host_name()


def _sockets_without_network(*_: object) -> socket.socket:
    raise OSError("Network is unreachable")


def test_without_a_network_the_host_name_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container on an internal network: no route outside, but an address in /etc/hosts."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", 0)),
             (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("172.18.0.2", 0))]  # fmt: skip
    monkeypatch.setattr(socket, "socket", _sockets_without_network)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: found)
    assert host.local_address() == "172.18.0.2"


def test_with_nothing_at_all_it_is_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", _sockets_without_network)
    monkeypatch.setattr(socket, "getaddrinfo", _sockets_without_network)
    assert host.local_address() == "127.0.0.1"
