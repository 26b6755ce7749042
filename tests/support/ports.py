"""Free TCP ports on the loopback address."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

LOOPBACK = "127.0.0.1"
# Below the range of outgoing connections (32768 on Linux): no client connection may take a free port before
# its server listens.
_PORTS = range(20_000, 32_000)
_ATTEMPTS = 200


def free_port() -> int:
    """Return a free port."""
    return _free_base((0,))


def free_broker_port() -> int:
    """A `listenPort` for a broker: it, the fast port (listenPort - 2) and the port after it are free."""
    return _free_base((0, -2, 1))


def free_shards_port(count: int) -> int:
    """A `listenPort` for the first of several shards: all their ports are free."""
    return _free_base(tuple(offset for number in range(count) for offset in _shard_offsets(number)))


def _shard_offsets(number: int) -> tuple[int, ...]:
    # Of each shard the fast port, listenPort, the HA port and the port of metrics (docs/deployment.md).
    return tuple(10 * number + offset for offset in (-2, 0, 1, 2))


def _free_base(offsets: tuple[int, ...]) -> int:
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
