"""A network that only a test reaches, so that its default ports are free, or taken by the test.

As a program in a new network namespace, this file holds the namespace until its standard input ends:
`private_network.py PORT ...` listens on the ports, and prints a line then.
"""

from __future__ import annotations

import fcntl
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import pytest

_SIOCGIFFLAGS: Final = 0x8913
_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP: Final = 0x1
_EVERY_INTERFACE: Final = "0.0.0.0"


@contextmanager
def private_network(taken: Sequence[int] = ()) -> Iterator[list[str]]:
    """Yield the words before a command that runs it in a new network, which has only a loopback device.

    The ports `taken` are in use there. Skips the test where this process may not make networks.
    """
    for program in ("unshare", "nsenter"):
        if shutil.which(program) is None:
            pytest.skip(f"no network namespaces here: there is no command {program}")
    holder = subprocess.Popen(
        ["unshare", "--map-root-user", "--net", sys.executable, __file__, *map(str, taken)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        if not holder.stdout.readline():
            pytest.skip(f"no network namespaces here: {holder.communicate()[1].strip()}")
        yield ["nsenter", f"--target={holder.pid}", "--user", "--net", "--preserve-credentials"]
    finally:
        holder.communicate()


def _hold(ports: Sequence[int]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        answer = fcntl.ioctl(control, _SIOCGIFFLAGS, struct.pack("16s16x", b"lo"))
        (flags,) = struct.unpack_from("H", answer, 16)
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))
    listening = [socket.create_server((_EVERY_INTERFACE, port)) for port in ports]
    print("up", flush=True)
    sys.stdin.read()
    for server in listening:
        server.close()


if __name__ == "__main__":
    _hold([int(word) for word in sys.argv[1:]])
