"""What this machine is called and reached by, as far as it can tell by itself."""

from __future__ import annotations

import socket
from typing import Final

# Addresses for documentation (RFC 5737, RFC 3849): nobody's, and routed as any other outside address.
_OUTSIDE: Final = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
_LOOPBACK: Final = "127.0.0.1"


def local_address() -> str:
    """The address that others most likely reach this machine by; an IPv6 address comes in brackets.

    It is that of the interface a connection to the outside would leave by: on a laptop the network it is
    in, in a container the container's own. Without a way out, the address of the host name, else
    127.0.0.1. (Apache RocketMQ 5.3.3, NetworkUtil, goes through the interfaces and may so pick that of a
    virtual network; behind address translation neither can know the address: `brokerIP1` says it.)
    """
    for family, outside in _OUTSIDE:
        address = _route_source(family, outside)
        if address is not None:
            return f"[{address}]" if family == socket.AF_INET6 else address
    return _address_of_host_name()


def host_name() -> str:
    """The machine's name; Apache's stand-in where it has none (5.3.3, BrokerIdentity)."""
    return socket.gethostname() or "DEFAULT_BROKER"


def _route_source(family: socket.AddressFamily, outside: str) -> str | None:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((outside, 9))  # picks a route and a source address; a datagram socket sends nothing
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
