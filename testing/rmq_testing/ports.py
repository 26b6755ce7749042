"""Free TCP ports on the loopback address."""

from __future__ import annotations

import atexit
import os
import random
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from itertools import chain
from typing import Final

LOOPBACK: Final = "127.0.0.1"
# Below the range of outgoing connections (32768 on Linux): no client connection may take a free port before
# its server listens.
_PORTS: Final = range(20_000, 32_000)
_BLOCK_SIZE: Final = 200
# A broker listens on the fast port (listenPort - 2), listenPort, and the port for replicas.
BROKER_OFFSETS: Final = (-2, 0, 1)


def free_port() -> int:
    """Return a free port. Raises OSError."""
    return free_base((0,))


def free_broker_port() -> int:
    """Return a `listenPort` for a broker, all of whose ports are free. Raises OSError."""
    return free_base(BROKER_OFFSETS)


def free_base(offsets: Sequence[int]) -> int:
    """Return a port from which the ports at all these offsets are free. Raises OSError.

    Each process has a block of ports of its own, while there are blocks left, and hands them out in turn. So
    a server may start later than its port was chosen.
    """
    return _block_of(os.getpid()).free_base(offsets)


class _Block:
    """The ports of one process, handed out in turn. Its first port is bound all the time, as a mark."""

    def __init__(self, ports: range) -> None:
        self._ports = ports
        self._next = random.choice(ports)

    @classmethod
    def take(cls) -> _Block:
        """Take a block that no other process has, or share all ports if there is none."""
        starts = list(_PORTS[::_BLOCK_SIZE])
        random.shuffle(starts)
        for start in starts:
            mark = socket.socket()
            try:
                mark.bind((LOOPBACK, start))
            except OSError:
                mark.close()
                continue
            atexit.register(mark.close)
            return cls(range(start + 1, start + _BLOCK_SIZE))
        return cls(_PORTS)

    def free_base(self, offsets: Sequence[int]) -> int:
        """Return the next port from which the ports at all these offsets are free. Raises OSError."""
        first, last = min(offsets), max(offsets)
        bases = range(self._ports.start - first, self._ports.stop - last)
        start = max(self._next - first, bases.start)
        for base in chain(range(start, bases.stop), range(bases.start, min(start, bases.stop))):
            if _all_free([base + offset for offset in offsets]):
                self._next = base + last + 1
                return base
        raise OSError(f"no free ports found in {self._ports}")


@cache
def _block_of(pid: int) -> _Block:
    """Return the block of a process. A forked process has one of its own."""
    return _Block.take()


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
