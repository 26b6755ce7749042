"""Name and address of this machine, as far as it can tell by itself."""

from __future__ import annotations

import socket
from typing import Final

# Addresses reserved for documentation (RFC 5737, RFC 3849): in use nowhere, and routed like any outside one.
_OUTSIDE: Final = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
_LOOPBACK: Final = "127.0.0.1"


def local_address() -> str:
    """Return the address by which others most likely reach this machine; an IPv6 address is in brackets.

    That is the address of the interface that a connection to the outside would use: on a laptop in its
    current network, in a container the container's own. Without a route to the outside it is the address of
    the host name, else 127.0.0.1. Apache RocketMQ 5.3.3 (NetworkUtil) searches the interfaces and may pick
    one of a virtual network. Behind address translation neither can know the address: set `brokerIP1`.
    """
    for family, outside in _OUTSIDE:
        address = _route_source(family, outside)
        if address is not None:
            return f"[{address}]" if family == socket.AF_INET6 else address
    return _address_of_host_name()


def host_name() -> str:
    """Return the machine's name, or Apache's substitute if it has none (5.3.3, BrokerIdentity)."""
    return socket.gethostname() or "DEFAULT_BROKER"


def _route_source(family: socket.AddressFamily, outside: str) -> str | None:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((outside, 9))  # chooses a route and a source address; no datagram is sent
            address = str(probe.getsockname()[0])
    except OSError:
        return None
    return None if address in ("0.0.0.0", "::") else address


def _address_of_host_name() -> str:
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return _LOOPBACK
    addresses = [str(item[4][0]) for item in found]
    return next((address for address in addresses if not address.startswith("127.")), _LOOPBACK)
