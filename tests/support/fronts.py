"""A name server and a broker in this process, behind proxies that see all traffic of clients."""

from __future__ import annotations

import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from rmq_remoting.command import RemotingCommand
from tests.support.brokers import running_broker
from tests.support.namesrv import running_namesrv
from tests.support.ports import LOOPBACK
from tests.support.proxy import fault_proxy

# Clients connect to the address of the route: this one, with the broker's port. Only on Linux is all of
# 127.0.0.0/8 this machine.
FRONT_HOST: Final = "127.0.0.2"
needs_fronts: Final = pytest.mark.skipif(
    sys.platform != "linux", reason=f"{FRONT_HOST} is an address of this machine on Linux only"
)


@asynccontextmanager
async def fronted_cluster(
    folder: Path,
    *,
    tls: ssl.SSLContext | None = None,
    on_command: Callable[[RemotingCommand], None] | None = None,
) -> AsyncIterator[str]:
    """Yield the name server's address for clients, which use TLS if `tls` is given.

    `on_command` gets each command of a client.
    """
    async with (
        running_namesrv(folder) as namesrv,
        running_broker(folder, namesrvAddr=namesrv.address, brokerIP1=FRONT_HOST) as broker,
        fault_proxy(LOOPBACK, namesrv.port, tls=tls, on_command=on_command) as front,
        fault_proxy(
            LOOPBACK,
            broker.port,
            listen_host=FRONT_HOST,
            listen_port=broker.port,
            tls=tls,
            on_command=on_command,
        ),
    ):
        yield front.address
