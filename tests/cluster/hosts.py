"""Hosts of a test: network namespaces, each with its own loopback device and one TUN device.

Nothing connects the hosts but a program that reads packets from one TUN device and writes them to another
(`switch.py`). A namespace lives as long as its descriptor is open, so a killed test leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import shutil
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

import pytest

from tests.support.ports import LOOPBACK
from tests.support.raw_client import RawClient

_T = TypeVar("_T")

_NETWORK: Final = "10.77.0."
_NETMASK: Final = "255.255.255.0"
# Larger than Ethernet's, because the switch pays for each packet.
_MTU: Final = 9000
_QUEUED_PACKETS: Final = 2000
_TUN: Final = "/dev/net/tun"
_DEVICE: Final = "host0"

_CLONE_NEWNET: Final = 0x40000000
# linux/if_tun.h and linux/sockios.h
_TUNSETIFF: Final = 0x400454CA
_IFF_TUN: Final = 0x0001
_IFF_NO_PI: Final = 0x1000
_SIOCGIFFLAGS: Final = 0x8913
_SIOCSIFFLAGS: Final = 0x8914
_SIOCSIFADDR: Final = 0x8916
_SIOCSIFNETMASK: Final = 0x891C
_SIOCSIFMTU: Final = 0x8922
_SIOCSIFTXQLEN: Final = 0x8943
_IFF_UP: Final = 0x1

_libc = ctypes.CDLL(None, use_errno=True)


class Host:
    """One host: `address` is where the others reach it, `tun` the descriptor of its device."""

    def __init__(self, name: str, number: int) -> None:
        """Raises OSError."""
        self.name = name
        self.address = f"{_NETWORK}{number}"
        self._namespace, self.tun = _in_new_thread(lambda: _new_namespace(self.address))

    def command(self, command: Sequence[str]) -> list[str]:
        """The command line that runs a command on this host, while this process lives."""
        return ["nsenter", f"--net=/proc/{os.getpid()}/fd/{self._namespace}", *command]

    def socket(self) -> socket.socket:
        """A socket on this host, for a connection that no fault of the network concerns."""

        def make() -> socket.socket:
            _call(_libc.setns, self._namespace, _CLONE_NEWNET)
            return socket.socket()

        return _in_new_thread(make)

    @asynccontextmanager
    async def console(self, port: int) -> AsyncIterator[RawClient]:
        """A connection to a server of this host from the host itself. Raises OSError."""
        connecting = self.socket()
        connecting.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connecting, (LOOPBACK, port))
        except BaseException:
            connecting.close()
            raise
        reader, writer = await asyncio.open_connection(sock=connecting)
        try:
            yield RawClient(reader, writer)
        finally:
            writer.transport.abort()

    def close(self) -> None:
        """Close the descriptors; the namespace ends with its last process."""
        os.close(self.tun)
        os.close(self._namespace)


def need_hosts() -> None:
    """Skip the test where this process may not make hosts."""
    if shutil.which("nsenter") is None:
        pytest.skip("no network namespaces here: there is no command nsenter")
    if not Path(_TUN).exists():
        pytest.skip(f"no network namespaces here: there is no {_TUN}")
    try:
        Host("probe", 1).close()
    except OSError as error:
        pytest.skip(f"no network namespaces here: {error} (they need root)")


def _new_namespace(address: str) -> tuple[int, int]:
    """Make a namespace for this thread; return the descriptors of it and of its device."""
    _call(_libc.unshare, _CLONE_NEWNET)
    namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        tun = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.ioctl(tun, _TUNSETIFF, _named(_DEVICE, struct.pack("H", _IFF_TUN | _IFF_NO_PI)))
            _bring_up(address)
        except BaseException:
            os.close(tun)
            raise
    except BaseException:
        os.close(namespace)
        raise
    return namespace, tun


def _bring_up(address: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for number, value in (
            (_SIOCSIFADDR, _address(address)),
            (_SIOCSIFNETMASK, _address(_NETMASK)),
            (_SIOCSIFMTU, struct.pack("i", _MTU)),
            (_SIOCSIFTXQLEN, struct.pack("i", _QUEUED_PACKETS)),
        ):
            fcntl.ioctl(control, number, _named(_DEVICE, value))
        for device in ("lo", _DEVICE):
            answer = fcntl.ioctl(control, _SIOCGIFFLAGS, _named(device))
            (flags,) = struct.unpack_from("H", answer, 16)
            fcntl.ioctl(control, _SIOCSIFFLAGS, _named(device, struct.pack("H", flags | _IFF_UP)))


def _named(device: str, value: bytes = b"") -> bytes:
    """A `struct ifreq`."""
    return struct.pack("16s24s", device.encode(), value)


def _address(text: str) -> bytes:
    """A `struct sockaddr_in`."""
    return struct.pack("HH4s", socket.AF_INET, 0, socket.inet_aton(text))


def _call(function: Callable[..., int], *arguments: int) -> None:
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _in_new_thread(make: Callable[[], _T]) -> _T:
    """Call in a thread that ends afterwards: a namespace belongs to a thread."""
    made: list[_T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            made.append(make())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="host")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]
