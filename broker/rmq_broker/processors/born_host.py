"""The born host of messages: the producer's address as it is packed in records, once per connection."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Final

from ..store.api import pack_host

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

BORN_HOST: Final = "born_host"
"""The connection's attribute that keeps the packed address."""


def born_host_of(connection: Connection) -> bytes:
    """Return the packed address of a connection's peer."""
    known: bytes | None = connection.attributes.get(BORN_HOST)
    if known is not None:
        return known
    host, port = connection.remote_address
    # The system may not know the address of a peer that has disconnected.
    address = ip_address(host or "0.0.0.0")
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    born_host = connection.attributes[BORN_HOST] = pack_host(str(mapped or address), port)
    return born_host
