"""Free TCP ports on the loopback address."""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

LOOPBACK: Final = "127.0.0.1"
# Below the range of outgoing connections (32768 on Linux): no client connection may take a free port before
# its server listens.
_PORTS: Final = range(20_000, 32_000)
_ATTEMPTS: Final = 200
# A broker listens on the fast port (listenPort - 2), listenPort, and the port for replicas.
BROKER_OFFSETS: Final = (-2, 0, 1)


def free_port() -> int:
    """Return a free port. Raises OSError."""
    return free_base((0,))


def free_broker_port() -> int:
    """Return a `listenPort` for a broker, all of whose ports are free. Raises OSError."""
    return free_base(BROKER_OFFSETS)


def free_base(offsets: Sequence[int]) -> int:
    """Return a port from which the ports at all these offsets are free. Raises OSError."""
    for _ in range(_ATTEMPTS):
        base = random.choice(_PORTS)
        if _all_free([base + offset for offset in offsets]):
            return base
    raise OSError(f"no free ports found in {_PORTS} after {_ATTEMPTS} attempts")


def _all_free(ports: list[int]) -> bool:
    with ExitStack() as stack:
        for port in ports:
            probe = stack.enter_context(socket.socket())
            # As servers do, because a port with connections in TIME_WAIT is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                return False
    return True
