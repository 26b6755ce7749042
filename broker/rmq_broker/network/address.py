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
    """The sockets of both ports, bound and not listening yet."""

    main: socket.socket
    fast: socket.socket

    @property
    def main_port(self) -> int:
        """The number of the main port."""
        return int(self.main.getsockname()[1])

    def close(self) -> None:
        """Give the ports back; a socket that a listener has taken over is closed by that."""
        self.main.close()
        self.fast.close()


def bind_ports(settings: BrokerSettings) -> BoundPorts:
    """Take the broker's two ports. Raises StartError."""
    try:
        main = bind_socket(settings.bind_address, settings.listen_port)
        try:
            # With any free port as main port, the fast port is any free one, too.
            fast_port = settings.fast_listen_port if settings.listen_port else 0
            return BoundPorts(main, bind_socket(settings.bind_address, fast_port))
        except OSError:
            main.close()
            raise
    except OSError as error:
        raise port_problem(settings, error) from error


def port_problem(settings: BrokerSettings, error: OSError) -> StartError:
    """Return the error for the operator of a port that cannot be used."""
    return StartError(
        f"cannot listen on {settings.bind_address}:{settings.listen_port} (and, for sends, "
        f"{settings.fast_listen_port}): {error.strerror}. Is another broker running? listenPort "
        "chooses the port"
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
