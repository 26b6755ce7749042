"""Addresses of peers, as transports report them."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct
from contextlib import suppress
from functools import lru_cache
from typing import Final, TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

# A site gets a network of this size, and each of its hosts may use any address of it.
_IPV6_SITE_BITS: Final = 64
_NO_LINGER: Final = struct.pack("ii", 1, 0)  # on, 0 seconds


def peer_address(name: object) -> tuple[str, int]:
    """Return host and port of a transport's `peername` or `sockname`; an empty host and 0 without one."""
    if isinstance(name, tuple) and len(name) >= 2:
        return str(name[0]), int(name[1])
    return "", 0


def address_text(address: tuple[str, int]) -> str:
    """Return an address as host:port."""
    host, port = address
    return f"{host}:{port}"


def descriptor_of(transport: asyncio.BaseTransport) -> int:
    """Return the number of the socket's descriptor; -1 without a socket."""
    bound = transport.get_extra_info("socket")
    return -1 if bound is None else int(bound.fileno())


def reset_on_close(transport: asyncio.BaseTransport) -> None:
    """Let the end of the connection drop what the kernel has taken of it, and reset the peer's side."""
    bound = transport.get_extra_info("socket")
    if bound is not None:
        with suppress(OSError):
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)


def address_of(host: str) -> Address | None:
    """Return the IP address of a peer, IPv4 also where it is mapped to IPv6; None for other texts."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:  # a Unix socket, or a transport of a test
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


@lru_cache(maxsize=4096)
def host_key(host: str) -> str:
    """Return the text under which connections of one host count: the IPv4 address or the IPv6 /64 network."""
    address = address_of(host)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, _IPV6_SITE_BITS), strict=False))
    return host if address is None else str(address)
