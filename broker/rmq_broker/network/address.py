"""The broker's address: the ports that it takes, and the host name that it is known by."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmq_remoting.daemon.lifecycle import StartError
from rmq_remoting.server import bind_socket

from ..store.api import pack_host

if TYPE_CHECKING:
    from ..settings.broker import BrokerSettings


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where clients reach the broker."""

    host: str  # brokerIP1, as clients are told it
    port: int
    store_ip: str  # the IP address of the host, for message ids

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def store_host(self) -> bytes:
        """IP address and port as records hold them."""
        return pack_host(self.store_ip, self.port)


@dataclass(frozen=True, slots=True)
class BoundPorts:
    """The sockets of all ports, bound and not listening yet."""

    main: socket.socket
    fast: socket.socket
    replication: socket.socket

    @property
    def main_port(self) -> int:
        """The number of the main port."""
        return int(self.main.getsockname()[1])

    @property
    def fast_port(self) -> int:
        """The number of the port for sends."""
        return int(self.fast.getsockname()[1])

    @property
    def replication_port(self) -> int:
        """The number of the port that replicas connect to."""
        return int(self.replication.getsockname()[1])

    def close(self) -> None:
        """Give the ports back; a socket that a listener has taken over is closed by that."""
        self.main.close()
        self.fast.close()
        self.replication.close()


def bind_ports(settings: BrokerSettings) -> BoundPorts:
    """Take the broker's ports. Raises StartError."""
    # With any free port as main port, the others are any free ones, too.
    is_free = not settings.listen_port
    numbers = (
        settings.listen_port,
        0 if is_free else settings.fast_listen_port,
        0 if is_free and not settings.ha_listen_port else settings.ha_listen_port,
    )
    bound: list[socket.socket] = []
    try:
        for number in numbers:
            bound.append(bind_socket(settings.bind_address, number))
    except OSError as error:
        for each in bound:
            each.close()
        raise port_problem(settings, error) from error
    return BoundPorts(*bound)


def port_problem(settings: BrokerSettings, error: OSError) -> StartError:
    """Return the error for the operator of a port that cannot be used."""
    return StartError(
        f"cannot listen on {settings.bind_address}:{settings.listen_port} (and, for sends, "
        f"{settings.fast_listen_port}, for replicas {settings.ha_listen_port}): {error.strerror}. Is another "
        "broker running? listenPort chooses the ports"
    )


async def resolve_address(settings: BrokerSettings, port: int) -> BrokerAddress:
    """Return the address with brokerIP1 resolved. Raises StartError."""
    host = settings.broker_ip1
    try:
        infos = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise StartError(
            f"brokerIP1={host} is neither an IP address nor a name that can be resolved: {error}"
        ) from error
    return BrokerAddress(host, port, str(infos[0][4][0]))
